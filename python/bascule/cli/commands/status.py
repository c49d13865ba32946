"""`bascule status`: health of a broker."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output
from bascule.cli.render.output import OutputFormat, render
from bascule.client import BrokerDetails, Check

__all__ = ["StatusView", "status"]

NOT_READY = 1
"""Exit code when a check has failed."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """The result of `status`."""

    state: str
    """`ready`, `ready, with warnings`, or `not ready`."""
    broker: str
    address: str
    version: str
    started: str
    streams: int | None
    partitions: int | None
    connections: int | None
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, broker: BrokerDetails) -> Self:
        """The view of a broker's own report."""
        counted = broker.statistics
        started = datetime.fromtimestamp(counted.get("process_start_nanos", 0) / 1e9, UTC)
        return cls(
            state=_state({check.outcome for check in broker.checks}),
            broker=broker.id,
            address=f"{broker.host}:{broker.port}",
            version=broker.version,
            started=started.isoformat(timespec="seconds"),
            streams=counted.get("streams"),
            partitions=counted.get("partitions"),
            connections=counted.get("connections_open"),
            checks=broker.checks,
        )


def _state(outcomes: set[str]) -> str:
    if "failed" in outcomes:
        return "not ready"
    return "ready, with warnings" if "warning" in outcomes else "ready"


@connected()
def status(connection: Connection, output: Output = OutputFormat.TABLE) -> int:
    """Show the health of a broker: one line for each check, with the reason. Exits with 1 if a check has failed.

    Examples:
        bascule status

        bascule status --output json
    """
    with connection.open() as client:
        view = StatusView.of(client.describe_broker())
    render(view if output in {OutputFormat.JSON, OutputFormat.YAML, OutputFormat.TABLE} else view.checks, output)
    return NOT_READY if view.state == "not ready" else 0
