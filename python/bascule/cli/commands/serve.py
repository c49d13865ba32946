"""`bascule serve`: settings from flags, environment and file, then a broker that runs until a signal."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bascule.cli.commands.config_file import resolved
from bascule.cli.options import ConfigFile, as_path

if TYPE_CHECKING:
    from bascule.config import Settings
    from bascule.server import Broker

__all__ = ["check_files", "run_broker", "serve", "warn_of_secrets", "write_ready_file"]

DataDirectory = Annotated[
    Path | None,
    typer.Option("--data-dir", "-d", parser=as_path, metavar="PATH", help="Directory of all durable data."),
]
Servers = Annotated[list[str] | None, typer.Option("--nats", help="URL of a NATS server; repeatable.")]
ReadyFile = Annotated[
    Path | None,
    typer.Option(
        "--ready-file", parser=as_path, metavar="PATH", help="Written when ready: JSON with addresses and process id."
    ),
]


def serve(
    *,
    standalone: Annotated[bool, typer.Option("--standalone", help="Also start and supervise a nats-server.")] = False,
    data_dir: DataDirectory = None,
    host: Annotated[str | None, typer.Option(help="Bind address.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Bind port; 0 = a free one.")] = None,
    nats: Servers = None,
    http: Annotated[
        str | None, typer.Option(help="Address of probes and metrics, host:port; off = none.", show_default=False)
    ] = None,
    config_file: ConfigFile = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, text or auto.")] = None,
    ready_file: ReadyFile = None,
) -> int:
    """Run a broker until SIGINT or SIGTERM. SIGHUP reloads the files of `tls` and `access` (certificates and policy);
    other settings take effect at the next start.

    Examples:
        bascule serve --standalone --data-dir ./data

        bascule serve --nats nats://10.0.0.5:4222 --host 0.0.0.0 --config broker.yaml
    """
    flags: dict[str, object] = {
        "nats.standalone": standalone or None,
        "nats.servers": nats or None,
        "http.listen": http,
        "data_dir": data_dir,
        "broker.host": host,
        "broker.port": port,
        "log.level": log_level,
        "log.format": log_format,
    }

    def read() -> "Settings":
        return resolved(config_file, flags).settings

    settings = read()
    warn_of_secrets(settings, "--nats", nats or ())
    return run_broker(settings, read, ready_file)


def run_broker(
    settings: "Settings",
    reload: Callable[[], "Settings"],
    ready_file: Path | None = None,
    wording: Callable[[str], str] | None = None,
    name: Callable[[str], str] = str,
) -> int:
    """Run a broker until a signal; returns the exit code. Addresses are shown when standard output is a terminal.

    Args:
        settings: the resolved settings.
        reload: reads the settings again, at SIGHUP.
        ready_file: written when the broker is ready; `None` = none.
        wording: converts each log message; `None` = messages stay unchanged.
        name: the name of a setting in its source; called after `reload`.

    Raises:
        BrokerError: it could not start.
    """
    from bascule import logs, server  # noqa: PLC0415 (only this command needs the broker's own code)

    logs.configure(settings.log.level, settings.log.format, wording)

    def on_ready(broker: "Broker") -> None:
        if ready_file is not None:
            write_ready_file(ready_file, broker)
        if sys.stdout.isatty():
            scheme = "liftbridge" if settings.tls.certificate_file is None else "bascules"
            sys.stdout.write("\n".join(_greeting(f"{scheme}://{broker.address}", broker)))
            sys.stdout.flush()

    return server.run(settings, on_ready, server.ConfigSource(reload, name))


def warn_of_secrets(settings: "Settings", flag: str, urls: Iterable[str]) -> None:
    """Log a warning if URLs given by a flag contain a password or a token."""
    from bascule import logs  # noqa: PLC0415 (as above)

    if any("@" in url for url in urls):
        logs.configure(settings.log.level, settings.log.format)
        sentence = (
            f"{flag} contains a password or a token, which every user of this machine can see in the process list:"
            " put it into a file that only the broker's user can read (nats.password_file, nats.token_file)"
        )
        logs.emit(30, "config", sentence)


def check_files(settings: "Settings") -> None:
    """Read and check the files that settings name, as at a start.

    Raises:
        UsageError: code `configuration_invalid`.
    """
    from bascule import server  # noqa: PLC0415 (as above)

    server.check_files(settings)


def _greeting(url: str, broker: "Broker") -> Sequence[str]:
    # as found by another terminal, which may have another environment
    program = "bascule" if shutil.which("bascule") else Path(sys.executable).with_name("bascule")
    http = [f"  Probes and metrics        http://{broker.http_address}/metrics"] if broker.http_address else []
    iggy = [f"  Iggy                      {broker.iggy_address}"] if broker.iggy_address else []
    iggy_http = [f"  Iggy over HTTP            {broker.iggy_http_address}"] if broker.iggy_http_address else []
    iggy_quic = [f"  Iggy over QUIC            {broker.iggy_quic_address}"] if broker.iggy_quic_address else []
    return (
        f"bascule is ready after {broker.ready_seconds:.2f} s; stop it with Ctrl-C",
        f"  Liftbridge, Arrow Flight  {broker.address}",
        f"  NATS                      {broker.nats_url}{f' ({broker.nats_problem})' if broker.nats_problem else ''}",
        *http,
        *iggy,
        *iggy_http,
        *iggy_quic,
        "",
        "Three commands to try in another terminal:",
        f"  {program} stream create hello --subject 'hello.>' --url {url}",
        f"  echo 'first light' | {program} produce hello --url {url}",
        f"  {program} consume hello --start earliest --count 1 --url {url}",
        "",
        "What any NATS client publishes on the subject is stored too, e.g. with the nats command:",
        f"  nats pub hello.world 'from NATS' --server {broker.nats_url}",
        "",
    )


def write_ready_file(file: Path, broker: "Broker") -> None:
    """Write the file atomically: readers never see a part of it."""
    document = {
        "address": broker.address,
        "nats_url": broker.nats_url,
        "http_address": broker.http_address,
        "iggy_address": broker.iggy_address,
        "iggy_http_address": broker.iggy_http_address,
        "iggy_quic_address": broker.iggy_quic_address,
        "pid": os.getpid(),
        "ready_seconds": round(broker.ready_seconds, 3),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as new:
        new.write(json.dumps(document) + "\n")
    Path(new.name).replace(file)
