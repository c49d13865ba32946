"""`bascule serve` that cannot start: one line with the reason, the value and the remedy, and the exit code."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from .mount import mounted
from .process import check_refusal, run, serving

SERVE = ("serve", "--standalone", "--port", "0", "--data-dir")


def refused(directory: Path | str, *more: str | Path) -> "subprocess.CompletedProcess[str]":
    """A `bascule serve` that ends by itself, whose last line is not a log record."""
    end = run(*SERVE, directory, *more)
    assert end.stderr.strip().splitlines()[-1].startswith("bascule: ")
    return end


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        end = run("serve", "--standalone", "--port", port, "--data-dir", tmp_path)
    check_refusal(end, 6, str(port), "in use", "another port")


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "not a host", ""])
def test_an_address_that_cannot_be_bound(tmp_path: Path, host: str) -> None:
    check_refusal(run(*SERVE, tmp_path, "--host", host), 2, host)


def test_a_second_broker_on_the_directory(tmp_path: Path) -> None:
    with serving(tmp_path / "first", "--standalone", "--port", "0", "--data-dir", tmp_path / "data") as first:
        first.wait_ready()
        check_refusal(refused(tmp_path / "data"), 6, str(tmp_path / "data"), str(first.process.pid), "a running broker")
        assert first.end() == 0


@pytest.mark.parametrize(
    ("change", "exit_code", "words"),
    [
        ({"format": 3}, 6, ("format 3", "newer")),
        ({"cluster_id": "elsewhere"}, 6, ("elsewhere", "another directory")),
        ({"format": "x"}, 1, ("bascule.json", "backup")),
        (None, 1, ("bascule.json", "backup")),
    ],
    ids=["newer", "other-cluster", "no-format", "garbage"],
)
def test_a_directory_that_is_not_ours(
    tmp_path: Path, change: dict[str, object] | None, exit_code: int, words: tuple[str, ...]
) -> None:
    with serving(tmp_path / "first", "--standalone", "--port", "0", "--data-dir", tmp_path / "data") as first:
        first.wait_ready()
        assert first.end() == 0
    manifest = tmp_path / "data" / "bascule.json"
    if change is None:
        manifest.write_bytes(b"\x00\xff garbage")
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    check_refusal(refused(tmp_path / "data"), exit_code, *words)


def test_a_directory_that_lost_its_identity_is_not_initialized_again(tmp_path: Path) -> None:
    with serving(tmp_path / "first", "--standalone", "--port", "0", "--data-dir", tmp_path / "data") as first:
        first.wait_ready()
        assert first.end() == 0
    manifest = tmp_path / "data" / "bascule.json"
    content = manifest.read_bytes()
    manifest.unlink()
    check_refusal(refused(tmp_path / "data"), 1, "bascule.json is missing", "Restore it", "broker_id", "Nothing was")
    assert not manifest.exists()
    manifest.write_bytes(content)
    with serving(tmp_path / "again", "--standalone", "--port", "0", "--data-dir", tmp_path / "data") as again:
        again.wait_ready()
        assert again.end() == 0


def test_a_directory_of_another_broker(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("broker: {broker_id: mine}")
    (tmp_path / "yours.yaml").write_text("broker: {broker_id: yours}")
    mine = ("--standalone", "--port", "0", "--data-dir", tmp_path / "data", "--config", tmp_path / "mine.yaml")
    with serving(tmp_path / "first", *mine) as first:
        first.wait_ready()
        assert first.end() == 0
    end = refused(tmp_path / "data", "--config", tmp_path / "yours.yaml")
    check_refusal(end, 6, "mine", "yours", "another directory")


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    check_refusal(refused(tmp_path / "file"), 1, str(tmp_path / "file"))
    check_refusal(refused(tmp_path / "file" / "below"), 1, str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("inside", ["partitions", "bascule.lock", "bascule.json", "nats"])
def test_a_wrong_file_type_in_the_directory(tmp_path: Path, inside: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if inside in {"partitions", "nats"}:
        (data / inside).write_text("x")
    else:
        (data / inside).mkdir()
    check_refusal(refused(data), 1, str(data))


def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "mount", "-o", "ro,size=1m"):
        check_refusal(refused(tmp_path / "mount" / "data"), 1, str(tmp_path / "mount"), "ead-only")


def test_a_file_system_without_space(tmp_path: Path) -> None:
    with mounted(tmp_path / "mount", "-o", "size=64k"):
        with pytest.raises(OSError, match="space"):
            (tmp_path / "mount" / "fill").write_bytes(b"x" * (1 << 20))
        end = refused(tmp_path / "mount" / "data")
        assert end.returncode in {1, 5}
        check_refusal(end, end.returncode, "pace")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokre:\n  port: 1\n", ("brokre", "broker")),
        ("broker:\n  prot: 1\n", ("broker.prot", "broker.port")),
        ("broker: [", ("YAML",)),
        ("- a\n- b\n", ("mapping",)),
        ("broker:\n  port: 70000\n", ("broker.port", "70000")),
        ("broker:\n  port: many\n", ("broker.port", "many")),
        ("streams:\n  segment_max_bytes: 5 parsecs\n", ("streams.segment_max_bytes", "5 parsecs")),
        ("streams:\n  durability: eternal\n", ("streams.durability", "eternal", "disk")),
        ("limits:\n  queue_records: -1\n", ("limits.queue_records", "-1")),
        ("limits: 5\n", ("limits",)),
        ("nats:\n  servers: []\n  standalone: false\n", ("nats.servers",)),
        ("nats:\n  password_file: /no/such/file\n", ("/no/such/file",)),
        ("\x00\x01", ("YAML",)),
        ("a: &a [*a]\n", ("a",)),
        ("broker: {port: 1, port: 2, <<: 3}\n", ()),
    ],
)
def test_an_invalid_configuration(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    port = () if "port" in text else ("--port", "0")
    check_refusal(run("serve", *port, "--data-dir", tmp_path / "data", "--config", file), 2, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "-1"], ("--port", "0")),
        (["--port", "65536"], ("--port", "65535")),
        (["--port", "http"], ("--port", "whole number")),
        (["--log-level", "loud"], ("log.level", "loud")),
        (["--log-format", "xml"], ("log.format", "xml")),
        (["--config", "/no/such/file.yaml"], ("/no/such/file.yaml",)),
        (["--nats", "ftp://x"], ("ftp://x",)),
        (["--nats", "not a url"], ("not a url",)),
        (["--nats", "nats://:4222"], ("nats://:4222", "nats://10")),
        (["--nats", "nats://host:99999"], ("nats://host:99999",)),
        (["--nats", ""], ("nats.servers",)),
        (["--data-dri", "x"], ("--data-dri",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_command_line(tmp_path: Path, arguments: list[str], words: tuple[str, ...]) -> None:
    port = () if "--port" in arguments else ("--port", "0")
    check_refusal(run("serve", *port, "--data-dir", tmp_path / "data", *arguments), 2, *words)


def test_a_password_in_a_wrong_url_is_not_shown(tmp_path: Path) -> None:
    end = run("serve", "--port", "0", "--data-dir", tmp_path / "data", "--nats", "http://me:geheim@host:4222")
    check_refusal(end, 2, "nats.servers")
    assert "geheim" not in end.stderr


def test_an_unknown_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from . import process  # noqa: PLC0415 (its environment is replaced)

    monkeypatch.setattr(process, "ENVIRONMENT", {**process.ENVIRONMENT, "BASCULE_BROKER__PROT": "1"})
    check_refusal(run(*SERVE, tmp_path), 2, "BASCULE_BROKER__PROT", "broker.port")


def test_a_ready_file_that_cannot_be_written_stops_the_broker(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    end = refused(tmp_path / "data", "--ready-file", tmp_path / "file" / "ready.json")
    check_refusal(end, 1, str(tmp_path / "file"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_client_command_prints_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """The command retries an address where nobody listens: a signal ends it at once."""
    from .process import command  # noqa: PLC0415

    process = subprocess.Popen(
        command("stream", "list", "--url", "liftbridge://127.0.0.1:1", "--timeout", "30"),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(number)
        _, said = process.communicate(timeout=5)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in {130, -number}
    assert "Traceback" not in said
