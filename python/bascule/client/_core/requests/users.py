"""Requests about users of Iggy's clients of `bascule.admin.v1`. No I/O."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from bascule._admin_pb import message
from bascule.client._core.requests.bounds import INT64_MAX
from bascule.errors import UsageError

__all__ = [
    "create_token",
    "create_user",
    "delete_token",
    "delete_user",
    "fetch_users",
    "set_password",
    "set_rights",
    "set_status",
]

Places: TypeAlias = Iterable[tuple[str, str, tuple[str, ...]]]
"""Stream, topic and rights of each grant; empty = everywhere, the stream as a whole."""


def fetch_users(name: str) -> bytes:
    """A FetchUsersRequest; empty = all."""
    return message("FetchUsersRequest")(name=name).SerializeToString()


def create_user(name: str, password: str, grants: Places, *, dry_run: bool) -> bytes:
    """A CreateUserRequest."""
    request = message("CreateUserRequest")(name=name, password=password, grants=_grants(grants), dry_run=dry_run)
    return request.SerializeToString()


def delete_user(name: str, *, dry_run: bool) -> bytes:
    """A DeleteUserRequest."""
    return message("DeleteUserRequest")(name=name, dry_run=dry_run).SerializeToString()


def set_password(name: str, password: str, *, dry_run: bool) -> bytes:
    """A SetUserPasswordRequest."""
    request = message("SetUserPasswordRequest")(name=name, password=password, dry_run=dry_run)
    return request.SerializeToString()


def set_status(name: str, *, is_active: bool, dry_run: bool) -> bytes:
    """A SetUserStatusRequest."""
    return message("SetUserStatusRequest")(name=name, is_active=is_active, dry_run=dry_run).SerializeToString()


def set_rights(name: str, grants: Places, *, dry_run: bool) -> bytes:
    """A SetUserRightsRequest."""
    return message("SetUserRightsRequest")(name=name, grants=_grants(grants), dry_run=dry_run).SerializeToString()


def create_token(user: str, name: str, expires_in_ms: int, *, dry_run: bool) -> bytes:
    """A CreateUserTokenRequest.

    Raises:
        UsageError: code `invalid_argument`: the expiry is not from 0 to 2⁶³ − 1.
    """
    if not 0 <= expires_in_ms <= INT64_MAX:
        raise UsageError("invalid_argument", f"expires_in_ms is {expires_in_ms}: it must be from 0 to {INT64_MAX}")
    request = message("CreateUserTokenRequest")(user=user, name=name, expires_in_ms=expires_in_ms, dry_run=dry_run)
    return request.SerializeToString()


def delete_token(user: str, name: str, *, dry_run: bool) -> bytes:
    """A DeleteUserTokenRequest."""
    return message("DeleteUserTokenRequest")(user=user, name=name, dry_run=dry_run).SerializeToString()


def _grants(places: Places) -> list[Any]:
    grant = message("Grant")
    return [grant(stream=stream, topic=topic, rights=rights) for stream, topic, rights in places]
