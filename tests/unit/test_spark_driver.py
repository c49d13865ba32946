"""The socket on which planners ask the driver."""

import tempfile
from pathlib import Path

import pytest
from bascule.spark import driver


@pytest.mark.parametrize("length", [10, 150])
def test_planners_are_answered_whatever_the_length_of_tmpdir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, length: int
) -> None:
    folder = tmp_path / ("a" * length)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv(driver.VARIABLE, "")

    answering = driver.Answering()
    answering.answers["zone"] = lambda: "Europe/Berlin"

    assert driver.ask("zone") == "Europe/Berlin"
    assert driver.ask("weather") == ""
