"""Calls of the client about users of Iggy's clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from bascule._admin_pb import message
from bascule.client._core.calls.unary import Calls
from bascule.client._core.requests import users as requests

__all__ = ["IggyGrant", "IggyToken", "IggyUser", "IggyUsers"]


@dataclass(frozen=True, slots=True)
class IggyGrant:
    """Rights of a user on one place."""

    rights: tuple[str, ...]
    """Names of docs/reference/iggy.md, such as `poll_messages`."""
    stream: str = ""
    """Empty = everywhere. In answers `#` and the number of one that does not exist."""
    topic: str = ""
    """Empty = the stream as a whole."""


@dataclass(frozen=True, slots=True)
class IggyToken:
    """A text that stands for the name and password of a user."""

    name: str
    expires_ns: int
    """Nanoseconds since 1970; 0 = never."""


@dataclass(frozen=True, slots=True)
class IggyUser:
    """A user of Iggy's clients."""

    name: str
    number: int
    """From 1; 1 is the first user, who may do everything."""
    is_active: bool
    """Whether the user may log in."""
    created_ns: int
    """Nanoseconds since 1970."""
    grants: tuple[IggyGrant, ...]
    tokens: tuple[IggyToken, ...]
    """Those that have not expired, in order of name."""

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a User of FetchUsers."""
        return cls(
            name=found.name,
            number=found.number,
            is_active=found.is_active,
            created_ns=found.created_ns,
            grants=tuple(IggyGrant(tuple(item.rights), item.stream, item.topic) for item in found.grants),
            tokens=tuple(IggyToken(item.name, item.expires_ns) for item in found.tokens),
        )


class IggyUsers(Calls):
    """Users of Iggy's clients, on a broker that serves them (`iggy.listen`)."""

    def iggy_users(self, *, timeout: float | None = None) -> list[IggyUser]:
        """All users, in the order of their numbers.

        Raises:
            StateError: code `failed_precondition`: the broker does not serve Iggy's clients.
            CapacityError: code `busy`: the answer would be too large.
            UnavailableError: no broker answered in time.
        """
        return self._iggy_users("", timeout)

    def iggy_user(self, name: str, *, timeout: float | None = None) -> IggyUser:
        """One user.

        Raises:
            StateError: code `not_found`; `failed_precondition`: the broker does not serve Iggy's clients.
            UnavailableError: no broker answered in time.
        """
        return self._iggy_users(name, timeout)[0]

    def create_iggy_user(
        self,
        name: str,
        password: str,
        grants: Sequence[IggyGrant] = (),
        *,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Create a user who may log in.

        Args:
            name: 3 to 50 bytes.
            password: 3 to 100 bytes.
            grants: its rights; several on one place are joined.
            dry_run: only return if it would work.
            timeout: seconds; `None` = the client's.

        Returns:
            The number that clients see; 0 with `dry_run`.

        Raises:
            UsageError: code `invalid_argument`: the name, the password or a right.
            StateError: code `already_exists`; `not_found`: a stream or topic of a grant; `failed_precondition`: the
                broker does not serve Iggy's clients.
            CapacityError: there are too many users or grants.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.create_user(name, password, _places(grants), dry_run=dry_run)
        number: int = message("CreateUserResponse").FromString(self._call("CreateUser", request, timeout)).number
        return number

    def delete_iggy_user(self, name: str, *, dry_run: bool = False, timeout: float | None = None) -> None:
        """Delete a user. Its sessions end.

        Raises:
            StateError: code `not_found`; `failed_precondition`: it is the first user, or the broker does not serve
                Iggy's clients.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self._call("DeleteUser", requests.delete_user(name, dry_run=dry_run), timeout)

    def set_iggy_password(
        self, name: str, password: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> None:
        """Give a user another password. Its sessions and tokens stay.

        Args:
            name: of the user.
            password: 3 to 100 bytes.
            dry_run: only return if it would work.
            timeout: seconds; `None` = the client's.

        Raises:
            UsageError: code `invalid_argument`: the password.
            StateError: code `not_found`; `failed_precondition`: the broker does not serve Iggy's clients.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.set_password(name, password, dry_run=dry_run)
        self._call("SetUserPassword", request, timeout, repeatable=True)

    def set_iggy_status(
        self, name: str, is_active: bool, *, dry_run: bool = False, timeout: float | None = None
    ) -> None:
        """Allow or forbid a user to log in. The sessions of one who may not end.

        Args:
            name: of the user.
            is_active: whether it may log in.
            dry_run: only return if it would work.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `not_found`; `failed_precondition`: it is the first user, who stays active, or the broker
                does not serve Iggy's clients.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.set_status(name, is_active=is_active, dry_run=dry_run)
        self._call("SetUserStatus", request, timeout, repeatable=True)

    def set_iggy_grants(
        self, name: str, grants: Sequence[IggyGrant], *, dry_run: bool = False, timeout: float | None = None
    ) -> None:
        """Replace all rights of a user. Open sessions have them at their next command.

        Args:
            name: of the user.
            grants: its rights; several on one place are joined, none = no rights.
            dry_run: only return if it would work.
            timeout: seconds; `None` = the client's.

        Raises:
            UsageError: code `invalid_argument`: a right.
            StateError: code `not_found`: the user, or a stream or topic of a grant; `failed_precondition`: it is the
                first user, who has all rights, or the broker does not serve Iggy's clients.
            CapacityError: there are too many grants.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.set_rights(name, _places(grants), dry_run=dry_run)
        self._call("SetUserRights", request, timeout, repeatable=True)

    def create_iggy_token(
        self,
        user: str,
        name: str,
        *,
        expires_in_ms: int = 0,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> str:
        """Create a token that logs in as the user.

        Args:
            user: whose.
            name: 3 to 30 bytes.
            expires_in_ms: from now on; 0 = never.
            dry_run: only return if it would work.
            timeout: seconds; `None` = the client's.

        Returns:
            The token, which the broker does not keep; empty with `dry_run`.

        Raises:
            UsageError: code `invalid_argument`: the name, or the expiry.
            StateError: code `not_found`: the user; `already_exists`: the token; `failed_precondition`: the broker does
                not serve Iggy's clients.
            CapacityError: the user has as many tokens as `iggy.tokens_per_user`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.create_token(user, name, expires_in_ms, dry_run=dry_run)
        token: str = (
            message("CreateUserTokenResponse").FromString(self._call("CreateUserToken", request, timeout)).token
        )
        return token

    def delete_iggy_token(self, user: str, name: str, *, dry_run: bool = False, timeout: float | None = None) -> None:
        """Delete a token of a user. Sessions that it began stay.

        Raises:
            StateError: code `not_found`: the user or the token; `failed_precondition`: the broker does not serve Iggy's
                clients.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self._call("DeleteUserToken", requests.delete_token(user, name, dry_run=dry_run), timeout)

    def _iggy_users(self, name: str, timeout: float | None) -> list[IggyUser]:
        answer = message("FetchUsersResponse").FromString(self._call("FetchUsers", requests.fetch_users(name), timeout))
        return [IggyUser.of(item) for item in answer.users]


def _places(grants: Sequence[IggyGrant]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(item.stream, item.topic, item.rights) for item in grants]
