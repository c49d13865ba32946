"""Commands about streams: namespaces here."""

from collections.abc import Callable
from typing import Final

from bascule.control import Controller
from bascule.metadata import (
    DEFAULT_NAMESPACE,
    MAX_NUMBERS,
    CreateNamespace,
    DeleteNamespace,
    RenameNamespace,
)
from bascule.protocols.iggy.commands import Create, Named, UpdateStream
from bascule.protocols.iggy.lookup import find_stream, streams_of, topics_of
from bascule.protocols.iggy.names import check_name, check_renames
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.showing import Showing
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["StreamCommands"]

MAX_STREAMS: Final = 10_000
"""Namespaces that clients may make; each is in the memory of every broker."""


class StreamCommands:
    """The handlers. `may_delete` says why a namespace may not be deleted: what it holds beside streams."""

    def __init__(self, controller: Controller, showing: Showing, may_delete: Callable[[str], str]) -> None:
        self._controller = controller
        self._showing = showing
        self._may_delete = may_delete

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "GET_STREAM": self.get,
            "GET_STREAMS": self.list,
            "CREATE_STREAM": self.create,
            "DELETE_STREAM": self.delete,
            "UPDATE_STREAM": self.update,
            "PURGE_STREAM": self.purge,
        }

    async def get(self, request: IggyRequest[Named]) -> bytes:
        """GET_STREAM; a stream that does not exist is an empty answer."""
        state = self._controller.state
        try:
            found = find_stream(state, request.command.path[0])
        except IggyError:
            return b""
        return self._showing.stream(state, found)

    async def list(self, _: IggyRequest[object]) -> bytes:
        """GET_STREAMS."""
        state = self._controller.state
        return b"".join(self._showing.streams(state, streams_of(state)))

    async def create(self, request: IggyRequest[Create]) -> bytes:
        """CREATE_STREAM."""
        asked = request.command
        check_name(asked.name, IggyStatus.INVALID_STREAM_NAME)
        if asked.number >= MAX_NUMBERS:
            text = f"number {asked.number} of a stream is not below {MAX_NUMBERS}"
            raise IggyError(IggyStatus.INVALID_STREAM_ID, text)
        if len(self._controller.state.namespaces) > MAX_STREAMS:
            raise IggyError(IggyStatus.ERROR, f"{MAX_STREAMS} streams exist: delete some")
        await self._controller.decide(
            lambda now_ns: CreateNamespace(asked.name, now_ns, asked.number or None), request.timeout_s
        )
        state = self._controller.state
        return self._showing.stream(state, find_stream(state, asked.name))

    async def delete(self, request: IggyRequest[Named]) -> bytes:
        """DELETE_STREAM, with all of its topics."""
        found = find_stream(self._controller.state, request.command.path[0])
        if found.name == DEFAULT_NAMESPACE:
            text = f"stream {DEFAULT_NAMESPACE} stays, it is the one of Liftbridge's streams: delete its topics"
            raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)
        if reason := self._may_delete(found.name):
            raise IggyError(IggyStatus.ERROR, reason)
        await self._controller.decide(lambda _: DeleteNamespace(found.name, found.id), request.timeout_s)
        return b""

    async def update(self, request: IggyRequest[UpdateStream]) -> bytes:
        """UPDATE_STREAM: another name; number, topics and their messages stay."""
        found, name = find_stream(self._controller.state, request.command.stream), request.command.name
        check_name(name, IggyStatus.INVALID_STREAM_NAME)
        if name != found.name:
            check_renames(self._controller)
            await self._controller.decide(lambda _: RenameNamespace(found.name, found.id, name), request.timeout_s)
        return b""

    async def purge(self, request: IggyRequest[Named]) -> bytes:
        """PURGE_STREAM: all topics, one after the other."""
        state = self._controller.state
        for topic in topics_of(state, find_stream(state, request.command.path[0])):
            await self._controller.purge_stream(
                topic.namespace, topic.name, now=False, dry_run=False, timeout_s=request.timeout_s
            )
        return b""
