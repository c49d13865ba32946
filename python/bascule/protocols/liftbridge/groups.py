"""The four calls of consumer groups (liftbridge §3.15)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bascule._liftbridge_pb import message
from bascule.control import Controller
from bascule.control.groups import Groups
from bascule.control.handover import Place, Sign
from bascule.engine import id_flaw
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_NAMESPACE, MAX_MEMBER_STREAMS, Member
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.creation_guard import CreationGuard
from bascule.protocols.liftbridge.messages import check_count, parse, serialize
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest, Handler

MAX_ID_BYTES = 255
NANOS = 1_000_000_000

_JoinRequest = message("JoinConsumerGroupRequest")
_JoinResponse = message("JoinConsumerGroupResponse")
_LeaveRequest = message("LeaveConsumerGroupRequest")
_LeaveResponse = message("LeaveConsumerGroupResponse")
_FetchRequest = message("FetchConsumerGroupAssignmentsRequest")
_FetchResponse = message("FetchConsumerGroupAssignmentsResponse")
_ReportRequest = message("ReportConsumerGroupCoordinatorRequest")
_ReportResponse = message("ReportConsumerGroupCoordinatorResponse")


class GroupMethods:
    """The handlers."""

    def __init__(self, groups: Groups, controller: Controller, creation_guard: CreationGuard) -> None:
        self._groups = groups
        self._controller = controller
        self._creation_guard = creation_guard

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {
            "JoinConsumerGroup": self.join,
            "LeaveConsumerGroup": self.leave,
            "FetchConsumerGroupAssignments": self.fetch_assignments,
            "ReportConsumerGroupCoordinator": self.report_coordinator,
        }

    async def join(self, request: AdminRequest) -> bytes:
        """JoinConsumerGroup."""
        asked = parse(_JoinRequest, request.body)
        _check_ids(groupId=asked.groupId, consumerId=asked.consumerId)
        self._check_names(asked.groupId, asked.consumerId)
        if not asked.streams:
            raise StatusError(Status.INVALID_ARGUMENT, "No streams provided")
        check_count("streams", len(asked.streams), MAX_MEMBER_STREAMS, "a member may read so many, name each once")
        streams = tuple(asked.streams)
        try:
            with self._creation_guard.group(self._controller.state, asked.groupId):
                joined = await self._groups.join(
                    asked.groupId, asked.consumerId, streams, request.timeout_s, hands_over=asked.handsOver
                )
        except RejectedError as rejection:
            status = status_of_rejection(rejection)
            if rejection.rejection.code is RejectionCode.STREAM_NOT_FOUND:
                status = StatusError(Status.FAILED_PRECONDITION, status.message, "stream_not_found")
            raise status from rejection
        except BrokerError as failure:
            raise not_applied("Failed to join consumer group", failure) from failure
        timeouts = self._groups.timeouts
        response = _JoinResponse(
            coordinator=joined.coordinator,
            epoch=joined.epoch,
            generation=joined.generation,
            joined=joined.joined,
            consumerTimeout=round(timeouts.consumer_s * NANOS),
            coordinatorTimeout=round(timeouts.coordinator_s * NANOS),
        )
        return serialize(response)

    def _check_names(self, group: str, consumer: str) -> None:
        """Check the ids of a new group and of a new member."""
        if not self._groups.exists(group) and (flaw := id_flaw(group)):
            raise StatusError(Status.INVALID_ARGUMENT, f"groupId {flaw}")
        if not self._groups.has_member(group, consumer) and (flaw := id_flaw(consumer)):
            raise StatusError(Status.INVALID_ARGUMENT, f"consumerId {flaw}")

    async def leave(self, request: AdminRequest) -> bytes:
        """LeaveConsumerGroup."""
        asked = parse(_LeaveRequest, request.body)
        _check_ids(groupId=asked.groupId, consumerId=asked.consumerId)
        try:
            await self._groups.leave(asked.groupId, asked.consumerId, request.timeout_s, asked.joined)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to leave consumer group", failure) from failure
        return serialize(_LeaveResponse())

    async def fetch_assignments(self, request: AdminRequest) -> bytes:
        """FetchConsumerGroupAssignments, which is the heartbeat too. The data plane has waited if it was asked to."""
        asked = parse(_FetchRequest, request.body)
        _check_ids(groupId=asked.groupId, consumerId=asked.consumerId)
        try:
            member = self._groups.member(asked.groupId, asked.consumerId, asked.epoch, asked.joined)
            sign = Sign(self._held(member, asked.held), asked.seenVersion)
            found = self._groups.assignments(asked.groupId, asked.consumerId, asked.epoch, sign, asked.joined)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        response = _FetchResponse(epoch=asked.epoch, version=found.version, streams=found.streams)
        for assignment in found.assignments:
            response.assignments.add(stream=assignment.stream, partitions=assignment.partitions)
        return serialize(response)

    def _held(self, member: Member, held: Sequence[Any]) -> frozenset[Place]:
        """What a member says it reads, of its streams that exist; nothing for one that does not hand over.

        Raises:
            StatusError: INVALID_ARGUMENT: more entries than a member may have streams, or more numbers than a stream
                has partitions.
        """
        if not member.hands_over:
            return frozenset()
        check_count("held", len(held), MAX_MEMBER_STREAMS, "name each stream once")
        streams = set(member.streams)
        parts = [part for part in held if part.stream in streams]
        counts = Counter[str]()
        for part in parts:
            stream = self._controller.state.stream(DEFAULT_NAMESPACE, part.stream)
            counts[part.stream] += len(part.partitions)
            most = len(stream.partitions) if stream else 0
            check_count(f"held of stream {part.stream}", counts[part.stream], most, "name each of its partitions once")
        return frozenset(Place(part.stream, number) for part in parts for number in part.partitions)

    async def report_coordinator(self, request: AdminRequest) -> bytes:
        """ReportConsumerGroupCoordinator."""
        asked = parse(_ReportRequest, request.body)
        _check_ids(groupId=asked.groupId, consumerId=asked.consumerId)
        if not asked.coordinator:
            raise StatusError(Status.INVALID_ARGUMENT, "No coordinator provided")
        try:
            await self._groups.report(
                asked.groupId, asked.consumerId, asked.coordinator, asked.epoch, request.timeout_s
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to report consumer group coordinator", failure) from failure
        return serialize(_ReportResponse())


def _check_ids(**ids: str) -> None:
    for name, value in ids.items():
        if not value:
            raise StatusError(Status.INVALID_ARGUMENT, f"No {name} provided")
    for name, value in ids.items():
        if len(value.encode()) > MAX_ID_BYTES:
            text = f"{name} is {len(value.encode())} bytes long, more than {MAX_ID_BYTES}"
            raise StatusError(Status.INVALID_ARGUMENT, text)
