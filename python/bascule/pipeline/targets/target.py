"""What a target of a job is."""

from typing import TYPE_CHECKING, Protocol

from bascule.pipeline.dead_letters import Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["JobTarget"]


class JobTarget(Protocol):
    """Takes the rows of epochs. Used on the driver, from one thread."""

    @property
    def name(self) -> str:
        """Its name in the job."""
        ...

    @property
    def place(self) -> str:
        """What it is and where, for people."""
        ...

    def exists(self) -> bool:
        """Whether it is there; the first rows create it otherwise."""
        ...

    def check(self, schema: "StructType") -> None:
        """Refuse rows that it could never take, whether it is there or not.

        Raises:
            UsageError: of the column that does not fit.
            StateError: its place has something else.
        """
        ...

    def difference(self, schema: "StructType") -> str | None:
        """How the columns of rows differ from its own, as a clause; None = they fit, or it is not there yet.

        Raises:
            BrokerError: it cannot be read.
        """
        ...

    def rejects(self, schema: "StructType") -> str | None:
        """Why rows with these columns go to the dead letters instead; None = they are written.

        Raises:
            BrokerError: it cannot be read.
        """
        ...

    def write(self, frame: "DataFrame", origin: Origin) -> None:
        """Write the rows of one epoch. An epoch that the target has already is not written again.

        Raises:
            BrokerError: the columns of the rows do not fit; then nothing was written.
            Exception: of Spark, for refusals in tasks; then nothing was written, unless it says so.
        """
        ...
