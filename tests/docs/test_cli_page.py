"""The reference of the command line equals the help of the commands."""

import runpy

from tests.docs.snippets import ROOT


def test_the_page_is_up_to_date() -> None:
    generator = runpy.run_path(str(ROOT / "specs" / "generate_cli_page.py"))
    fresh = generator["page"]()
    assert generator["TARGET"].read_text() == fresh, "run python specs/generate_cli_page.py"
    assert fresh.count("\n## bascule ") >= 35
