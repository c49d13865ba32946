"""The guarantees page names, for each sentence, an existing test or rig."""

import re

import pytest

from tests.torture.scoreboard import REPOSITORY

PAGE = REPOSITORY / "docs" / "explanation" / "guarantees.md"
PROOFS = re.compile(r"`((?:tests|crates)/[\w/.-]+?\.(?:py|rs))(?:::(\w+))?`")
ROWS = re.compile(r"\b(?:S\d+|LB)(?:-[a-z]+)*\b")
QUOTED = re.compile(r"`[^`\n]*`")
ELLIPSES = ("…", "...")


def cut_short(text: str) -> list[str]:
    """Names of tests that are abbreviated, so that their existence cannot be checked."""
    named = [name for name in QUOTED.findall(text) if "::" in name or any(sign in name for sign in ELLIPSES)]
    return [name for name in named if not PROOFS.fullmatch(name)]


def rigs() -> set[str]:
    """Rows with a rig."""
    sources = REPOSITORY.glob("tests/torture/rig_*.py")
    return {row for path in sources for row in re.findall(r'^ROW = "(.+)"$', path.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("proof", sorted(set(PROOFS.findall(PAGE.read_text()))), ids="::".join)
def test_a_named_test_exists(proof: tuple[str, str]) -> None:
    path, name = proof
    assert (REPOSITORY / path).exists()
    assert not name or re.search(rf"\b(?:fn|def) {name}\b", (REPOSITORY / path).read_text())


def test_every_name_is_written_out() -> None:
    assert not cut_short(PAGE.read_text())


@pytest.mark.parametrize("name", ["`…::a_test`", "`tests/a.py::…`", "`.../a.rs::a_test`", "`a_module::a_test`"])
def test_a_name_that_is_cut_short_is_found(name: str) -> None:
    assert cut_short(f"| holds | `tests/a.py::test_a`, {name} |") == [name]


def test_a_named_row_has_a_rig() -> None:
    named = set(ROWS.findall(PAGE.read_text()))
    assert named
    assert named <= rigs(), f"no rig for {sorted(named - rigs())}"


def test_a_named_row_is_on_the_scoreboard() -> None:
    run = {path.stem for path in (REPOSITORY / "docs" / "reliability").glob("*.json")}
    named = set(ROWS.findall(PAGE.read_text()))
    assert named <= run, f"never run: {sorted(named - run)}"


def test_every_sentence_of_a_table_names_its_proof() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    bare = [row for row in rows if not row.endswith("Shown by |") and not PROOFS.search(row) and not ROWS.search(row)]
    assert not bare
