"""A decoded command with what is known about its caller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from bascule.metadata import User
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["IggyHandler", "IggyRequest"]

CommandT = TypeVar("CommandT")


@dataclass(frozen=True, slots=True)
class IggyRequest(Generic[CommandT]):
    """One request.

    Attributes:
        command: what is asked.
        peer: `host:port` of the client.
        user: who has logged in, as it was when the request came; `None` before.
        timeout_s: how long the answer may take.
    """

    command: CommandT
    peer: str
    user: User | None
    timeout_s: float

    @property
    def caller(self) -> User:
        """Who has logged in.

        Raises:
            IggyError: 40.
        """
        if self.user is None:
            raise IggyError(IggyStatus.UNAUTHENTICATED, "nobody has logged in on the connection, or the user is gone")
        return self.user


IggyHandler: TypeAlias = Callable[[IggyRequest[Any]], Awaitable[bytes]]
"""Returns the payload of the reply."""
