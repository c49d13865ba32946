"""One consumer's membership of a group: joins it, sends heartbeats from its own thread, receives its assignment.

The broker accepts heartbeats only with the group's current epoch, and every change of the group changes the epoch.
After a refused heartbeat the thread fetches the group's epoch and coordinator and sends another at once. A member that
the broker expelled (it was silent for too long) joins again; its former assignment is lost. A coordinator that does not
answer for too long is reported.

The thread only receives; it never opens a subscription, stores a position or calls the application. `state` is one
immutable value, swapped whole; `changed` is called after each swap, in the thread.

Hand-over: each heartbeat names the partitions that this member still reads, or may start to read by the last answer.
The broker assigns a partition to the next member once it is no longer named. A broker that supports this numbers its
answers, and a heartbeat waits there for the next one, so that changes arrive at once.

Such a broker also answers which streams the group still reads for this member. A stream that was deleted and created
again is read after the member has joined again: `state` assigns nothing until the application has released all that
it reads, so that its positions are stored; then the thread joins with all streams that exist.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bascule.client._core import requests
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.dropped import MAX_PAUSE_SECONDS, DroppedStreams
from bascule.client._core.routes import BrokerPlace
from bascule.errors import BrokerError, InternalError, StateError, UsageError, error

__all__ = ["Assignment", "Membership", "MembershipState"]

HEARTBEAT_SHARE: Final = 0.4
"""Interval of heartbeats, as a share of the time that the broker waits for one."""
RETRY_SECONDS: Final = 2.0
"""Longest pause after a failed heartbeat, in seconds."""
MAX_CALL_SECONDS: Final = 5.0
"""Longest time of one call in the thread, and so of stopping the thread, in seconds."""
MAX_WAIT_SECONDS: Final = 3.0
"""Longest time that a heartbeat waits at the broker for a change, in seconds."""
_JOIN_PAUSE: Final = 0.25
_FIRST_PAUSE: Final = 0.02
_NO_MEMBER: Final = ("not_a_member", "group_not_found")


class Assignment(NamedTuple):
    """A partition that a member of a group reads."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class MembershipState:
    """The assignment of a member at one time."""

    expulsions: int
    """Number of expulsions: partitions read before an expulsion no longer belong to the member."""
    epoch: int
    assigned: frozenset[Assignment]
    """Empty until the first answer, and after an expulsion."""
    generation: int = 0
    """As `epoch`, but unique among all groups of this id; 0 = the broker does not say."""


class Membership:
    """See the module. `join` and `end` are for one thread; the other methods may be used by several."""

    def __init__(
        self, pool: ConnectionPool, group: str, consumer: str, streams: tuple[str, ...], changed: Callable[[], None]
    ) -> None:
        """Joins nothing yet.

        Raises:
            UsageError: code `invalid_argument`: an id, or no stream.
        """
        self._group: Final = requests.check_id("group", group)
        self.consumer: Final = requests.check_id("consumer", consumer)
        self._streams: Final = tuple(dict.fromkeys(requests.check_id("stream", stream) for stream in streams))
        if not self._streams:
            raise UsageError("invalid_argument", "a consumer reads 1 stream or more, not none")
        self._pool: Final = pool
        self._changed: Final = changed
        self._stop: Final = threading.Event()
        self._thread: threading.Thread | None = None
        self._joined: requests.Joined | None = None
        self._failure: BrokerError | None = None
        self._lock: Final = threading.Lock()
        self._reading = frozenset[Assignment]()
        self._reported = frozenset[Assignment]()
        self._seen = 0
        self._dropped: Final = DroppedStreams(self._streams)
        self._frozen = False
        self.state = MembershipState(0, 0, frozenset())
        self.answers = 0
        """Number of heartbeats of the thread that were answered."""

    @property
    def failure(self) -> BrokerError | None:
        """The error that ended the membership; `None` if there was none."""
        return self._failure

    def was_recreated(self, stream: str) -> bool:
        """Whether all records of `stream` came after this member joined: it was deleted and created again since."""
        return stream in self._dropped.ever

    def join(self, deadline: Deadline) -> None:
        """Become a member and start the thread.

        Raises:
            StateError: code `stream_not_found`; `failed_precondition`: a consumer of this id is a member until the
                deadline.
            UnavailableError: no broker answered in time.
        """
        self._enter(deadline, self._streams, replace=False)
        self._thread = threading.Thread(target=self._run_thread, name="bascule-consumer", daemon=True)
        self._thread.start()

    def follow(self) -> MembershipState:
        """The current state. Until `release` the partitions that it assigns count as being read."""
        with self._lock:
            self._reading |= self.state.assigned
            return self.state

    def release(self, reading: frozenset[Assignment]) -> None:
        """Release all partitions other than `reading` and the assigned ones: other members may read them from now on.
        The broker is notified at once, or by the next heartbeat.
        """
        with self._lock:
            if reading == self._reading:
                return
            self._reading = reading
        joined = self._joined
        if joined is None or not self._seen or self._stop.is_set():
            return
        try:
            self._fetch(joined, self._kept(), wait=0.0)
        except BrokerError:
            return  # the thread will find out why

    def freeze(self) -> None:
        """Stop changing `state`: the member is about to leave. Heartbeats continue until then."""
        self._frozen = True

    def end(self, deadline: Deadline) -> None:
        """Leave the group, so that other members take over at once, and stop the thread. Returns when the thread has
        ended, about `MAX_CALL_SECONDS` after the deadline at the latest. Idempotent.

        Raises:
            BrokerError: the broker was not notified; it expels the member later, when heartbeats are missing.
        """
        self._frozen = True
        self._stop.set()
        try:
            self._leave(deadline)  # which also ends a waiting heartbeat
        finally:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.join()
        self._leave(deadline)  # the thread may just have joined again

    def _leave(self, deadline: Deadline) -> None:
        joined, self._joined = self._joined, None
        if joined is None:
            return
        request = requests.leave_group(self._group, self.consumer, joined.joined)
        try:
            self._pool.run(
                deadline, lambda native, left: native.call("LeaveConsumerGroup", request, left), repeatable=True
            )
        except StateError as failure:
            # the member was expelled meanwhile, or an earlier request was executed
            if failure.code != "not_found" and failure.reason not in _NO_MEMBER:
                raise

    # -- joining ----------------------------------------------------------------------------------------------------
    def _enter(self, deadline: Deadline, streams: tuple[str, ...], *, replace: bool) -> None:
        """Join. `replace`: a member with this id is an earlier membership of this consumer, and is removed first."""
        request = requests.join_group(self._group, self.consumer, streams)
        while True:
            try:
                answer = self._pool.run(deadline, lambda native, left: native.call("JoinConsumerGroup", request, left))
            except BrokerError as failure:
                replace = self._after_refusal(failure, deadline, replace=replace)
                continue
            joined = requests.read_joined(answer)
            with self._lock:
                self._seen = 0
                self.state = MembershipState(self.state.expulsions, joined.epoch, frozenset(), joined.generation)
                self._joined = joined
            return

    def _after_refusal(self, failure: BrokerError, deadline: Deadline, *, replace: bool) -> bool:
        """Prepare another attempt, or raise. Returns whether a member with this id must be this consumer."""
        if failure.code == "outcome_unknown" and deadline.left > _JOIN_PAUSE:
            self._stop.wait(_FIRST_PAUSE)
            return True
        if failure.code == "stream_not_found":
            names = ", ".join(f'"{stream}"' for stream in self._streams)
            sentence = f"not all of the streams {names} exist: create them, or see bascule stream list"
            raise error("stream_not_found", sentence, failure.details) from None
        if failure.reason != "already_member":
            raise failure
        if replace:
            self._joined = requests.Joined("", 0, 0, 0)
            self._leave(deadline)
        elif deadline.left <= _JOIN_PAUSE or self._stop.wait(_JOIN_PAUSE):
            sentence = (
                f'consumer "{self.consumer}" is a member of group "{self._group}" already: choose another id, or wait '
                "until a dead member is expelled"
            )
            raise error("failed_precondition", sentence, failure.details) from None
        return replace

    # -- the thread -------------------------------------------------------------------------------------------------
    def _run_thread(self) -> None:
        try:
            self._send_heartbeats()
        except BrokerError as failure:
            self._failure = failure
        except Exception as defect:  # noqa: BLE001 (a thread cannot raise to the application: the next call reports it)
            self._failure = InternalError("internal", f"the membership ended by a defect: {defect!r}")
            self._failure.__cause__ = defect
        if self._failure is not None:
            self._changed()

    def _send_heartbeats(self) -> None:
        heard, pause = time.monotonic(), 0.0
        while not self._stop.wait(pause):
            joined = self._joined
            if joined is None:
                return  # it has left
            try:
                pause = self._heartbeat(joined)
            except BrokerError as failure:
                if failure.code == "closed":
                    raise
                if not self._stop.is_set():
                    pause = self._recover(joined, failure, time.monotonic() - heard)
            else:
                heard = time.monotonic()

    def _heartbeat(self, joined: requests.Joined) -> float:
        """Send a heartbeat; returns the seconds until the next one. It may wait at the broker."""
        usual = joined.consumer_timeout * HEARTBEAT_SHARE
        held, before, began = self._kept(), self._seen, time.monotonic()
        # naming fewer partitions than before is news for the broker: do not wait there
        may_wait = before and self._reported <= held
        wait = min(usual, MAX_WAIT_SECONDS, self._dropped.seconds_left) if may_wait else 0.0
        self._reported = held
        found = self._fetch(joined, held, wait)
        version = found.version
        with self._lock:
            self._seen = version
        if version:
            self._check_dropped_streams(joined, found.streams)
        returned = self._dropped.has_returned
        assigned = () if returned else (Assignment(*place) for place in found.partitions)
        self._set_state(MembershipState(self.state.expulsions, joined.epoch, frozenset(assigned), joined.generation))
        self.answers += 1
        if returned:
            return self._join_with_returned(joined)
        if not version:
            return usual
        # an early answer without news: the broker is too busy to let heartbeats wait
        waited = time.monotonic() - began
        return max(0.0, wait - waited) if wait and version == before else 0.0

    def _kept(self) -> frozenset[Assignment]:
        with self._lock:
            return self._reading | self.state.assigned

    def _fetch(self, joined: requests.Joined, held: frozenset[Assignment], wait: float) -> requests.Assigned:
        request = requests.fetch_assignments(self._group, self.consumer, joined, held, seen=self._seen, wait=wait)
        answer = self._run("FetchConsumerGroupAssignments", request, joined, BrokerPlace(joined.coordinator), more=wait)
        return requests.read_assignments(answer)

    def _check_dropped_streams(self, joined: requests.Joined, subscribed: frozenset[str]) -> None:
        """Find out whether a stream that the group dropped exists again."""
        dropped = self._dropped
        dropped.learn(subscribed)
        if dropped.has_returned or dropped.seconds_left > 0:
            return
        dropped.put_off()
        try:
            dropped.has_returned = bool(self._existing(dropped.missing, joined))
        except BrokerError:
            return  # checked again later; heartbeats, which succeed, must not end because of it
        if dropped.has_returned:
            dropped.restart()

    def _existing(self, streams: tuple[str, ...], joined: requests.Joined) -> tuple[str, ...]:
        found = requests.read_existing(self._run("FetchMetadata", requests.metadata(list(streams)), joined))
        return tuple(stream for stream in streams if stream in found)

    def _join_with_returned(self, joined: requests.Joined) -> float:
        """Join again once the application has released all partitions; returns the seconds until the next heartbeat."""
        if self._frozen or self._kept():
            return min(self._dropped.put_off(), joined.consumer_timeout * HEARTBEAT_SHARE)
        self._join_again(joined, (), is_member=True)
        return 0.0

    def _recover(self, joined: requests.Joined, failure: BrokerError, silent: float) -> float:
        """Find out why a heartbeat failed; returns the seconds until the next one."""
        retry = min(RETRY_SECONDS, joined.consumer_timeout * HEARTBEAT_SHARE)
        if failure.reason in _NO_MEMBER:
            self._was_expelled(joined)
            return 0.0
        if failure.reason == "not_coordinator":
            self._pool.refresh_routes(self._deadline(joined))
        try:
            found = requests.read_group(self._run("FetchMetadata", requests.group_metadata(self._group), joined))
        except BrokerError as second:
            if second.code == "not_found":
                self._was_expelled(joined)
                return 0.0
            if second.code == "closed":
                raise
            return retry
        if (found.coordinator, found.epoch, found.generation) != (joined.coordinator, joined.epoch, joined.generation):
            self._joined = joined._replace(
                coordinator=found.coordinator, epoch=found.epoch, generation=found.generation
            )
            return 0.0
        if silent > joined.coordinator_timeout:
            self._report(joined)
        return retry

    def _was_expelled(self, joined: requests.Joined) -> None:
        """The member was expelled and lost its partitions: join again, unless it is leaving."""
        if self._frozen:
            self._stop.wait()
            return
        self._set_state(MembershipState(self.state.expulsions + 1, joined.epoch, frozenset(), joined.generation))
        self._join_again(joined, self._streams, is_member=False)

    def _join_again(self, joined: requests.Joined, streams: tuple[str, ...], *, is_member: bool) -> None:
        """Try to join until it is a member again, or leaves. Streams that do not exist are left out and treated as
        dropped. `streams`: those to try first; none = ask the broker. `is_member`: its last membership may exist still.
        After an expulsion a member of its id is another consumer, which keeps its place.
        """
        pause = _JOIN_PAUSE
        while not self._stop.is_set():
            try:
                streams = streams or self._existing(self._streams, joined)
                if streams:
                    self._enter(self._deadline(joined), streams, replace=is_member)
                    self._dropped.has_returned = False
                    return
            except BrokerError as failure:
                if failure.code == "stream_not_found":
                    streams = ()
                elif failure.code not in _TRANSIENT:
                    raise
                # it may have joined, and the answer was lost
                is_member = is_member or failure.code in ("outcome_unknown", "deadline_exceeded")
            self._stop.wait(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    def _report(self, joined: requests.Joined) -> None:
        request = requests.report_coordinator(self._group, self.consumer, joined.coordinator, joined.epoch)
        try:
            self._run("ReportConsumerGroupCoordinator", request, joined)
        except StateError:
            return  # there is no other broker, or the group has changed: the next heartbeat reports it
        except BrokerError as failure:
            if failure.code not in _TRANSIENT:
                raise

    def _run(
        self,
        method: str,
        request: bytes,
        joined: requests.Joined,
        place: BrokerPlace | None = None,
        *,
        more: float = 0.0,
    ) -> bytes:
        """One call. `more`: seconds that it may take in addition to the usual time."""
        return self._pool.run(
            self._deadline(joined, more),
            lambda native, left: native.call(method, request, left),
            place,
            repeatable=True,
        )

    def _deadline(self, joined: requests.Joined, more: float = 0.0) -> Deadline:
        return Deadline(min(max(0.1, joined.consumer_timeout * HEARTBEAT_SHARE), MAX_CALL_SECONDS - more) + more)

    def _set_state(self, state: MembershipState) -> None:
        with self._lock:
            if self._frozen or state == self.state:
                return
            self.state = state
        self._changed()


_TRANSIENT: Final = frozenset({"unavailable", "deadline_exceeded", "outcome_unknown", "busy", "not_leader"})
