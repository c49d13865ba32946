"""Rejections at the edge: each has a status, a code of the table, and itself as the reason."""

import pytest
from bascule._error_codes import CODES
from bascule.metadata.rejection import RejectionCode, rejected
from bascule.protocols.grpc_status import Status
from bascule.protocols.liftbridge.rejections import status_of_rejection


@pytest.mark.parametrize("code", RejectionCode)
def test_every_rejection_has_a_status(code: RejectionCode) -> None:
    status = status_of_rejection(rejected(code, "one sentence"))
    assert status.status not in {Status.OK, Status.INTERNAL}
    assert status.code is None or status.code in CODES
    assert status.details == {"reason": code.value}
    assert status.message


def test_a_rejection_without_a_text_of_liftbridge_keeps_its_sentence() -> None:
    status = status_of_rejection(rejected(RejectionCode.NO_ROOM, "limits.streams (3) streams exist"))
    assert (status.status, status.message) == (Status.RESOURCE_EXHAUSTED, "limits.streams (3) streams exist")
