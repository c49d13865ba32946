"""The broker of a command: `--url`, else `--context`, else `$BASCULE_URL`, else `$BASCULE_CONTEXT`, else the current
context, else the broker on this machine.
"""

import inspect
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Concatenate, Final, ParamSpec, TypeVar

import typer

from bascule.cli.contexts import Context, Contexts
from bascule.cli.interrupts import terminated_as_interrupted
from bascule.cli.parameters import bundled
from bascule.cli.slow_notice import SlowNotice
from bascule.client import Client
from bascule.client.tooling import addresses, connect_with_pool, connection_pool
from bascule.errors import UsageError

__all__ = ["DEFAULT_URL", "Connection", "connected"]

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL: Final = "liftbridge://127.0.0.1:9292"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        help="Broker: liftbridge://host:port[,host:port…], or bascules://…?ca=… with TLS. "
        f"[env: BASCULE_URL; default: {DEFAULT_URL}]",
    ),
]
ContextName = Annotated[
    str | None, typer.Option("--context", help="Named connection, see bascule context. [env: BASCULE_CONTEXT]")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        help="Seconds for a whole call, retries included. If given, the command also waits for a broker to start.",
    ),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """The broker of a command and how to connect to it."""

    url: str
    timeout: float
    context: str = ""
    """Name of its context; empty = none."""
    protected: bool = False
    """Whether destructive commands ask for the name of the object."""
    waits: bool = False
    """Whether to wait, up to `timeout`, for a broker that is not running yet."""

    @property
    def spark_address(self) -> str:
        """The option `address` of Spark's formats: the first broker of the URL."""
        scheme, separator, rest = self.url.rpartition("://")
        brokers, question, query = rest.partition("?")
        return f"{scheme}{separator}{brokers.split(',')[0]}{question}{query}"

    @contextmanager
    def open(self) -> Generator[Client]:
        """A connected client while the context lasts. SIGTERM ends it as Ctrl-C does.

        Raises:
            UsageError: code `invalid_argument`: the URL.
            UnavailableError: no broker answered in time, or none is running.
        """
        with terminated_as_interrupted():
            notice = SlowNotice(addresses(self.url), self.timeout)
            pool = connection_pool(self.url, name="bascule-cli", wait=self.waits, watched=notice.calling)
            with notice.connecting():
                client = connect_with_pool(pool, self.timeout)
            with client:
                yield client


def connected(
    timeout: float = 10.0,
) -> Callable[[Callable[Concatenate[Connection, P], R]], Callable[..., R]]:
    """A decorator: adds the options of a connection to a command, which gets the `Connection` as first argument.

    Args:
        timeout: seconds, if neither the option nor the context sets them.
    """

    def bundle(url: str | None, context: str | None, timeout_s: float | None) -> Connection:
        return choose(url, context, timeout_s, timeout)

    shared = {"url": Url, "context": ContextName, "timeout_s": Timeout}
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in shared.items()]
    return bundled(parameters, bundle)


def choose(url: str | None, context: str | None, timeout: float | None, default_timeout: float) -> Connection:
    """The connection by the options, the environment and the file of contexts.

    Raises:
        UsageError: code `invalid_argument`: a URL and a context; `configuration_invalid`: the file.
        StateError: code `not_found`: no such context.
    """
    if url is not None and context is not None:
        raise UsageError("invalid_argument", "--url and --context cannot be combined: name one broker")
    waits = timeout is not None
    if url is None and context is None:
        url = os.environ.get("BASCULE_URL") or None
    if url is not None:
        return Connection(url, timeout or default_timeout, waits=waits)
    contexts = Contexts.load()
    name = context or os.environ.get("BASCULE_CONTEXT") or contexts.current
    chosen = contexts.find(name) if name else Context(DEFAULT_URL)
    return Connection(chosen.url, timeout or chosen.timeout or default_timeout, name, chosen.protected, waits)
