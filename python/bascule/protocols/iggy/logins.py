"""Logins, and the user that a broker begins with."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from bascule._passwords import generated_password
from bascule.control import Controller
from bascule.metadata import ROOT_ID, AccessToken, CreateUser, User
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.iggy.commands import Login, Text
from bascule.protocols.iggy.lookup import user_number
from bascule.protocols.iggy.numbering import shown
from bascule.protocols.iggy.passwords import Passwords
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.statuses import IggyError, IggyStatus
from bascule.protocols.iggy.tokens import MAX_TOKEN_BYTES, digest_of

__all__ = ["ROOT", "Logins"]

ROOT: Final = "iggy"
"""Name of the user that is made at the first start with the listener."""


class Logins:
    """The handlers."""

    def __init__(self, controller: Controller, passwords: Passwords) -> None:
        self._controller = controller
        self._passwords = passwords
        self._indexed: Mapping[str, User] = {}
        self._tokens: dict[str, tuple[User, AccessToken]] = {}

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {"LOGIN_USER": self.by_name, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN": self.by_token}

    async def by_name(self, request: IggyRequest[Login]) -> bytes:
        """LOGIN_USER. An unknown name takes as long as a wrong password, and is answered with the same status."""
        asked = request.command
        checked = self._controller.state.users.get(asked.name)
        is_right = await self._passwords.is_right(checked and checked.password, asked.password)
        user = self._controller.state.users.get(asked.name)
        # While it was checked, the user may have been given another password, or be another one of the same name.
        if not is_right or user is None or checked is None or user.password != checked.password:
            raise IggyError(IggyStatus.INVALID_CREDENTIALS, f"wrong name or password, from {request.peer}")
        return await self._logged_in(user, request.timeout_s)

    async def by_token(self, request: IggyRequest[Text]) -> bytes:
        """LOGIN_WITH_PERSONAL_ACCESS_TOKEN."""
        text = request.command.text
        if not 1 <= len(text.encode()) <= MAX_TOKEN_BYTES:
            raise IggyError(IggyStatus.INVALID_TOKEN, f"a token has 1 to {MAX_TOKEN_BYTES} bytes")
        found = self._find(digest_of(text))
        if found is None:
            raise IggyError(IggyStatus.RESOURCE_NOT_FOUND, f"an unknown token, from {request.peer}")
        user, token = found
        if not token.is_valid_at(self._controller.now_ns()):
            raise IggyError(IggyStatus.TOKEN_EXPIRED, f"token {token.name!r} of user {user.name!r} has expired")
        return await self._logged_in(user, request.timeout_s)

    async def make_root(self, password: str | None, show: Callable[[str], None], timeout_s: float) -> None:
        """Make the user `iggy` unless the first user exists, under whatever name.

        Args:
            password: 3 to 100 bytes; `None` = a generated one.
            show: called with a generated one, before it is stored: a crash in between leaves one that was shown.
            timeout_s: for the entry in the metadata log.

        Raises:
            BrokerError: as `MetadataLog.propose`.
        """
        if any(user.id == ROOT_ID for user in self._controller.state.users.values()):
            return
        if password is None:
            password = generated_password()
            show(password)
        command = CreateUser(ROOT, await self._passwords.hashed(password), self._controller.now_ns())
        try:
            await self._controller.propose(command, timeout_s)
        except RejectedError as rejected:
            # Another broker of the cluster made it meanwhile.
            if rejected.rejection.code is not RejectionCode.USER_EXISTS:
                raise

    async def _logged_in(self, user: User, timeout_s: float) -> bytes:
        """The reply, once the data plane knows the user: it ends sessions of those whom it does not know."""
        if not user.is_active:
            raise IggyError(IggyStatus.USER_INACTIVE, f"user {user.name!r} is inactive")
        if self._controller.done.users.get(user.name) != user:
            deadline = asyncio.get_running_loop().time() + timeout_s
            await self._controller.carried_out(self._controller.state.index, deadline)
        return shown(user_number(user)).to_bytes(4, "little")

    def _find(self, digest: str) -> tuple[User, AccessToken] | None:
        users = self._controller.state.users
        if users is not self._indexed:
            self._tokens = {token.digest: (user, token) for user in users.values() for token in user.tokens}
            self._indexed = users
        return self._tokens.get(digest)
