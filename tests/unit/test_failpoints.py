"""Points of the pipeline's processes act once, as their file says."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from bascule.failpoints import NAMES, VARIABLE, failpoint

from tests.failpoints import Points

SOURCES = Path(__file__).parents[2] / "python" / "bascule"


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Points:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return Points(tmp_path)


def test_a_point_without_a_file_or_a_folder_does_nothing(points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    failpoint("sink.staged")
    points.arm("sink.staged", "fail")
    monkeypatch.delenv(VARIABLE)
    failpoint("sink.staged")
    assert points.is_armed("sink.staged")


def test_a_step_fails_once(points: Points) -> None:
    points.arm("sink.staged", "fail")
    failpoint("sink.staging")
    with pytest.raises(OSError, match=r"sink\.staged"):
        failpoint("sink.staged")
    failpoint("sink.staged")


def test_a_step_is_held_until_it_is_released(points: Points) -> None:
    points.arm("sink.published", "hold")
    waiting = threading.Thread(target=failpoint, args=("sink.published",))
    waiting.start()
    while not points.is_held("sink.published"):
        assert waiting.is_alive()
    points.clear()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_process_is_killed(points: Points) -> None:
    points.arm("sink.staging", "kill")
    code = "from bascule.failpoints import failpoint\nfailpoint('sink.staging')\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


@pytest.mark.parametrize("name", NAMES)
def test_every_point_is_in_the_code_once_or_more(name: str) -> None:
    assert any(f'failpoint("{name}")' in path.read_text() for path in SOURCES.rglob("*.py"))
