"""Commands about users of Iggy's clients; part of `commands`. They name a user by its number, never used again."""

from dataclasses import dataclass, field
from typing import TypeAlias

from bascule.metadata.json_codec import ADDED
from bascule.metadata.users import DEFAULT_TOKENS, AccessToken, Rights


@dataclass(frozen=True, slots=True)
class CreateUser:
    """A user who logs in with a password; `password`: its hash."""

    name: str
    password: str
    created_ns: int
    is_active: bool = field(default=True, metadata=ADDED)
    rights: Rights | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class UpdateUser:
    """Another name, or whether the user may log in; `None` keeps what is."""

    id: int
    name: str | None
    is_active: bool | None


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Delete the user with its tokens."""

    id: int


@dataclass(frozen=True, slots=True)
class SetUserRights:
    """Replace the rights of a user as a whole; `None` = none."""

    id: int
    rights: Rights | None


@dataclass(frozen=True, slots=True)
class SetUserPassword:
    """Replace the hash `seen`, which was checked, by the hash `password`; `None` = whatever it is."""

    id: int
    seen: str | None
    password: str


@dataclass(frozen=True, slots=True)
class CreateUserToken:
    """Add a token; those of the user that have expired at `created_ns` are removed.

    Attributes:
        id: of the user.
        token: to be added.
        created_ns: by the proposer's clock.
        most: of the user's tokens, this one included: the proposer's configuration, 1…1,000.
    """

    id: int
    token: AccessToken
    created_ns: int
    most: int = field(default=DEFAULT_TOKENS, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class DeleteUserToken:
    """Remove the token of this name."""

    id: int
    name: str


UserCommand: TypeAlias = (
    CreateUser | UpdateUser | DeleteUser | SetUserRights | SetUserPassword | CreateUserToken | DeleteUserToken
)

USER_TYPES: dict[str, type[UserCommand]] = {
    "create_user": CreateUser,
    "update_user": UpdateUser,
    "delete_user": DeleteUser,
    "set_user_rights": SetUserRights,
    "set_user_password": SetUserPassword,
    "create_user_token": CreateUserToken,
    "delete_user_token": DeleteUserToken,
}
