"""Finding the nats-server: the installed package first, then the path."""

import shutil
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from bascule.errors import StateError
from bascule.server.nats_binary import NAME, PACKAGE, find_nats_server


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a nats-server: neither the package, nor a script, nor one on the path."""

    def missing(name: str) -> list[metadata.PackagePath]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "scripts"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def binary(folder: Path, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / NAME
    file.write_text("#!/bin/sh\n")
    file.chmod(mode)
    return file


def test_without_one_the_error_names_both_remedies(nowhere: Path) -> None:
    with pytest.raises(StateError, match=PACKAGE) as raised:
        find_nats_server()
    assert raised.value.code == "nats_server_missing"
    assert "nats.servers" in str(raised.value)
    assert not list(nowhere.iterdir())


def test_a_script_of_this_python_is_preferred_to_the_path(nowhere: Path) -> None:
    on_path = binary(nowhere / "bin")
    assert find_nats_server() == on_path
    script = binary(nowhere / "scripts")
    assert find_nats_server() == script


def test_a_file_that_cannot_be_executed_is_skipped(nowhere: Path) -> None:
    binary(nowhere / "scripts", mode=0o644)
    on_path = binary(nowhere / "bin")
    assert shutil.which(NAME) == str(on_path)
    assert find_nats_server() == on_path
