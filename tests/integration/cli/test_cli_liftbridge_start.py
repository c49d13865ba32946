"""A `liftbridge` command that cannot start: its advice names keys of its configuration file."""

import socket
from pathlib import Path

from tests.integration.cli.commands import Ended, run


def start(tmp_path: Path, text: str, *flags: str) -> Ended:
    """Run `liftbridge` until it ends."""
    file = tmp_path / "liftbridge.yaml"
    file.write_text(f"listen: 127.0.0.1:0\ndata.dir: {tmp_path}/data\n{text}")
    return run("-c", str(file), *flags, module="bascule.cli.liftbridge")


def test_a_taken_port_of_nats_is_to_be_changed_in_nats_servers(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        end = start(tmp_path, f"nats.servers: nats://127.0.0.1:{port}\n", "--embedded-nats")
    sentence = end.err.splitlines()[-1]
    assert end.code == 6
    assert sentence.startswith(f"liftbridge: port {port} for the nats-server is in use: ")
    assert "name another port in nats.servers" in sentence
    assert "nats.port" not in end.err


def test_external_servers_with_an_embedded_one_cause_a_warning(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        end = start(tmp_path, f"nats.servers: [nats://192.0.2.1:{port}, nats://me:geheim@192.0.2.2:{port}]\n", "-e")
    warnings = [line for line in end.err.splitlines() if "wins" in line]
    assert len(warnings) == 1, end.err
    assert f"nats.embedded is set and nats.servers names nats://192.0.2.1:{port}, " in warnings[0]
    assert "nats.embedded wins" in warnings[0]
    assert "geheim" not in end.err


def test_a_file_that_cannot_be_read_is_named_by_its_key(tmp_path: Path) -> None:
    end = start(tmp_path, f"nats: {{embedded: true, tls.ca: {tmp_path}/none.pem}}\n")
    assert end.code == 2
    assert f"cannot read nats.tls.ca {tmp_path}/none.pem" in end.err.splitlines()[-1]
