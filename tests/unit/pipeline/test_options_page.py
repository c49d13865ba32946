"""The reference page and the JSON Schema are what the models give."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_files_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "specs/generate_job_page.py", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
