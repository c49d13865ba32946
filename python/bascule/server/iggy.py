"""The listener for Iggy's clients, and the account that it begins with."""

import sys
from collections.abc import Callable
from pathlib import Path

from bascule._text import host_port
from bascule.config import Settings, is_loopback
from bascule.engine import Engine
from bascule.errors import error
from bascule.logs import emit
from bascule.protocols.iggy import MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, ROOT, IggyAdmin

__all__ = ["print_password", "root_password", "serve", "serve_http", "serve_quic"]

DEFAULT_PASSWORD = "iggy"  # noqa: S105 - what everybody knows is refused where others could connect
ROOT_S = 30.0


def root_password(settings: Settings) -> str | None:
    """The configured password of the first user; `None` = one is to be generated. Blocks.

    Raises:
        UsageError: `configuration_invalid`: the file cannot be read, or holds a password that may not be used.
    """
    file = settings.iggy.root_password_file
    if file is None or settings.iggy.address is None:
        return None
    password = _read(file)
    if not MIN_PASSWORD_BYTES <= len(password.encode()) <= MAX_PASSWORD_BYTES:
        text = (
            f"iggy.root_password_file {file} has a password of {len(password.encode())} bytes: write one of"
            f" {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES}"
        )
        raise error("configuration_invalid", text, {"file": str(file)})
    far = _open_to_others(settings)
    if password == DEFAULT_PASSWORD and far and not settings.iggy.allow_default_password:
        text = (
            f"iggy.root_password_file {file} has the password that everybody knows, and {far}, where other machines can"
            " connect: choose another one, or set iggy.allow_default_password"
        )
        raise error("configuration_invalid", text, {"file": str(file)})
    return password


def _open_to_others(settings: Settings) -> str:
    """The first listener that other machines can connect to, with its address; empty = none."""
    iggy = settings.iggy
    listeners = {
        f"iggy.listen is {iggy.listen}": iggy.address,
        f"iggy.http_listen is {iggy.http_listen}": iggy.http_address,
        f"iggy.quic_listen is {iggy.quic_listen}": iggy.quic_address,
    }
    far = (text for text, address in listeners.items() if address is not None and not is_loopback(address[0]))
    return next(far, "")


def _read(file: Path) -> str:
    try:
        return file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as failure:
        text = f"iggy.root_password_file {file} cannot be read: {failure}"
        raise error("configuration_invalid", text, {"file": str(file)}) from failure


def print_password(password: str) -> None:
    """Show a generated password: once, on standard output, never in a log."""
    sys.stdout.write(f"The user {ROOT} of Iggy's clients has the password {password}\nIt is not shown again.\n")
    sys.stdout.flush()


async def serve(
    settings: Settings, engine: Engine, admin: IggyAdmin, password: str | None, show: Callable[[str], None]
) -> str:
    """Make the first user, then listen; returns `host:port`, empty = no listener.

    Raises:
        StateError: `address_in_use`.
        UsageError: `address_unusable`.
        BrokerError: the user could not be stored.
    """
    address = settings.iggy.address
    if address is None:
        return ""
    await admin.logins.make_root(password, show, ROOT_S)
    host, port = address
    port = engine.serve_iggy(host, port)
    admin.system.address = (host, port)
    _warn_of_plain_text(settings, host, settings.iggy.listen)
    shown = host_port(host, port)
    emit(20, "iggy", "Iggy's clients are served", address=shown)
    return shown


def serve_http(settings: Settings, engine: Engine) -> str:
    """Listen for clients that speak HTTP; returns `host:port`, empty = no listener. After `serve`. Blocks.

    Raises:
        StateError: `address_in_use`.
        UsageError: `address_unusable`.
    """
    address = settings.iggy.http_address
    if address is None:
        return ""
    host, port = address
    given = settings.iggy
    http = {"max_request_bytes": given.http_max_request_bytes, "cors_origins": list(given.http_cors_origins)}
    port = engine.serve_iggy_http(host, port, http)
    _warn_of_plain_text(settings, host, given.http_listen)
    shown = host_port(host, port)
    emit(20, "iggy", "Iggy's clients are served over HTTP", address=shown)
    return shown


def serve_quic(settings: Settings, engine: Engine, admin: IggyAdmin) -> str:
    """Listen for clients that speak QUIC; returns `host:port`, empty = no listener. After `serve`. Blocks.

    Raises:
        StateError: `address_in_use`.
        UsageError: `address_unusable`.
    """
    address = settings.iggy.quic_address
    if address is None:
        return ""
    host, port = address
    port = engine.serve_iggy_quic(host, port)
    admin.system.quic_address = (host, port)
    if settings.tls.certificate_file is None and not is_loopback(host):
        text = (
            "Iggy's clients over QUIC cannot verify the broker, and other machines can connect: set"
            " tls.certificate_file, and have the clients verify it"
        )
        emit(30, "iggy", text, listen=settings.iggy.quic_listen)
    shown = host_port(host, port)
    emit(20, "iggy", "Iggy's clients are served over QUIC", address=shown)
    return shown


def _warn_of_plain_text(settings: Settings, host: str, listen: str) -> None:
    if settings.tls.certificate_file is None and not is_loopback(host):
        text = "Iggy's clients send passwords in plain text, and other machines can connect: set tls.certificate_file"
        emit(30, "iggy", text, listen=listen)
