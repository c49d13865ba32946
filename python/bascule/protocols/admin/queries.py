"""ReportQuery, FetchLags and ReleaseHold: where queries and consumer groups stand."""

import math
from typing import Any, Final

from bascule._admin_pb import message
from bascule.control.queries import Queries
from bascule.control.query_table import Position, Report
from bascule.control.specs import INTERNAL_STREAMS
from bascule.engine import id_flaw
from bascule.metadata import DEFAULT_NAMESPACE, StreamKey
from bascule.protocols.admin.requests import MethodHandler, with_sentences
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES
from bascule.protocols.router import AdminRequest

MAX_STREAMS: Final = 1000
NANOS_PER_MS: Final = 1_000_000

_ReaderLag = message("ReaderLag")
_LagSize = message("LagSize")


class QueryMethods:
    """The handlers."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {
            "ReportQuery": with_sentences(self.report_query),
            "FetchLags": self.fetch_lags,
            "ReleaseHold": with_sentences(self.release_hold),
        }

    async def report_query(self, asked: Any, request: AdminRequest) -> Any:
        """ReportQuery."""
        flaw = id_flaw(asked.query) if asked.query else "the name of a query is empty"
        if flaw is not None:
            raise _invalid(flaw)
        if not asked.streams:
            raise _invalid("streams is empty: name at least one")
        check_count("streams", len(asked.streams), MAX_STREAMS, "report fewer streams at once")
        namespace = asked.namespace or DEFAULT_NAMESPACE
        streams: dict[str, tuple[Position, ...] | None] = {}
        for item in asked.streams:
            _check_stream(namespace, item, streams)
            positions = tuple(Position(each.partition, each.incarnation, each.next) for each in item.positions)
            streams[item.name] = positions or None
        report = Report(StreamKey(namespace, asked.query), request.client or "", streams, asked.ended)
        unknown, not_held, refused = self._queries.report(report, holds=asked.hold)
        return message("ReportQueryResponse")(
            unknown=unknown,
            not_held=not_held,
            refused=[
                {"stream": stream, "partition": partition, "code": str(rejection.code), "message": rejection.message}
                for stream, partition, rejection in refused
            ],
        )

    async def fetch_lags(self, asked: Any, _: AdminRequest) -> Any:
        """FetchLags."""
        answer, size = message("FetchLagsResponse")(), 0
        for item in await self._queries.lags():
            shown = _shown(item)
            if asked.reader not in ("", shown.reader) or asked.stream not in ("", shown.stream):
                continue
            size += shown.ByteSize()
            if size > MAX_ANSWER_BYTES:
                text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: name a reader or a stream"
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
            answer.lags.append(shown)
        return answer

    async def release_hold(self, asked: Any, request: AdminRequest) -> Any:
        """ReleaseHold."""
        for what, name in (("query", asked.query), ("stream", asked.stream)):
            if not name:
                raise _invalid(f"{what} is empty: name the {what} whose hold ends")
        key = StreamKey(asked.namespace or DEFAULT_NAMESPACE, asked.query)
        by = request.client or request.peer
        positions, left_s = self._queries.release(key, asked.stream, by, dry_run=asked.dry_run)
        return message("ReleaseHoldResponse")(
            positions=[each._asdict() for each in positions], hold_left_ms=math.ceil(left_s * 1000)
        )


def _check_stream(namespace: str, item: Any, seen: dict[str, tuple[Position, ...] | None]) -> None:
    if namespace == DEFAULT_NAMESPACE and item.name in INTERNAL_STREAMS:
        raise _invalid(f"stream {item.name} is reserved: the broker alone reads it")
    if item.name in seen:
        raise _invalid(f"stream {item.name} is named twice")
    numbers = [each.partition for each in item.positions]
    if len(set(numbers)) != len(numbers):
        raise _invalid(f"a partition of stream {item.name} is named twice")


def _shown(item: dict[str, Any]) -> Any:
    stream = item["stream"] if item["namespace"] == DEFAULT_NAMESPACE else f"{item['namespace']}/{item['stream']}"
    lag, age_ns, hold_left_ns = item["lag"], item["age_ns"], item["hold_left_ns"]
    size = None
    if lag is not None:
        size = _LagSize(records=lag["records"], bytes=lag["bytes"], age_ms=lag["nanos"] // NANOS_PER_MS)
    return _ReaderLag(
        kind=item["kind"],
        reader=item["reader"],
        stream=stream,
        partition=item["partition"],
        next=item["next"],
        lag=size,
        owner=item["owner"],
        report_age_ms=None if age_ns is None else age_ns // NANOS_PER_MS,
        state=item["state"],
        hold_left_ms=None if hold_left_ns is None else -(-hold_left_ns // NANOS_PER_MS),
    )


def _invalid(text: str) -> StatusError:
    return StatusError(Status.INVALID_ARGUMENT, text)
