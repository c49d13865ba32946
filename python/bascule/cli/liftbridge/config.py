"""Translates a Liftbridge configuration (file, `LIFTBRIDGE_…` variables, flags) into settings of Bascule.

Precedence: flag, environment, file, default. Keys are case-insensitive; dots and nesting are the same at every level;
unknown keys are fatal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from bascule import config
from bascule.cli.liftbridge.key_names import reworded
from bascule.cli.liftbridge.keys import KEYS, flattened
from bascule.cli.liftbridge.security import security
from bascule.cli.liftbridge.values import Address
from bascule.config import Layer, Settings
from bascule.errors import UsageError

__all__ = ["Translated", "translate"]

PREFIX: Final = "LIFTBRIDGE_"
NOT_KEYS: Final = frozenset({"LIFTBRIDGE_ENCRYPTION_KEY"})
SERVICE: Final = "tcp://"
"""Start of the value that Kubernetes sets as LIFTBRIDGE_PORT in pods beside a service named `liftbridge`."""
DEFAULT_PORT: Final = 9292
NATS_PORT: Final = 4222
EVERY_INTERFACE: Final = "0.0.0.0"  # noqa: S104 (the default of Liftbridge)
FILE, ENVIRONMENT, FLAG = range(3)
"""Sources of values; a higher one wins."""


@dataclass(frozen=True, slots=True)
class Translated:
    """The settings of Bascule, with remarks for the user.

    Attributes:
        settings: all settings, resolved.
        origins: dotted Bascule key to the origin of its value, for values that are not the default.
        notes: one sentence for each key that was accepted and has no effect.
        overruled: one sentence for each key that has no effect because another key contradicts it.
    """

    settings: Settings
    origins: Mapping[str, str]
    notes: Sequence[str]
    overruled: Sequence[str]


@dataclass(slots=True)
class _Given:
    """Parsed values by Liftbridge key, with the origin of each: as text, and as source."""

    values: dict[str, object] = field(default_factory=dict[str, object])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    sources: dict[str, int] = field(default_factory=dict[str, int])
    notes: list[str] = field(default_factory=list[str])


def translate(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Translated:
    """Translate and resolve a configuration.

    Args:
        file: a Liftbridge configuration; `None` = none.
        environment: variables of the process.
        flags: Liftbridge keys to values.

    Raises:
        UsageError: code `configuration_invalid`; names the key, the value and its origin.
    """
    given = _Given()
    if file is not None:
        _take(given, flattened(_read(file)), str(file), FILE)
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in NOT_KEYS:
            key = name.removeprefix(PREFIX).lower().replace("_", ".")
            if key == "port" and value.startswith(SERVICE):
                given.notes.append(
                    f"environment variable {name}={value} belongs to a Kubernetes service and was ignored"
                )
            elif key in KEYS and value:  # an empty variable counts as not set, as in Liftbridge
                _take(given, [(key, value)], f"environment variable {name}", ENVIRONMENT)
            elif key in KEYS:
                continue
            else:
                given.notes.append(f"environment variable {name} is not a known setting and was ignored")
    _take(given, list(flags.items()), "flag", FLAG)
    overruled = list(_resolve_embedded(given))
    given.notes.extend(_unreachable(given))
    layers = [
        Layer("Liftbridge default", _defaults(given)),
        *_nats(given),
        *_settings(given),
        *security(given.values, given.origins, given.notes),
        *_addresses(given),
    ]
    try:
        resolved = config.combine(layers)
    except UsageError as failure:
        raise reworded(failure) from failure
    return Translated(resolved.settings, resolved.origins, given.notes, overruled)


def _read(file: Path) -> dict[str, object]:
    try:
        # Values stay unparsed, because each key has its own parser: `yes` may be a password.
        return config.read_yaml(file, as_written=True)
    except UsageError as failure:
        message = f"Failed to load configuration file: {failure}"
        raise UsageError("configuration_invalid", message, failure.details) from None


def _take(given: _Given, items: Iterable[tuple[str, object]], origin: str, source: int) -> None:
    for key, value in items:
        known = KEYS.get(key)
        if known is not None and value is None:  # `key:` without a value
            continue
        if known is None:
            message = f'Unknown configuration setting "{key}" ({origin}){config.nearest(key, list(KEYS))}'
            raise UsageError("configuration_invalid", message, {"key": key})
        if source == FILE and given.sources.get(key) == FILE:
            message = f'Configuration setting "{key}" is given twice ({origin}): keep one of them'
            raise UsageError("configuration_invalid", message, {"key": key})
        try:
            parsed = known.parse(value)
        except ValueError as wrong:
            shown = "…" if key == "nats.password" else value
            message = f'Invalid {key} setting "{shown}" ({origin}): {wrong}'
            raise UsageError("configuration_invalid", message, {"key": key}) from None
        if known.reason and parsed not in known.same:
            raise UsageError("configuration_invalid", f"{key} ({origin}) is rejected: {known.reason}", {"key": key})
        if known.idle:
            given.notes.append(f"{key} ({origin}) has no effect: {known.idle}")
        given.values[key] = parsed
        given.origins[key] = origin
        given.sources[key] = source


def _settings(given: _Given) -> Iterator[Layer]:
    for key, value in given.values.items():
        known = KEYS[key]
        if known.setting and not known.joint:
            yield Layer(f"{key}, {given.origins[key]}", {known.setting: value})
    if "nats.embedded.config" in given.values:
        yield Layer(f"nats.embedded.config, {given.origins['nats.embedded.config']}", {"nats.standalone": True})


def _nats(given: _Given) -> Iterator[Layer]:
    """Where the embedded server listens: as in its own file, else on loopback, at the port to connect to."""
    values = given.values
    if "nats.tls.cert" in values and "nats.tls.key" in values:
        yield Layer(f"nats.tls.cert, {given.origins['nats.tls.cert']}", {"nats.tls.required": True})
    if not values.get("nats.embedded") or "nats.embedded.config" in values:
        return
    if "nats.servers" not in values:
        yield Layer(f"nats.embedded, {given.origins['nats.embedded']}", {"nats.first_port": NATS_PORT})
        return
    first = cast("tuple[str, ...]", values["nats.servers"])[0]
    try:
        url = urlsplit(first if "://" in first else f"nats://{first}")
        port = url.port
    except ValueError:
        return  # reported by the check of nats.servers
    origin = f"nats.servers, {given.origins['nats.servers']}"
    yield Layer(origin, {"nats.port": port or NATS_PORT})


def _resolve_embedded(given: _Given) -> Iterator[str]:
    """Resolve a contradiction between the switch and the configuration of the embedded server: the higher source wins;
    within one source, the configuration. Yields a sentence about the overruled key.
    """
    switch, config_key = "nats.embedded", "nats.embedded.config"
    if given.values.get(switch) is not False or config_key not in given.values:
        return
    switched = f"{switch} ({given.origins[switch]}) is false"
    configured = f"{config_key} ({given.origins[config_key]})"
    if given.sources[switch] > given.sources[config_key]:
        del given.values[config_key]
        yield f"{configured} has no effect: {switched} and wins, no nats-server is started"
    else:
        yield f"{switched} and has no effect: {configured} wins, which starts a nats-server"


def _defaults(given: _Given) -> dict[str, object]:
    namespace = given.values.get("clustering.namespace", config.BrokerSettings().namespace)
    return {
        "data_dir": f"/tmp/liftbridge/{namespace}",  # noqa: S108 (the default of Liftbridge)
        "http.listen": "off",  # Liftbridge has no such port
        "streams.retention_min_age_ms": 0,  # retention limits also apply to new records, as in Liftbridge
    }


def _unreachable(given: _Given) -> Iterator[str]:
    """A warning: `host` without `port` advertises the default port, where the broker may not listen."""
    listen, host = cast("Address | None", given.values.get("listen")), given.values.get("host")
    if listen and host and "port" not in given.values and listen.port != DEFAULT_PORT:
        yield (
            f"host ({given.origins['host']}) without port: clients are given the address {host}:{DEFAULT_PORT}, and the"
            f" broker listens on port {listen.port} (listen, {given.origins['listen']}); set port to {listen.port},"
            f" unless something forwards port {DEFAULT_PORT} to it"
        )


def _addresses(given: _Given) -> Iterator[Layer]:
    """Bind: `listen`, else `host`:`port`, else every interface. Advertised: `host`:`port`, else `listen`, else
    localhost; an advertised port of 0 becomes the bound one.
    """
    listen = cast("Address | None", given.values.get("listen"))
    host = cast("str | None", given.values.get("host"))
    port = cast("int", given.values.get("port", DEFAULT_PORT))
    bind = listen or Address(host or EVERY_INTERFACE, port)
    shown = Address(host, port) if host else listen or Address("localhost", port)
    of_host, of_port = "host" if host else "", "port"
    of_bind = ("listen", "listen") if listen else (of_host, of_port)
    of_shown = of_bind if listen and not host else (of_host, of_port)
    for setting, value, key in (
        ("broker.host", bind.host, of_bind[0]),
        ("broker.port", bind.port, of_bind[1]),
        ("broker.advertised_host", shown.host, of_shown[0]),
        ("broker.advertised_port", shown.port, of_shown[1]),
    ):
        origin = f"{key}, {given.origins[key]}" if key in given.origins else "Liftbridge default"
        yield Layer(origin, {setting: value})
