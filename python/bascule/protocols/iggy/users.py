"""Commands about users: their names, passwords, status and rights."""

from typing import Final

from bascule.control import Controller
from bascule.engine import name_flaw
from bascule.metadata import CreateUser, DeleteUser, Rights, SetUserPassword, SetUserRights, User
from bascule.metadata import UpdateUser as UpdateUserCommand
from bascule.protocols.iggy import commands
from bascule.protocols.iggy.commands import ChangePassword, Empty, Named, UpdatePermissions, UpdateUser
from bascule.protocols.iggy.fields import Identifier
from bascule.protocols.iggy.lookup import find_user
from bascule.protocols.iggy.passwords import MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, Passwords
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.rights import shown_user, shown_user_details, to_rights
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["UserCommands", "check_name", "check_password"]

MIN_NAME_BYTES: Final = 3
MAX_NAME_BYTES: Final = 50


class UserCommands:
    """The handlers, and what the administration of a broker does with users."""

    def __init__(self, controller: Controller, passwords: Passwords) -> None:
        self._controller = controller
        self._passwords = passwords

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "GET_USER": self._get,
            "GET_USERS": self._list,
            "CREATE_USER": self._create,
            "DELETE_USER": self._delete,
            "UPDATE_USER": self._update,
            "UPDATE_PERMISSIONS": self._update_permissions,
            "CHANGE_PASSWORD": self._change_password,
        }

    def find(self, wanted: Identifier) -> User:
        """The user of a number from 1, or of a name.

        Raises:
            IggyError: 20.
        """
        found = find_user(self._controller.state, wanted)
        if found is None:
            raise IggyError(IggyStatus.RESOURCE_NOT_FOUND, f"user {wanted!r} does not exist")
        return found

    def check_is_free(self, name: str) -> None:
        """Return if no user has this name.

        Raises:
            IggyError: 46.
        """
        if name in self._controller.state.users:
            raise IggyError(IggyStatus.USER_EXISTS, f"user {name!r} exists")

    async def create(
        self, name: str, password: str, rights: Rights | None, *, is_active: bool, timeout_s: float
    ) -> User:
        """A new user.

        Raises:
            IggyError: 43, 44, 46.
            RejectedError: there are too many, or the rights cannot be kept.
            BrokerError: as `MetadataLog.propose`.
        """
        check_name(name)
        check_password(password)
        self.check_is_free(name)
        hashed = await self._passwords.hashed(password)
        await self._controller.decide(lambda now_ns: CreateUser(name, hashed, now_ns, is_active, rights), timeout_s)
        return self.find(name)

    async def set_password(self, user: User, seen: str | None, password: str, timeout_s: float) -> None:
        """Give a user another password. `seen`: the hash that was checked; `None` = whatever it is.

        Raises:
            IggyError: 44.
            RejectedError: the user is gone, or has another password than `seen` by now.
            BrokerError: as `MetadataLog.propose`.
        """
        check_password(password)
        hashed = await self._passwords.hashed(password)
        await self._controller.decide(lambda _: SetUserPassword(user.id, seen, hashed), timeout_s)

    async def update(self, user: User, name: str | None, *, is_active: bool | None, timeout_s: float) -> None:
        """Give a user another name, or change whether it may log in; `None` keeps what is.

        Raises:
            RejectedError: the name is taken, or the first user would become inactive.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._controller.decide(lambda _: UpdateUserCommand(user.id, name, is_active), timeout_s)

    async def set_rights(self, user: User, rights: Rights | None, timeout_s: float) -> None:
        """Replace the rights of a user as a whole; `None` = none.

        Raises:
            RejectedError: it is the first user, or the rights of all users name too much.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._controller.decide(lambda _: SetUserRights(user.id, rights), timeout_s)

    async def delete(self, user: User, timeout_s: float) -> None:
        """Delete a user; its sessions end.

        Raises:
            RejectedError: it is the first user, or gone.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._controller.decide(lambda _: DeleteUser(user.id), timeout_s)

    async def _get(self, request: IggyRequest[Named]) -> bytes:
        """GET_USER; a user who does not exist is an empty answer."""
        found = find_user(self._controller.state, request.command.path[0])
        return shown_user_details(found) if found else b""

    async def _list(self, _: IggyRequest[Empty]) -> bytes:
        """GET_USERS, in the order of their numbers."""
        users = sorted(self._controller.state.users.values(), key=lambda user: user.id)
        return b"".join(map(shown_user, users))

    async def _create(self, request: IggyRequest[commands.CreateUser]) -> bytes:
        """CREATE_USER."""
        asked = request.command
        rights = to_rights(asked.permissions)
        user = await self.create(
            asked.name, asked.password, rights, is_active=asked.is_active, timeout_s=request.timeout_s
        )
        return shown_user_details(user)

    async def _delete(self, request: IggyRequest[Named]) -> bytes:
        """DELETE_USER."""
        await self.delete(self.find(request.command.path[0]), request.timeout_s)
        return b""

    async def _update(self, request: IggyRequest[UpdateUser]) -> bytes:
        """UPDATE_USER."""
        asked = request.command
        user = self.find(asked.user)
        if asked.name is not None:
            check_name(asked.name)
        if asked.name is not None or asked.is_active is not None:
            await self.update(user, asked.name, is_active=asked.is_active, timeout_s=request.timeout_s)
        return b""

    async def _update_permissions(self, request: IggyRequest[UpdatePermissions]) -> bytes:
        """UPDATE_PERMISSIONS: replaces all of them."""
        user, rights = self.find(request.command.user), to_rights(request.command.permissions)
        await self.set_rights(user, rights, request.timeout_s)
        return b""

    async def _change_password(self, request: IggyRequest[ChangePassword]) -> bytes:
        """CHANGE_PASSWORD: the current one is checked, also when the caller manages users."""
        asked = request.command
        user = self.find(asked.user)
        check_password(asked.new)
        if not await self._passwords.is_right(user.password, asked.current):
            raise IggyError(
                IggyStatus.INVALID_CREDENTIALS, f"the current password of user {user.name!r} is another one"
            )
        await self.set_password(user, user.password, asked.new, request.timeout_s)
        return b""


def check_name(name: str) -> None:
    """Names have 3 to 50 bytes, and show what they are.

    Raises:
        IggyError: 43.
    """
    if not MIN_NAME_BYTES <= len(name.encode()) <= MAX_NAME_BYTES:
        text = f"name {name[:80]!r} of a user is not between {MIN_NAME_BYTES} and {MAX_NAME_BYTES} bytes long"
        raise IggyError(IggyStatus.INVALID_USERNAME, text)
    if flaw := name_flaw(name):
        raise IggyError(IggyStatus.INVALID_USERNAME, f"name {flaw}")


def check_password(password: str) -> None:
    """Passwords have 3 to 100 bytes.

    Raises:
        IggyError: 44.
    """
    size = len(password.encode())
    if not MIN_PASSWORD_BYTES <= size <= MAX_PASSWORD_BYTES:
        text = f"a password of {size} bytes is not between {MIN_PASSWORD_BYTES} and {MAX_PASSWORD_BYTES} bytes long"
        raise IggyError(IggyStatus.INVALID_PASSWORD, text)
