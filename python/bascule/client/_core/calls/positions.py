"""Calls of the client about stored positions and consumer groups."""

from bascule.client._core import cursors, requests
from bascule.client._core.calls.unary import Calls
from bascule.client._core.routes import CursorPlace
from bascule.client._core.types import Group

__all__ = ["Positions"]


class Positions(Calls):
    """Cursors and groups."""

    def set_cursor(
        self, cursor: str, stream: str, offset: int | None, *, partition: int = 0, timeout: float | None = None
    ) -> None:
        """Store a position; returns when it is committed. The position stored last wins. At least once: a request whose
        answer is lost is sent again, and later requests of this client for the same position wait until it is answered
        or its time is up. An unanswered request may still reach the broker after later ones, for instance from the
        buffer of a broken connection; only then does the stored position move back.

        Args:
            cursor: its id, 1 to 1,024 bytes of UTF-8; each id has one position per partition. Ids that begin with
                `__group:` belong to consumer groups.
            stream: name of the stream. Whether it exists is not checked.
            offset: of the last record that was processed, 0 or more; reading continues after it. `None` = remove the
                position.
            partition: number, from 0.
            timeout: seconds; `None` = the client's.

        Raises:
            UsageError: code `invalid_argument`: an id, the partition or the offset.
            StateError: code `failed_precondition`: the broker keeps no cursors.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        cursors.store(self._pool, self._deadline(timeout), CursorPlace(cursor, stream, partition), offset)

    def fetch_cursor(self, cursor: str, stream: str, *, partition: int = 0, timeout: float | None = None) -> int | None:
        """A stored position.

        Args:
            cursor: its id.
            stream: name of the stream.
            partition: number, from 0.
            timeout: seconds; `None` = the client's.

        Returns:
            Offset of the last record that was processed. `None` if none was stored, or if the stream was deleted
            or purged since.

        Raises:
            UsageError: code `invalid_argument`: an id or the partition.
            StateError: code `failed_precondition`: the broker keeps no cursors.
            UnavailableError: no broker answered in time.
        """
        return cursors.find(self._pool, self._deadline(timeout), CursorPlace(cursor, stream, partition)).offset

    def get_group(self, group: str, *, timeout: float | None = None) -> Group:
        """A consumer group.

        Raises:
            StateError: code `not_found`: the group has no members.
            UsageError: code `invalid_argument`: the id.
            UnavailableError: no broker answered in time.
        """
        return requests.read_group(self._call("FetchMetadata", requests.group_metadata(group), timeout))

    def leave_group(self, group: str, consumer: str, *, timeout: float | None = None) -> None:
        """End the membership of a consumer, e.g. of one that died, before its session expires. Its positions are kept.

        Args:
            group: id of the group, 1 to 255 bytes.
            consumer: id of the member, 1 to 255 bytes.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `not_found`: there is no such group; `failed_precondition`: the consumer is not a member.
            UsageError: code `invalid_argument`: an id.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self._call("LeaveConsumerGroup", requests.leave_group(group, consumer), timeout)
