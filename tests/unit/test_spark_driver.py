"""The socket on which planners ask for the zone of a session."""

import tempfile
from pathlib import Path

import pytest
from bascule.spark import zones


@pytest.mark.parametrize("length", [10, 150])
def test_planners_are_answered_whatever_the_length_of_tmpdir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, length: int
) -> None:
    folder = tmp_path / ("a" * length)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv(zones.VARIABLE, "")

    answering = zones.Answering()
    answering.zone = lambda: "Europe/Berlin"

    assert zones.ask() == "Europe/Berlin"
