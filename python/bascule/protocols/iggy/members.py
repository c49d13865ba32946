"""Requests of the data plane of a broker in a cluster: connections that join and leave consumer groups of topics."""

import json
from typing import Any, Final

from bascule.control import Controller
from bascule.errors import BrokerError
from bascule.metadata import Command, JoinTopicGroup, LeaveTopicGroup
from bascule.metadata.rejection import RejectedError, Rejection, RejectionCode
from bascule.protocols.iggy.statuses import IggyError, IggyStatus, from_failure, from_rejection
from bascule.protocols.router import AdminRequest, Handler

__all__ = ["MemberRequests"]

_OVER: Final = {RejectionCode.NOT_A_MEMBER, RejectionCode.STALE_EPOCH}
"""Why a membership cannot be ended: it is over."""


class MemberRequests:
    """The handlers. Bodies are JSON: `namespace`, `stream`, `created` (of the group) and `client`, the number of the
    connection.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {"iggygroups/JOIN": self.join, "iggygroups/LEAVE": self.leave}

    async def join(self, request: AdminRequest) -> bytes:
        """Make a connection a member; answered when the data plane here knows it.

        Raises:
            IggyError: 5000: the group is gone; 1: it has no room, or the metadata log did not answer.
        """
        asked: dict[str, Any] = json.loads(request.body)

        def decision(_: int) -> Command | Rejection:
            stream = self._controller.state.stream(asked["namespace"], asked["stream"])
            if stream is None:
                return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {asked['stream']} does not exist")
            named = (stream.namespace, stream.name, stream.incarnation)
            return JoinTopicGroup(*named, asked["created"], *self._run(), asked["client"])

        try:
            await self._controller.decide(decision, request.timeout_s)
        except RejectedError as rejected:
            if rejected.rejection.code is RejectionCode.GROUP_NOT_FOUND:
                raise IggyError(IggyStatus.GROUP_ID_NOT_FOUND, rejected.rejection.message) from rejected
            raise from_rejection(rejected) from rejected
        except BrokerError as failure:
            raise from_failure(failure) from failure
        return b""

    async def leave(self, request: AdminRequest) -> bytes:
        """End a membership, if there is one.

        Raises:
            IggyError: 1: the metadata log did not answer.
        """
        asked: dict[str, Any] = json.loads(request.body)
        try:
            await self._controller.decide(
                lambda _: LeaveTopicGroup(asked["created"], *self._run(), asked["client"]), request.timeout_s
            )
        except RejectedError as rejected:
            if rejected.rejection.code not in _OVER:
                raise IggyError(IggyStatus.ERROR, rejected.rejection.message) from rejected
        except BrokerError as failure:
            raise from_failure(failure) from failure
        return b""

    def _run(self) -> tuple[str, int]:
        """The broker, and its present run."""
        broker = self._controller.broker_id
        return broker, self._controller.state.brokers[broker].boot_epoch
