"""Consumer groups: membership by the metadata log, liveness and hand-over by the coordinator, in memory.

The coordinator of a group (this broker, when the state says so) runs one timer for each membership. A successful fetch
of assignments restarts it; when it runs out, the membership is ended by an entry that names it, so that a consumer
who left and came back meanwhile is not expelled by the timer of its former self. Reports of members who cannot reach
their coordinator are counted.

Members that hand over get a version with each answer and may wait for the next one (`bascule.control.handover`).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bascule.control import decide_groups
from bascule.control.controller import Controller
from bascule.control.handover import Handover, Membership, Sign
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import Assignment, Group, LeaveGroup, Member, State
from bascule.metadata.rejection import RejectedError, Rejection, RejectionCode, rejected

EXPIRY_TIMEOUT_S = 5.0
"""How long the entry that ends a membership may take; then the timer is restarted."""


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """How long a coordinator waits for a member, and members for their coordinator; seconds, > 0."""

    consumer_s: float = 15.0
    coordinator_s: float = 15.0


class Joined(NamedTuple):
    """The answer to a join."""

    coordinator: str
    epoch: int
    generation: int
    joined: int
    """Entry that the membership began with; others may have changed the group since."""


class Reads(NamedTuple):
    """What a member reads."""

    assignments: tuple[Assignment, ...]
    version: int
    """Of the answer; 0 = the member does not hand over."""
    streams: tuple[str, ...] = ()
    """Of its membership, without those that were deleted; empty when it does not hand over."""


@dataclass(slots=True)
class _Reports:
    """Members who cannot reach the coordinator of one epoch."""

    epoch: int
    timer: asyncio.TimerHandle
    consumers: set[str] = field(default_factory=set[str])


class Groups:
    """Consumer groups as this broker serves them. All methods belong to the event loop's thread."""

    def __init__(self, controller: Controller, timeouts: GroupTimeouts) -> None:
        self.timeouts = timeouts
        self._controller = controller
        self._timers: dict[Membership, asyncio.TimerHandle] = {}
        self._reports: dict[str, _Reports] = {}
        self._expiring: set[asyncio.Task[None]] = set()
        self._known: Mapping[str, Group] = {}
        self._handovers: dict[str, Handover] = {}
        self._due: asyncio.TimerHandle | None = None
        self._version = 0
        self._running = False

    def start(self) -> None:
        """Watch over the members of all groups coordinated here; their time starts now."""
        self._running = True
        # Versions of one run mean nothing in another.
        self._version = self._controller.now_ns()
        self._controller.follow(self._follow)
        self._known = state = self._controller.state.groups
        self._keep_handovers(state, state)
        self._keep_timers(state)

    async def stop(self) -> None:
        """End all timers. Idempotent."""
        self._running = False
        for timer in [*self._timers.values(), *(item.timer for item in self._reports.values())]:
            timer.cancel()
        self._timers.clear()
        self._reports.clear()
        if self._due is not None:
            self._due.cancel()
        for task in self._expiring:
            task.cancel()
        await asyncio.gather(*self._expiring, return_exceptions=True)

    def exists(self, group: str) -> bool:
        """Whether there is a group of this id."""
        return group in self._controller.state.groups

    def has_member(self, group: str, consumer: str) -> bool:
        """Whether `consumer` is a member of `group`."""
        found = self._controller.state.groups.get(group)
        return found is not None and found.member(consumer) is not None

    async def join(
        self, group: str, consumer: str, streams: tuple[str, ...], timeout_s: float, *, hands_over: bool = False
    ) -> Joined:
        """Make `consumer` a member of `group`, which is created when there is none. Returns when subscriptions of a
        former group of this id are over, or when the time is.

        Raises:
            RejectedError: it is a member already, or a stream does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        command = decide_groups.join_group(self._controller.state, group, consumer, streams, hands_over=hands_over)
        if isinstance(command, Rejection):
            raise RejectedError(command)
        deadline = asyncio.get_running_loop().time() + timeout_s
        index = await self._controller.propose(command, timeout_s)
        found = self._controller.state.groups.get(group)
        if found is None:
            raise RejectedError(Rejection(RejectionCode.GROUP_NOT_FOUND, f"consumer group {group} does not exist"))
        await self._controller.carried_out(index, deadline)
        return Joined(found.coordinator, found.epoch, found.generation, index)

    async def leave(self, group: str, consumer: str, timeout_s: float, joined: int = 0) -> None:
        """End the membership of `consumer`, if `joined` is 0 or the entry it began with; a group without members is
        gone, and subscriptions for it end. Returns when they have, or when the time is over.

        Raises:
            RejectedError: there is no such group or no such member.
            BrokerError: as `MetadataLog.propose`.
        """
        command = decide_groups.leave_group(self._controller.state, group, consumer, expired=False, joined=joined)
        if isinstance(command, Rejection):
            raise RejectedError(command)
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._controller.carried_out(await self._controller.propose(command, timeout_s), deadline)

    def member(self, group: str, consumer: str, epoch: int, joined: int = 0) -> Member:
        """The member `consumer` of a group that this broker coordinates. `joined`: entry that its membership began
        with; 0 = not known.

        Raises:
            RejectedError: there is no such group, another broker coordinates it, the epoch is not the present one, or
                `consumer` is not a member.
        """
        found = self._controller.state.groups.get(group)
        if found is None:
            raise RejectedError(Rejection(RejectionCode.GROUP_NOT_FOUND, f"consumer group {group} does not exist"))
        if found.coordinator != self._controller.broker_id:
            raise rejected(RejectionCode.NOT_COORDINATOR, "broker is not the consumer group coordinator")
        member = found.member(consumer)
        # One that was expelled must learn that, and not adopt the epoch under which another of its id has joined.
        is_replaced = member is not None and joined not in (0, member.joined)
        if found.epoch != epoch and not is_replaced:
            text = "client-provided group epoch differs from broker group epoch"
            raise rejected(RejectionCode.STALE_EPOCH, text)
        if member is None or is_replaced:
            raise rejected(RejectionCode.NOT_A_MEMBER, "consumer is not a member of the consumer group")
        return member

    def assignments(self, group: str, consumer: str, epoch: int, sign: Sign | None = None, joined: int = 0) -> Reads:
        """What `consumer` may read; a heartbeat, with what the member says of itself.

        Raises:
            RejectedError: as `member`, or its membership is about to end; or this broker has no lease, so that another
                one may coordinate the group.
        """
        member = self.member(group, consumer, epoch, joined)
        if not self._has_lease():
            raise rejected(RejectionCode.NO_LEASE, "this broker has no lease of the cluster: ask again")
        membership = Membership(group, consumer, member.joined)
        if membership not in self._timers:
            raise rejected(RejectionCode.NOT_WATCHED, "consumer not active for server (no timer)")
        self._restart(membership)
        if not member.hands_over:
            return Reads(member.assignments, 0)
        handover, sign = self._handovers[group], sign or Sign()
        if handover.hear(member, sign, self._version + 1, asyncio.get_running_loop().time()):
            self._version += 1
            self._announce(group)
        return Reads(handover.assignments(member, sign), handover.version, member.streams)

    async def report(self, group: str, consumer: str, coordinator: str, epoch: int, timeout_s: float) -> None:
        """Note that a member cannot reach the coordinator; replace it when most members say so.

        Raises:
            RejectedError: the complaint is not about the present coordinator, or there is no other one.
            BrokerError: as `MetadataLog.propose`.
        """
        found = decide_groups.check_report(self._controller.state, group, consumer, coordinator, epoch)
        if isinstance(found, Rejection):
            raise RejectedError(found)
        reports = self._noted(found)
        reports.consumers.add(consumer)
        present = {member.id for member in found.members}
        if not decide_groups.is_quorum(len(reports.consumers & present), len(present)):
            return
        self._forget_reports(group)
        command = decide_groups.replace_coordinator(self._controller.state, found)
        if isinstance(command, Rejection):
            raise RejectedError(command)
        await self._controller.propose(command, timeout_s)

    # -- inside -----------------------------------------------------------------------------------------------------
    def _follow(self, state: State) -> None:
        """Watch over those members that are coordinated here now."""
        if not self._running or state.groups is self._known:
            return
        before, self._known = self._known, state.groups
        self._keep_handovers(before, state.groups)
        self._keep_timers(state.groups)

    def _keep_handovers(self, before: Mapping[str, Group], groups: Mapping[str, Group]) -> None:
        """Follow each group that is coordinated here and has changed; its members learn of it."""
        here, now_s = self._controller.broker_id, asyncio.get_running_loop().time()
        gone = [key for key in self._handovers if key not in groups or groups[key].coordinator != here]
        for key in gone:
            del self._handovers[key]
        changed: list[str] = []
        for key, group in groups.items():
            if group.coordinator != here or (key in self._handovers and before.get(key) is group):
                continue
            self._version += 1
            changed.append(key)
            known = before.get(key)
            is_new = known is None or known.created != group.created
            if key in self._handovers and not is_new:
                self._handovers[key].follow(group, self._version, now_s)
            else:
                self._handovers[key] = Handover(group, self._version, is_new=is_new)
        self._controller.set_group_versions([(key, 0) for key in gone])
        self._announce(*changed)

    def _announce(self, *groups: str) -> None:
        """Wake members of these groups that wait for another version, and look after whom others wait for."""
        self._controller.set_group_versions([(key, self._handovers[key].version) for key in groups])
        if self._due is not None:
            self._due.cancel()
            self._due = None
        due = [item.next_due_s(self.timeouts.consumer_s) for item in self._handovers.values()]
        times = [item for item in due if item is not None]
        if times:
            self._due = asyncio.get_running_loop().call_at(min(times), self._give_up)

    def _give_up(self) -> None:
        """Wait no more for members that did not release in time."""
        late_groups: list[str] = []
        for key, handover in self._handovers.items():
            late = handover.give_up(self.timeouts.consumer_s, self._version + 1, asyncio.get_running_loop().time())
            if not late:
                continue
            self._version += 1
            late_groups.append(key)
            for consumer in sorted({member.consumer for member in late.values()}):
                count = sum(member.consumer == consumer for member in late.values())
                text = "a member did not release partitions in time: others read them now"
                emit(30, "groups", text, group=key, consumer=consumer, partitions=count)
        self._announce(*late_groups)

    def _keep_timers(self, groups: Mapping[str, Group]) -> None:
        """Start and end timers so that they are those of the members coordinated here."""
        here = self._controller.broker_id
        wanted = {
            Membership(group.id, member.id, member.joined)
            for group in groups.values()
            if group.coordinator == here
            for member in group.members
        }
        for gone in self._timers.keys() - wanted:
            self._timers.pop(gone).cancel()
        for new in wanted - self._timers.keys():
            self._restart(new)
        for group_id, reports in list(self._reports.items()):
            group = groups.get(group_id)
            if group is None or group.epoch != reports.epoch:
                self._forget_reports(group_id)

    def _restart(self, membership: Membership) -> None:
        timer = self._timers.pop(membership, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[membership] = loop.call_later(self.timeouts.consumer_s, self._expire, membership)

    def _has_lease(self) -> bool:
        rules = self._controller.rules
        return rules is None or rules.has_lease()

    def _expire(self, membership: Membership) -> None:
        if not self._has_lease():
            self._restart(membership)  # it may be heard elsewhere
            return
        del self._timers[membership]
        task = asyncio.get_running_loop().create_task(self._expel(membership))
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _expel(self, membership: Membership) -> None:
        command = LeaveGroup(*membership, expired=True)
        try:
            await self._controller.propose(command, EXPIRY_TIMEOUT_S)
        except RejectedError:
            return  # it left by itself
        except Exception as failure:  # noqa: BLE001 - after any failure the timer must run again
            reason = str(failure) if isinstance(failure, BrokerError) else f"a defect: {failure!r}"
            fields = {"group": membership.group, "consumer": membership.consumer}
            emit(30, "groups", f"a silent member could not be removed and gets more time: {reason}", **fields)
            if self._running and self._is_member(membership):
                self._restart(membership)
            return
        emit(20, "groups", "a member was silent for too long", group=membership.group, consumer=membership.consumer)

    def _is_member(self, membership: Membership) -> bool:
        group = self._controller.state.groups.get(membership.group)
        member: Member | None = group.member(membership.consumer) if group else None
        return member is not None and member.joined == membership.joined

    def _noted(self, group: Group) -> _Reports:
        """The reports of the group's epoch; each one that is not enough gives the others more time."""
        known = self._reports.get(group.id)
        consumers = known.consumers if known is not None and known.epoch == group.epoch else set[str]()
        self._forget_reports(group.id)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.timeouts.coordinator_s, self._reports.pop, group.id, None)
        self._reports[group.id] = reports = _Reports(group.epoch, timer, consumers)
        return reports

    def _forget_reports(self, group_id: str) -> None:
        reports = self._reports.pop(group_id, None)
        if reports is not None:
            reports.timer.cancel()
