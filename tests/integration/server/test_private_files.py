"""Only the broker's user may read its files: files have mode 0600, directories 0700."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from bascule.testing import broker


@pytest.fixture
def open_umask() -> Generator[None]:
    """A umask of 0, so that only the broker itself restricts its files."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(data: Path) -> dict[str, int]:
    """Mode by path of the directory and its content, without sockets."""
    everything = [data, *data.rglob("*")]
    return {str(path.relative_to(data)): path.stat().st_mode & 0o777 for path in everything if path.exists()}


def too_open(data: Path) -> dict[str, str]:
    return {
        name: f"{mode:03o}"
        for name, mode in modes(data).items()
        if mode != (0o700 if (data / name).is_dir() else 0o600)
    }


@pytest.mark.usefixtures("open_umask")
def test_only_the_brokers_user_can_access_its_files(tmp_path: Path) -> None:
    with broker(durability="disk", directory=tmp_path, settings={"streams.segment_max_bytes": 100_000}) as started:
        with started.connect() as client:
            for number in range(8):
                client.create_stream(f"s{number}")
                for _ in range(3):
                    client.publish_many(f"s{number}", [b"x" * 1000] * 100)
            client.trim_partition("s0", 0, 200)
            client.purge_stream("s1")
        data = tmp_path / "data"
        names = modes(data)
        assert {"bascule.json", "bascule.lock", "partitions", "metadata", "created", "nats"} <= names.keys()
        assert any(name.endswith(".idx") for name in names)
        assert any(".deleted-" in name for name in names)
        assert too_open(data) == {}
        started.restart()
        assert too_open(data) == {}


@pytest.mark.usefixtures("open_umask")
def test_a_directory_of_an_earlier_version_is_restricted_and_this_is_logged(tmp_path: Path) -> None:
    with broker(durability="disk", directory=tmp_path) as started, started.connect() as client:
        client.create_stream("s")
        client.publish("s", b"x")
    data = tmp_path / "data"
    data.chmod(0o755)
    (data / "partitions").chmod(0o777)
    with broker(durability="disk", directory=tmp_path) as started:
        with started.connect() as client:
            assert client.publish("s", b"y").offset == 1
        assert f"{data} could be used by other users of this machine (mode 0755)" in started.log
        assert f"{data}/partitions could be used by other users of this machine (mode 0777)" in started.log
    assert modes(data)["."] == modes(data)["partitions"] == 0o700
