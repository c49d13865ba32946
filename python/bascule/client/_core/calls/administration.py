"""Calls of the client about streams, partitions and brokers."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from bascule.client._core import requests
from bascule.client._core.calls.details import Details, StreamDetails
from bascule.client._core.calls.existing import asks_for_details, asks_for_something, mismatch
from bascule.client._core.deadline import Deadline
from bascule.client._core.requests import StreamOptions
from bascule.client._core.routes import PartitionPlace
from bascule.client._core.types import Ack, Broker, Content, Headers, Partition, Purged, Stream, SubjectReceipt
from bascule.errors import BrokerError, StateError

__all__ = ["Administration"]


_NAMESPACE: Final = "default"
_HIDDEN: Final = frozenset({"permission_denied", "unimplemented"})
"""Error codes of a broker that does not reveal the properties of a stream."""


@contextmanager
def _ignore_hidden() -> Generator[None]:
    try:
        yield
    except BrokerError as failure:
        if failure.code not in _HIDDEN:
            raise


def _create_or_check(create: Callable[[], None], check: Callable[[], None], *, again: bool = True) -> None:
    try:
        create()
    except StateError as failure:
        if failure.code != "stream_exists":
            raise
    else:
        return
    try:
        check()
    except StateError as failure:
        if failure.code != "stream_not_found" or not again:
            raise
        _create_or_check(create, check, again=False)  # the stream was deleted between the error and the check


class Administration(Details):
    """Streams, partitions, brokers."""

    def create_stream(
        self,
        name: str,
        subject: str | None = None,
        *,
        options: StreamOptions | None = None,
        exist_ok: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Create a stream; returns when the stream accepts records.

        Args:
            name: unique in the cluster; at most 255 bytes, without spaces, slashes and wildcards.
            subject: NATS subject whose messages it stores, wildcards allowed; `None` = the name.
            options: partitions, retention and other settings; `None` = one partition, the broker's defaults.
            exist_ok: whether to accept an existing stream of that name. Its subject must match, and so must the number
                of partitions, the group, `encryption` and `partition_by_subject` if they are given, because they cannot
                be changed. Properties that this client may not see, or that a Liftbridge server does not report, are
                not compared; other settings are not changed (see `edit_stream`).
            dry_run: only ask whether the stream would be created; only a Bascule broker supports this.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_exists`; with `exist_ok` only if the existing stream differs. Code
                `stream_not_found`: with `exist_ok` the stream existed and was deleted before the check, twice.
            UsageError: code `invalid_argument`: the name, the subject or an option.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        asked, listens_on = options or StreamOptions(), name if subject is None else subject
        request = requests.create_stream(name, listens_on, asked)
        method, deadline = "CheckCreateStream" if dry_run else "CreateStream", self._deadline(timeout)
        if dry_run:
            request = requests.check_create_stream(request)

        def create() -> None:
            self._call(method, request, deadline, stream=name, subject=listens_on)

        def check() -> None:
            if asks_for_something(subject, asked):
                self._check_existing(name, subject, asked, deadline)

        if exist_ok:
            _create_or_check(create, check)
        else:
            create()

    def _check_existing(self, name: str, subject: str | None, options: StreamOptions, deadline: Deadline) -> None:
        found: Stream | None = None
        details: StreamDetails | None = None
        with _ignore_hidden():
            found = self._get_stream(name, deadline)
        with _ignore_hidden():
            if asks_for_details(options):
                details = self._describe_stream(name, deadline)
        refusal = mismatch(name, subject, options, found, details)
        if refusal is not None:
            raise refusal

    def delete_stream(self, name: str, *, missing_ok: bool = False, timeout: float | None = None) -> None:
        """Delete a stream and all its records.

        Args:
            name: of the stream.
            missing_ok: whether to return without an error if the stream does not exist.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        try:
            self._call("DeleteStream", requests.delete_stream(name), timeout, stream=name)
        except StateError as failure:
            if not (missing_ok and failure.code == "stream_not_found"):
                raise

    def pause_stream(
        self,
        name: str,
        *,
        partitions: Sequence[int] = (),
        resume_all: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Pause partitions: their logs are closed, subscriptions end, messages on their NATS subject are not stored.
        A publish resumes a partition, and so does a subscription with `resume`. Idempotent.

        Args:
            name: of the stream.
            partitions: numbers, from 0; none = all of them.
            resume_all: whether a publish to any partition of the stream, paused or not, resumes all paused ones.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_not_found` or `partition_not_found`.
            UsageError: code `invalid_argument`: a number below 0.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.pause_stream(name, partitions, resume_all=resume_all)
        partition = max(partitions, default=None)
        self._call("PauseStream", request, timeout, stream=name, partition=partition, repeatable=True)

    def set_readonly(
        self,
        name: str,
        readonly: bool = True,
        *,
        partitions: Sequence[int] = (),
        timeout: float | None = None,
    ) -> None:
        """Make partitions read-only, or writable again. A reader of a read-only partition ends at its end.

        Args:
            name: of the stream.
            readonly: whether publishes are rejected.
            partitions: numbers, from 0; none = all of them.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_not_found` or `partition_not_found`.
            UsageError: code `invalid_argument`: a number below 0.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.set_readonly(name, partitions, readonly=readonly)
        partition = max(partitions, default=None)
        self._call("SetStreamReadonly", request, timeout, stream=name, partition=partition, repeatable=True)

    def trim_partition(
        self, stream: str, partition: int, before: int, *, dry_run: bool = False, timeout: float | None = None
    ) -> tuple[int, int]:
        """Remove all records below offset `before` of a partition, permanently. Other records keep their offsets.

        Args:
            stream: name of the stream.
            partition: its number.
            before: first offset that is kept; from 0 to the high watermark, inclusive.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The log start offset before and after (with `dry_run`: as it would be).

        Raises:
            UsageError: `before` is out of range.
            StateError: code `stream_not_found` or `partition_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.trim_partition(stream, partition, before, dry_run=dry_run)
        answer = self._call("TrimPartition", request, timeout, stream=stream, partition=partition)
        return requests.read_trimmed(answer)

    def purge_stream(
        self, name: str, *, now: bool = False, dry_run: bool = False, timeout: float | None = None
    ) -> Purged:
        """Remove all records of a stream, permanently. The stream stays; its partitions begin again at offset 0, and
        stored positions are no longer valid.

        Args:
            name: of the stream.
            now: remove the files at once instead of after `limits.grace_ms`. A broker that rejects writes because its
                disk is full always does so.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            What was removed (with `dry_run`: what would be removed).

        Raises:
            StateError: code `stream_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.purge_stream(name, now=now, dry_run=dry_run)
        return requests.read_purged(self._call("PurgeStream", request, timeout, stream=name))

    def list_streams(self, *, namespace: str = _NAMESPACE, timeout: float | None = None) -> list[Stream]:
        """All streams of a namespace, ordered by name.

        Args:
            namespace: a stream of Iggy's clients, whose topics are its streams; `default` = those of Liftbridge's
                clients. Only a Bascule broker has others than `default`; their streams are named `namespace/name`.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `not_found`: the namespace.
            CapacityError: code `busy`: the answer would be too large.
            UnavailableError: no broker answered in time.
        """
        if namespace != _NAMESPACE:
            answer = self._call("FetchStreams", requests.fetch_streams(namespace), timeout)
            return requests.read_namespace(namespace, answer)
        return sorted(
            requests.read_streams(self._call("FetchMetadata", requests.metadata([]), timeout)),
            key=lambda stream: stream.name,
        )

    def get_stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """One stream.

        Raises:
            StateError: code `stream_not_found`.
            UnavailableError: no broker answered in time.
        """
        return self._get_stream(name, self._deadline(timeout))

    def _get_stream(self, name: str, deadline: Deadline) -> Stream:
        return requests.read_streams(self._call("FetchMetadata", requests.metadata([name]), deadline))[0]

    def get_partition(self, stream: str, partition: int = 0, *, timeout: float | None = None) -> Partition:
        """One partition, as known to its leader.

        Raises:
            StateError: code `partition_not_found` or `stream_not_found`.
            UnavailableError: its leader did not answer in time.
        """
        request = requests.partition_metadata(stream, requests.check_partition(partition))
        place = PartitionPlace(stream, partition)
        answer = self._call("FetchPartitionMetadata", request, timeout, stream=stream, partition=partition, place=place)
        return requests.read_partition(answer)

    def list_brokers(self, *, timeout: float | None = None) -> list[Broker]:
        """The brokers of the cluster; the one that answered comes first.

        Raises:
            UnavailableError: no broker answered in time.
        """
        return requests.read_brokers(self._call("FetchMetadata", requests.metadata(["__cursors"]), timeout))

    def publish_to_subject(
        self,
        subject: str,
        value: Content | None,
        *,
        key: Content | None = None,
        headers: Headers | None = None,
        ack: Ack = "leader",
        timeout: float | None = None,
    ) -> SubjectReceipt | None:
        """Publish one record on a NATS subject through the broker, for all streams that listen there. Never retried.

        Args:
            subject: without wildcards.
            value: any bytes, or text; `None` = a tombstone.
            key: any bytes, or text; empty is the same as `None`.
            headers: names and values, in which names may repeat; at most 1,024.
            ack: which acknowledgement to wait for. With `none` no stream needs to listen.
            timeout: seconds; `None` = the client's.

        Returns:
            The ack of the first stream that stored it; others may have stored it too. `None` with ack `none`.

        Raises:
            UsageError: code `invalid_argument`: the subject; `too_large`.
            StateError: code `incorrect_offset`: the stream checks offsets and is not empty.
            OutcomeUnknownError: no acknowledgement came in time: no stream listens there, or the ack was lost.
            UnavailableError: it could not be sent in time.
        """
        request = requests.publish_to_subject(subject, value, key, headers, ack)
        return requests.read_subject_ack(self._call("PublishToSubject", request, timeout))
