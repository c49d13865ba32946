"""The methods about sinks: of those who write, and of administrators."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from bascule._admin_pb import message
from bascule.control.sinks import Sinks
from bascule.control.specs import INTERNAL_STREAMS
from bascule.engine import id_flaw
from bascule.errors import AccessError
from bascule.metadata import DEFAULT_NAMESPACE, Stream, StreamKey
from bascule.metadata.apply_sinks import owner_sentence
from bascule.metadata.json_codec import to_plain
from bascule.metadata.rejection import RejectionCode, rejected
from bascule.metadata.sink_commands import OpenSink, PublishSink
from bascule.metadata.sinks import MAX_TARGETS, MAX_TASKS, Attempt, Sink, TargetPartition, TargetStream, pack_winners
from bascule.protocols.admin.requests import MethodHandler, with_sentences
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES
from bascule.protocols.router import AdminRequest

MAX_STREAMS: Final = 1000
MAX_NAMES: Final = 1000
MAX_TIMEOUT_MS: Final = 600_000
ANSWER_S: Final = 2.0
"""The broker answers so long before the caller's deadline."""

_KINDS: Final = ("stream", "foreach", "batch")
_LIFETIMES: Final = ("kept", "month", "hour")

_SinkMessage = message("Sink")
_SinkPartition = message("SinkPartition")
_SinkStream = message("SinkStream")
_SinkSkip = message("SinkSkip")


class SinkMethods:
    """The handlers."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {
            "OpenSink": with_sentences(self.open_sink),
            "PublishSink": with_sentences(self.publish_sink),
            "AbortSink": with_sentences(self.abort_sink),
            "RenewSink": with_sentences(self.renew_sink),
            "FetchSinkStreams": with_sentences(self.fetch_sink_streams),
            "FetchSinks": with_sentences(self.fetch_sinks),
            "DeleteSink": with_sentences(self.delete_sink),
            "SkipSink": with_sentences(self.skip_sink),
            "SetSinkQuota": with_sentences(self.set_sink_quota),
            "SetSinkOwner": with_sentences(self.set_sink_owner),
        }

    async def open_sink(self, asked: Any, request: AdminRequest) -> Any:
        """OpenSink."""
        namespace = asked.namespace or DEFAULT_NAMESPACE
        _check_name(asked.name)
        check_count("streams", len(asked.streams), MAX_STREAMS, "name fewer streams at once")
        if asked.kind not in _KINDS or asked.lifetime not in _LIFETIMES:
            text = f"kind {asked.kind!r} is not one of {', '.join(_KINDS)}, or lifetime {asked.lifetime!r} not one of "
            raise _invalid(text + ", ".join(_LIFETIMES))
        streams = [self._stream(namespace, name) for name in dict.fromkeys(asked.streams)]
        command = OpenSink(
            namespace=namespace,
            name=asked.name,
            owner=request.client or "",
            kind=asked.kind,
            lifetime=asked.lifetime,
            query_id=_uuid("query_id", asked.query_id, needed=asked.kind != "batch"),
            run_id=_uuid("run_id", asked.run_id, needed=True),
            take_over=_uuid("take_over", asked.take_over, needed=False),
        )
        sink = await self._sinks.open(command, request.timeout_s)
        return message("OpenSinkResponse")(
            id=sink.id,
            generation=sink.generation,
            last_epoch=sink.last_epoch,
            streams=[self._shown_stream(stream) for stream in streams],
        )

    async def publish_sink(self, asked: Any, request: AdminRequest) -> Any:
        """PublishSink."""
        sink = self._owned(asked, request, may_know=bool(asked.targets))
        _check_publish(asked)
        command = PublishSink(
            namespace=sink.namespace,
            name=sink.name,
            id=asked.id,
            generation=asked.generation,
            run_id=asked.run_id,
            epoch=asked.epoch,
            token=asked.token,
            winners=pack_winners(asked.winners),
            targets=_targets(sink.namespace, asked.targets),
            input_rows=asked.input_rows,
            input_digest=asked.input_digest,
            offsets_hash=asked.offsets_hash,
            accept_gap=asked.accept_gap if asked.HasField("accept_gap") else -1,
            accept_difference=asked.accept_difference,
        )
        timeout_s = max(0.0, min(asked.timeout_ms / 1000, request.timeout_s - ANSWER_S))
        done = await self._sinks.publish(command, timeout_s)
        return message("PublishSinkResponse")(finished=done.is_finished, partitions=self._partitions(done))

    async def abort_sink(self, asked: Any, request: AdminRequest) -> Any:
        """AbortSink."""
        await self._sinks.expire(self._owned(asked, request), _attempt(asked), request.timeout_s)
        return message("AbortSinkResponse")()

    async def renew_sink(self, asked: Any, request: AdminRequest) -> Any:
        """RenewSink."""
        self._sinks.renew(self._owned(asked, request), _attempt(asked))
        return message("RenewSinkResponse")()

    async def fetch_sink_streams(self, asked: Any, _: AdminRequest) -> Any:
        """FetchSinkStreams."""
        namespace = asked.namespace or DEFAULT_NAMESPACE
        if not asked.streams:
            raise _invalid("streams is empty: name at least one")
        check_count("streams", len(asked.streams), MAX_STREAMS, "name fewer streams at once")
        names = [name for name in dict.fromkeys(asked.streams) if not _is_reserved(namespace, name)]
        found = (self._sinks.state.streams.get(StreamKey(namespace, name)) for name in names)
        shown = [self._shown_stream(stream) for stream in found if stream is not None]
        return message("FetchSinkStreamsResponse")(streams=shown)

    async def fetch_sinks(self, asked: Any, _: AdminRequest) -> Any:
        """FetchSinks."""
        namespace = asked.namespace or DEFAULT_NAMESPACE
        check_count("names", len(asked.names), MAX_NAMES, "name fewer sinks at once")
        found = [sink for key, sink in sorted(self._sinks.state.sinks.items()) if key.namespace == namespace]
        if asked.names:
            found = [self._sinks.sink(namespace, name) for name in dict.fromkeys(asked.names)]
        staged = await asyncio.to_thread(self._sinks.staged_bytes)
        answer, size = message("FetchSinksResponse")(), 0
        for sink in found:
            shown = self._shown(sink, staged)
            size += shown.ByteSize()
            if size > MAX_ANSWER_BYTES:
                text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: name fewer sinks at once"
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
            answer.sinks.append(shown)
        return answer

    async def delete_sink(self, asked: Any, request: AdminRequest) -> Any:
        """DeleteSink."""
        sink = self._sinks.sink(asked.namespace or DEFAULT_NAMESPACE, asked.name)
        if asked.dry_run:
            self._sinks.check_delete(sink)
        else:
            await self._sinks.delete(sink, _caller(request), request.timeout_s)
        return message("DeleteSinkResponse")(last_epoch=sink.last_epoch)

    async def skip_sink(self, asked: Any, request: AdminRequest) -> Any:
        """SkipSink."""
        sink = self._sinks.sink(asked.namespace or DEFAULT_NAMESPACE, asked.name)
        if not asked.HasField("partition"):
            raise _invalid("partition is missing: rows that are skipped are lost, so it has to be named")
        target = _waiting(sink, asked.stream, asked.partition)
        if not asked.dry_run:
            await self._sinks.skip(sink, target.incarnation, _caller(request), request.timeout_s)
        return message("SkipSinkResponse")(rows=target.rows)

    async def set_sink_quota(self, asked: Any, request: AdminRequest) -> Any:
        """SetSinkQuota."""
        sink = self._sinks.sink(asked.namespace or DEFAULT_NAMESPACE, asked.name)
        await self._sinks.set_quota(sink, asked.quota_bytes, request.timeout_s)
        return message("SetSinkQuotaResponse")()

    async def set_sink_owner(self, asked: Any, request: AdminRequest) -> Any:
        """SetSinkOwner."""
        sink = self._sinks.sink(asked.namespace or DEFAULT_NAMESPACE, asked.name)
        if not asked.HasField("owner"):
            raise _invalid("owner is missing: name the client, or give an empty name for clients without a certificate")
        if flaw := id_flaw(asked.owner) if asked.owner else None:
            raise _invalid(flaw)
        if asked.dry_run:
            self._sinks.check_owner(sink, asked.owner)
        elif asked.owner != sink.owner:
            await self._sinks.set_owner(sink, asked.owner, _caller(request), request.timeout_s)
        return message("SetSinkOwnerResponse")(before=sink.owner)

    def _owned(self, asked: Any, request: AdminRequest, *, may_know: bool = False) -> Sink:
        """The caller's sink.

        Args:
            asked: names the sink.
            request: of the caller.
            may_know: the caller may publish to the streams that it names, so it may learn whose sink it is, as by
                OpenSink. Others get the same answer as for a sink that does not exist.
        """
        key = StreamKey(asked.namespace or DEFAULT_NAMESPACE, asked.name)
        sink = self._sinks.state.sinks.get(key)
        if sink is not None and sink.owner == (request.client or ""):
            return sink
        if sink is not None and may_know:
            raise AccessError("sink_not_owned", owner_sentence(sink))
        raise rejected(
            RejectionCode.SINK_NOT_FOUND,
            f"sink {key.name} does not exist in namespace {key.namespace}, or belongs to another client: "
            "see `bascule sink list`",
        )

    def _stream(self, namespace: str, name: str) -> Stream:
        _check_not_reserved(namespace, name)
        stream = self._sinks.state.streams.get(StreamKey(namespace, name))
        if stream is None:
            raise rejected(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
        return stream

    def _shown_stream(self, stream: Stream) -> Any:
        most = self._sinks.controller.in_effect(stream)["max_record_bytes"]
        return _SinkStream(name=stream.name, partitions=len(stream.partitions), max_record_bytes=most)

    def _shown(self, sink: Sink, staged: Mapping[int, int]) -> Any:
        return _SinkMessage(
            name=sink.name,
            owner=sink.owner,
            kind=sink.kind,
            lifetime=sink.lifetime,
            id=sink.id,
            generation=sink.generation,
            query_id=sink.query_id,
            run_id=sink.run_id,
            last_epoch=sink.last_epoch,
            input_rows=sink.last.input_rows if sink.last is not None else 0,
            partitions=self._partitions(sink),
            finished=sink.is_finished,
            staged_bytes=staged.get(sink.id, 0),
            quota_bytes=sink.quota_bytes,
            skipped_rows=sink.skipped_rows,
            last_skip=_SinkSkip(**to_plain(sink.last_skip)) if sink.last_skip is not None else None,
        )

    def _partitions(self, sink: Sink) -> list[Any]:
        blocked = self._sinks.blocked(sink)
        return [
            _SinkPartition(
                stream=stream.name,
                partition=item.number,
                rows=item.rows,
                phase=item.phase,
                base_offset=item.base_offset if item.phase == "linked" else None,
                blocked=blocked.get(item.incarnation, "") if item.phase == "decided" else "",
            )
            for stream in (sink.last.targets if sink.last is not None else ())
            for item in stream.partitions
        ]


def _check_publish(asked: Any) -> None:
    """Refuse what no state of the sink would allow, before anything is made of it."""
    if not 1 <= asked.timeout_ms <= MAX_TIMEOUT_MS:
        raise _invalid(f"timeout_ms {asked.timeout_ms} is not between 1 and {MAX_TIMEOUT_MS}")
    check_count("winners", len(asked.winners), MAX_TASKS, "run the query with fewer tasks")
    check_count("targets", len(asked.targets), MAX_TARGETS, "write to fewer partitions in one epoch")
    for item in asked.targets:
        _check_not_reserved(asked.namespace or DEFAULT_NAMESPACE, item.stream)


def _is_reserved(namespace: str, name: str) -> bool:
    return namespace == DEFAULT_NAMESPACE and name in INTERNAL_STREAMS


def _check_not_reserved(namespace: str, name: str) -> None:
    if _is_reserved(namespace, name):
        raise _invalid(f"stream {name} is reserved: the broker alone writes to it")


def _targets(namespace: str, asked: Any) -> tuple[TargetStream, ...]:
    """Targets in the order that entries have them."""
    by_stream: dict[str, list[TargetPartition]] = {}
    for item in asked:
        partition = TargetPartition(item.partition, item.incarnation, item.rows, item.digest, 0)
        by_stream.setdefault(item.stream, []).append(partition)
    return tuple(
        TargetStream(namespace, name, tuple(sorted(by_stream[name], key=lambda item: item.number)))
        for name in sorted(by_stream)
    )


def _waiting(sink: Sink, stream: str, partition: int) -> TargetPartition:
    for target, item in sink.waiting:
        if (target.name, item.number) == (stream, partition):
            return item
    raise _invalid(f"sink {sink.name} has nothing to link to partition {partition} of stream {stream}")


def _caller(request: AdminRequest) -> str:
    """Who asks: by certificate, else by address."""
    return request.client or request.peer


def _attempt(asked: Any) -> Attempt:
    return Attempt(asked.epoch, asked.token, asked.generation)


def _check_name(name: str) -> None:
    flaw = id_flaw(name) if name else "the name of a sink is empty"
    if flaw is not None:
        raise _invalid(flaw)


def _uuid(field: str, given: str, *, needed: bool) -> str:
    if not given and not needed:
        return ""
    try:
        return str(UUID(given))
    except ValueError:
        raise _invalid(f"{field} {given[:80]!r} is not a UUID") from None


def _invalid(text: str) -> StatusError:
    return StatusError(Status.INVALID_ARGUMENT, text)
