"""The reference of the command line is what the commands say of themselves."""

import runpy

from tests.docs.snippets import ROOT


def test_the_page_is_fresh() -> None:
    generator = runpy.run_path(str(ROOT / "specs" / "generate_cli_page.py"))
    fresh = generator["page"]()
    assert generator["TARGET"].read_text() == fresh, "run python specs/generate_cli_page.py"
    assert fresh.count("\n## bascule ") >= 35
