"""`bascule cluster status`: the brokers of a cluster, and who decides for them."""

from dataclasses import dataclass
from typing import Final, Self

from bascule.cli.command_group import Commands
from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output
from bascule.cli.render.output import OutputFormat, render
from bascule.client import ClusterBroker, ClusterStatus

__all__ = ["app"]

app: Final = Commands(help="Show the brokers of a cluster.")

WITHOUT_CONTROLLER: Final = 1
"""Exit code when the broker that answers knows no controller."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker of the cluster."""

    broker: str
    state: str
    """`live`, `starting`, `fenced` or `joining`."""
    fenced_since: str
    """Empty = it is not fenced."""
    address: str
    peer_address: str
    boot_epoch: int
    problem: str
    """Why the broker that answers has no connection to it."""

    @classmethod
    def of(cls, found: ClusterBroker) -> Self:
        """The row of a broker."""
        since = found.fenced.isoformat(timespec="milliseconds") if found.fenced else ""
        return cls(
            found.id, found.state, since, found.address, found.peer_address, found.boot_epoch, problem=found.problem
        )


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The result of `cluster status`."""

    cluster: str
    """Its id; empty = a broker alone."""
    answered_by: str
    controller: str
    """Empty = none is known: nothing can be created or changed."""
    term: int
    index: int
    """The last entry of the metadata that the broker has applied."""
    brokers: tuple[BrokerRow, ...]

    @classmethod
    def of(cls, found: ClusterStatus) -> Self:
        """The view of a broker's answer."""
        rows = tuple(map(BrokerRow.of, found.brokers))
        return cls(found.cluster_id, found.broker, found.controller, found.term, found.index, rows)


@app.command()
@connected()
def status(connection: Connection, output: Output = OutputFormat.TABLE) -> int:
    """Show the brokers of the cluster, as the broker knows that answers: who is the controller, who is live, and who is
    fenced since when. Exits with 1 if it knows no controller.

    Examples:
        bascule cluster status

        bascule cluster status --output json
    """
    with connection.open() as client:
        view = ClusterView.of(client.describe_cluster())
    whole = output in {OutputFormat.JSON, OutputFormat.YAML, OutputFormat.TABLE}
    render(view if whole else list(view.brokers), output)
    return 0 if view.controller else WITHOUT_CONTROLLER
