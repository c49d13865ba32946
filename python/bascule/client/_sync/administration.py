"""What the synchronous client does about streams, partitions and brokers."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from bascule.client._core import requests
from bascule.client._core.deadline import Deadline
from bascule.client._core.requests import StreamOptions
from bascule.client._core.routes import PartitionPlace
from bascule.client._core.types import Ack, Broker, Content, Headers, Partition, Purged, Stream, SubjectReceipt
from bascule.client._sync.details import Details, StreamDetails
from bascule.client._sync.existing import asks_for_details, asks_for_something, mismatch
from bascule.errors import BrokerError, StateError

__all__ = ["Administration"]


_NOT_TOLD: Final = frozenset({"permission_denied", "unimplemented"})
"""How a broker keeps what a stream is to itself."""


@contextmanager
def _as_far_as_told() -> Generator[None]:
    try:
        yield
    except BrokerError as failure:
        if failure.code not in _NOT_TOLD:
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
        _create_or_check(create, check, again=False)  # it was deleted between the refusal and the look


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
        """Create a stream; when this returns, it can be published to.

        Args:
            name: unique in the cluster; at most 255 bytes, without spaces, slashes and wildcards.
            subject: NATS subject whose messages it stores, wildcards allowed; `None` = the name.
            options: partitions, retention and the like; `None` = one partition, the broker's defaults.
            exist_ok: whether a stream of that name that is there already is fine. It must have the subject, and of the
                options the number of partitions, the group, `encryption` and `partition_by_subject`, where they are
                given: those cannot be changed. What this client has no right to see, or a Liftbridge server does not
                tell, is not compared; other settings are left as they are (`edit_stream`).
            dry_run: only ask whether it would be created; only a broker of ours answers that.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_exists`; with `exist_ok` when the one that is there is another one. Code
                `stream_not_found`: with `exist_ok` it was there, and deleted before it could be looked at, twice.
            UsageError: code `invalid_argument`: the name, the subject or an option.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        asked, listens_on = options or StreamOptions(), name if subject is None else subject
        request = requests.create_stream(name, listens_on, asked)
        method, deadline = "CheckCreateStream" if dry_run else "CreateStream", self._deadline(timeout)

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
        with _as_far_as_told():
            found = self._get_stream(name, deadline)
        with _as_far_as_told():
            if asks_for_details(options):
                details = self._describe_stream(name, deadline)
        refusal = mismatch(name, subject, options, found, details)
        if refusal is not None:
            raise refusal

    def delete_stream(self, name: str, *, missing_ok: bool = False, timeout: float | None = None) -> None:
        """Delete a stream and all its records.

        Args:
            name: of the stream.
            missing_ok: whether it is fine when there is none.
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
        """Pause partitions: their logs are closed, subscriptions end, what comes on their NATS subject is not stored.
        A publish resumes one, and so does a subscription with `resume`. Pausing again changes nothing.

        Args:
            name: of the stream.
            partitions: numbers, from 0; none = all of them.
            resume_all: whether a publish to any partition of the stream, an open one too, resumes all that are paused.
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
        """Make partitions refuse publishes, or take them again. Reading one that is read-only ends at its end.

        Args:
            name: of the stream.
            readonly: whether publishes are refused.
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
        """Remove everything below offset `before` of a partition, for good. Offsets of what stays do not change.

        Args:
            stream: name of the stream.
            partition: its number.
            before: first offset that stays; from 0 to the high watermark, inclusive.
            dry_run: only ask what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The log start offset as it was, and as it is (or would be).

        Raises:
            UsageError: `before` is out of range.
            StateError: code `stream_not_found` or `partition_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.trim_partition(stream, partition, before, dry_run=dry_run)
        answer = json.loads(self._call("TrimPartition", request, timeout, stream=stream, partition=partition))
        return answer["log_start_before"], answer["log_start"]

    def purge_stream(
        self, name: str, *, now: bool = False, dry_run: bool = False, timeout: float | None = None
    ) -> Purged:
        """Remove all records of a stream, for good. The stream stays; its partitions begin again at offset 0, and no
        stored position points into what was there.

        Args:
            name: of the stream.
            now: remove the files at once instead of after `limits.grace_ms`. A broker that refuses writes for want of
                space does so in any case.
            dry_run: only ask what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            What is (or would be) removed.

        Raises:
            StateError: code `stream_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.purge_stream(name, now=now, dry_run=dry_run)
        answer = json.loads(self._call("PurgeStream", request, timeout, stream=name))
        return Purged(answer["records"], answer.get("at_once", False))

    def list_streams(self, *, timeout: float | None = None) -> list[Stream]:
        """Every stream, by name.

        Raises:
            UnavailableError: no broker answered in time.
        """
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
        """One partition as its leader knows it.

        Raises:
            StateError: code `partition_not_found` or `stream_not_found`.
            UnavailableError: its leader did not answer in time.
        """
        request = requests.partition_metadata(stream, requests.check_partition(partition))
        place = PartitionPlace(stream, partition)
        answer = self._call("FetchPartitionMetadata", request, timeout, stream=stream, partition=partition, place=place)
        return requests.read_partition(answer)

    def list_brokers(self, *, timeout: float | None = None) -> list[Broker]:
        """The brokers of the cluster; the one that answers comes first.

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
        """Publish one record on a NATS subject through the broker, whichever streams listen there; not sent twice.

        Args:
            subject: without wildcards.
            value: any bytes, or text; `None` = a tombstone.
            key: any bytes, or text; empty is the same as `None`.
            headers: names and values, in which names may repeat; at most 1,024.
            ack: what counts as done. With `none` nobody needs to listen.
            timeout: seconds; `None` = the client's.

        Returns:
            What the first stream that stored it said; others may have stored it too. `None` with ack `none`.

        Raises:
            UsageError: code `invalid_argument`: the subject; `too_large`.
            StateError: code `incorrect_offset`: the stream checks offsets and is not empty.
            OutcomeUnknownError: nobody acknowledged it in time: no stream listens there, or the ack was lost.
            UnavailableError: it could not be sent in time.
        """
        request = requests.publish_to_subject(subject, value, key, headers, ack)
        return requests.read_subject_ack(self._call("PublishToSubject", request, timeout))
