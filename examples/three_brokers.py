"""Three brokers, and three nats-servers in a NATS cluster, on this machine: `make cluster` runs them until Ctrl-C."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "demo-cluster"
NAMES: Final = ("b1", "b2", "b3")
READY_SECONDS: Final = 60
"""A broker waits for a majority, and its port for the process that had it before."""


@dataclass
class Member:
    """One broker with its nats-server."""

    folder: Path
    settings: Path
    port: int
    """For clients; the same after each start."""
    process: "subprocess.Popen[bytes] | None" = None
    ready: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it; does not wait."""
        self._ready_file.unlink(missing_ok=True)
        command = [str(Path(sys.executable).with_name("bascule")), "serve", "--config", str(self.settings)]
        command += ["--data-dir", str(self.folder / "data"), "--port", str(self.port)]
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--ready-file", str(self._ready_file)], stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it serves."""
        limit = time.monotonic() + READY_SECONDS
        while not self._ready_file.exists():
            if self.process is None or self.process.poll() is not None or time.monotonic() > limit:
                sys.exit(f"broker {self.folder.name} did not become ready: see {self.folder / 'broker.log'}")
            time.sleep(0.02)  # the file appears by itself; there is nothing to wait on
        self.ready = json.loads(self._ready_file.read_text())

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and wait for its end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=60)

    @property
    def _ready_file(self) -> Path:
        return self.folder / "ready.json"


class ThreeBrokers:
    """The brokers by name, in a new folder; `with ThreeBrokers(folder) as brokers: …` starts and stops them."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._running = ExitStack()
        client_ports, peer_ports, self._nats_ports, self._route_ports = (_free_ports(len(NAMES)) for _ in range(4))
        peers = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, peer_ports, strict=True)}
        self.members: dict[str, Member] = {}
        for name, port, nats_port in zip(NAMES, client_ports, self._nats_ports, strict=True):
            (folder / name).mkdir(parents=True)
            settings = {
                "broker": {"broker_id": name, "cluster_id": "three-brokers"},
                "cluster": {"peers": peers},
                "cursors": {"partitions": 1},
                "http": {"listen": "off"},
                "nats": {"servers": [f"nats://127.0.0.1:{nats_port}"]},
            }
            file = folder / name / "broker.yaml"
            file.write_text(json.dumps(settings, indent=2))  # JSON is YAML
            self.members[name] = Member(folder / name, file, port)

    def __enter__(self) -> Self:
        try:
            for member, port, route in zip(self.members.values(), self._nats_ports, self._route_ports, strict=True):
                self._start_nats(member.folder, port, route)
            for member in self.members.values():
                self._running.callback(member.end, signal.SIGTERM)
                member.launch()
            for member in self.members.values():
                member.wait()
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        """For the SDK and `bascule`: every broker, so that one of them may be away."""
        return "liftbridge://" + ",".join(member.address for member in self.members.values())

    @property
    def nats_urls(self) -> list[str]:
        """Of the nats-servers."""
        return [f"nats://127.0.0.1:{port}" for port in self._nats_ports]

    def _start_nats(self, folder: Path, port: int, route: int) -> None:
        from bascule.server.nats_binary import find_nats_server

        routes = ",".join(f"nats://127.0.0.1:{other}" for other in self._route_ports if other != route)
        command = [
            str(find_nats_server()),
            "--addr",
            "127.0.0.1",
            "--port",
            str(port),
            "--cluster_name",
            "three-brokers",
        ]
        command += ["--cluster", f"nats://127.0.0.1:{route}", "--routes", routes]
        with (folder / "nats.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._running.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(timeout=30)


def _free_ports(count: int) -> list[int]:
    """Free ports; all are taken at once, so that they differ."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def main() -> None:
    """Run them until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreeBrokers(FOLDER) as brokers:
        for name, member in brokers.members.items():
            print(f"{name}: {member.address}, data in {member.folder / 'data'}")
        print(f"NATS: {', '.join(brokers.nats_urls)}")
        print(f"try: bascule cluster status --url {brokers.url}")
        print("Ctrl-C stops them", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
