"""No telemetry: checks all sockets of a broker and of its nats-server from start to end."""

import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.conformance.api import LEADER, Api
from tests.conformance.samples import LISTEN, liftbridge
from tests.integration.server.process import free_port
from tests.waiting import until

TABLES: Final = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6")
LISTENS: Final = "0A"
PROC: Final = Path("/proc")


class End(NamedTuple):
    host: IPv4Address | IPv6Address
    port: int


class Seen(NamedTuple):
    """A socket, as in /proc."""

    kind: str
    here: End
    there: End
    state: str


def end_of(text: str) -> End:
    """One end, from hexadecimal: words of four bytes, each with its last byte first."""
    host, port = text.split(":")
    address = ip_address(b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)))
    return End(getattr(address, "ipv4_mapped", None) or address, int(port, 16))


def sockets_of(pid: int) -> set[Seen]:
    """The Internet sockets that a process has open; none when it has ended."""
    inodes = set[str]()
    found = set[Seen]()
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                    inodes.add(match[1])
        for kind in TABLES:
            table = PROC / str(pid) / "net" / kind
            rows = (line.split() for line in table.read_text().splitlines()[1:]) if table.exists() else ()
            found |= {Seen(kind, end_of(row[1]), end_of(row[2]), row[3]) for row in rows if row[9] in inodes}
    return found


def family(mark: str) -> set[int]:
    """The processes that have `mark` in their command line, and all that descend from them."""
    parents = dict[int, int]()
    members = set[int]()
    for place in PROC.glob("[0-9]*"):
        with suppress(OSError):
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if mark.encode() in (place / "cmdline").read_bytes():
                members.add(int(place.name))
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


class Watch:
    """Polls the sockets of a process family while the context lasts."""

    def __init__(self, mark: str) -> None:
        self.seen: set[Seen] = set()
        self._mark = mark
        self._done = threading.Event()
        self._looking = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._done.wait(0.01):
            self.seen |= {found for pid in family(self._mark) for found in sockets_of(pid)}


def purpose(seen: Seen, served: int, nats: int) -> str:
    """The purpose of a socket of a broker on port `served`, or of its nats-server on port `nats`; empty = unknown."""
    if seen.kind not in {"tcp", "tcp6"} or not seen.here.host.is_loopback:
        return ""
    if seen.state == LISTENS:
        return {served: "listener", nats: "listener of nats"}.get(seen.here.port, "")
    if not seen.there.host.is_loopback:
        return ""
    if seen.there.port == nats:
        return "to nats"
    return {served: "client", nats: "client of nats"}.get(seen.here.port, "")


def test_a_broker_has_no_sockets_but_its_listeners_its_clients_and_those_to_nats(tmp_path: Path) -> None:
    nats = free_port()
    text = (
        f"{LISTEN}nats: {{embedded: true, servers: ['nats://127.0.0.1:{nats}']}}\n"
        "telemetry: {enabled: true, interval.seconds: 1}\n"
        "activity.stream.enabled: true\ncursors.stream.partitions: 1\n"
    )
    with (
        Watch(str(tmp_path)) as watch,
        liftbridge(tmp_path, text) as broker,
        Api(broker.address) as api,
    ):
        served = int(broker.address.rpartition(":")[2])
        api.create("s")
        assert api.publish("s", b"x") == 0
        assert api.call("PublishToSubject", subject="s", value=b"y", ackPolicy=LEADER).ack.offset == 1
        api.call("SetCursor", stream="s", cursorId="c", offset=1)
        time.sleep(3.5)  # more than three times the telemetry interval in the file
    strange = [seen for seen in watch.seen if not purpose(seen, served, nats)]
    assert not strange
    shown = {purpose(seen, served, nats) for seen in watch.seen}
    assert shown == {"listener", "listener of nats", "client", "to nats", "client of nats"}


ELSEWHERE: Final = """
import socket, subprocess, sys
if len(sys.argv) > 2:
    subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]])
else:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect(("127.0.0.1", 9))
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(1)
"""
"""A process that starts another one with a TCP connection and a UDP socket, until the other side closes."""


def test_a_socket_of_a_child_to_another_host_is_detected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(30)
        port = elsewhere.getsockname()[1]
        command = [sys.executable, "-c", ELSEWHERE, str(port), ELSEWHERE, str(tmp_path)]
        with (
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
            Watch(str(tmp_path)) as watch,
        ):
            connection, _ = elsewhere.accept()
            with connection:
                until(lambda: {seen.kind for seen in watch.seen if not purpose(seen, 1, 2)} == {"tcp", "udp"})
    assert {seen.there.port for seen in watch.seen} == {port, 9}
