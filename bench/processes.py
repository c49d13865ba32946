"""Processes under test: started with free ports, watched through /proc, ended by their id."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_SECONDS = 30
TICK = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Watched:
    """A running process and its resource use."""

    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def peak_mib(self) -> float:
        """Largest resident size so far."""
        return self._status_mib("VmHWM:")

    def resident_mib(self) -> float:
        """Resident size now."""
        return self._status_mib("VmRSS:")

    def _status_mib(self, field: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> None:
        """Stop it and wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Broker(Watched):
    """`bascule serve --standalone`."""

    ready: dict[str, Any]

    @classmethod
    def start(
        cls, folder: Path, settings: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
    ) -> "Broker":
        """Start in `folder` with additional settings and variables, and wait until it is ready."""
        folder.mkdir(parents=True, exist_ok=True)
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [str(Path(sys.executable).with_name("bascule")), "serve", "--standalone", "--port", "0"]
        with (folder / "log").open("ab") as log:
            arguments = ["--data-dir", str(folder / "data"), "--ready-file", str(ready)]
            if settings:
                (folder / "broker.json").write_text(json.dumps(settings))
                arguments += ["--config", str(folder / "broker.json")]
            process = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=log, env=os.environ | dict(environment or {})
            )
        limit = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"the broker did not become ready: {folder / 'log'}")
            time.sleep(0.01)  # there is nothing else to wait on for a file
        return cls(process, json.loads(ready.read_text()))


@dataclass
class NatsServer(Watched):
    """The same nats-server binary with JetStream on files."""

    url: str

    @classmethod
    def start(cls, folder: Path, *, sync_always: bool) -> "NatsServer":
        """Start with JetStream at its default, or with `sync_interval: always`."""
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        sync = "sync_interval: always" if sync_always else ""
        config = folder / "nats.conf"
        config.write_text(f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{folder / "js"}"\n{sync} }}\n')
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("nats-server")), "-c", str(config)], stdout=log, stderr=log
            )
        limit = time.monotonic() + READY_SECONDS
        while time.monotonic() < limit:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return cls(process, f"nats://127.0.0.1:{port}")
            time.sleep(0.02)  # poll until it listens
        raise RuntimeError(f"nats-server did not start: {folder / 'log'}")
