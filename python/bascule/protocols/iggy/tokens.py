"""Commands about tokens that stand for the name and password of their user. The broker keeps only their digests."""

import base64
import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from bascule.control import Controller
from bascule.metadata import AccessToken, CreateUserToken, DeleteUserToken, User, too_many_tokens
from bascule.protocols.iggy.commands import CreateToken, Empty, Text
from bascule.protocols.iggy.fields import short_text
from bascule.protocols.iggy.replies import Token
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["MAX_TOKEN_BYTES", "TokenCommands", "check_token_name", "digest_of"]

MIN_NAME_BYTES, MAX_NAME_BYTES = 3, 30
MAX_TOKEN_BYTES: Final = 100
RANDOM_BYTES: Final = 50
MAX_U64: Final = (1 << 64) - 1
MAX_NS: Final = (1 << 63) - 1
"""The year 2262; what expires later never does."""
NS_PER_US: Final = 1000


class TokenCommands:
    """The handlers, and what the administration of a broker does with tokens. `most`: of one user, 1 to 1,000."""

    def __init__(self, controller: Controller, most: int) -> None:
        self._controller = controller
        self._most = most

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "GET_PERSONAL_ACCESS_TOKENS": self._list,
            "CREATE_PERSONAL_ACCESS_TOKEN": self._create,
            "DELETE_PERSONAL_ACCESS_TOKEN": self._delete,
        }

    def valid(self, user: User) -> Sequence[AccessToken]:
        """The tokens of a user that have not expired, in order of name."""
        now_ns = self._controller.now_ns()
        return [token for token in user.tokens if token.is_valid_at(now_ns)]

    def check_is_free(self, user: User, name: str) -> None:
        """Return if no valid token of the user has this name, and it may have one more.

        Raises:
            IggyError: 51, 52.
        """
        tokens = self.valid(user)
        if any(token.name == name for token in tokens):
            raise IggyError(IggyStatus.TOKEN_EXISTS, f"user {user.name!r} has a token {name!r}")
        if len(tokens) >= self._most:
            raise IggyError(IggyStatus.TOO_MANY_TOKENS, too_many_tokens(user, len(tokens), self._most))

    async def create(self, user: User, name: str, expiry_us: int, timeout_s: float) -> str:
        """A new token: 68 characters, which nobody can find out later.

        Args:
            user: whose.
            name: 3 to 30 bytes.
            expiry_us: from now on; 0 and 2^64 − 1 = never.
            timeout_s: for the entry in the metadata log.

        Raises:
            IggyError: 50.
            RejectedError: the name is taken, or there are too many.
            BrokerError: as `MetadataLog.propose`.
        """
        check_token_name(name)
        text = base64.b64encode(secrets.token_bytes(RANDOM_BYTES)).decode()
        now_ns = self._controller.now_ns()
        token = AccessToken(name, digest_of(text), _expires_ns(now_ns, expiry_us))
        await self._controller.decide(lambda now_ns: CreateUserToken(user.id, token, now_ns, self._most), timeout_s)
        return text

    async def delete(self, user: User, name: str, timeout_s: float) -> None:
        """Delete a token.

        Raises:
            RejectedError: there is none of this name.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._controller.decide(lambda _: DeleteUserToken(user.id, name), timeout_s)

    async def _list(self, request: IggyRequest[Empty]) -> bytes:
        """GET_PERSONAL_ACCESS_TOKENS: those of the caller."""
        tokens = self.valid(request.caller)
        return b"".join(Token(token.name, token.expires_ns // NS_PER_US).encode() for token in tokens)

    async def _create(self, request: IggyRequest[CreateToken]) -> bytes:
        """CREATE_PERSONAL_ACCESS_TOKEN."""
        asked = request.command
        return short_text(await self.create(request.caller, asked.name, asked.expiry, request.timeout_s))

    async def _delete(self, request: IggyRequest[Text]) -> bytes:
        """DELETE_PERSONAL_ACCESS_TOKEN."""
        await self.delete(request.caller, request.command.text, request.timeout_s)
        return b""


def check_token_name(name: str) -> None:
    """Names have 3 to 30 bytes.

    Raises:
        IggyError: 50.
    """
    if not MIN_NAME_BYTES <= len(name.encode()) <= MAX_NAME_BYTES:
        text = f"name {name[:80]!r} of a token is not between {MIN_NAME_BYTES} and {MAX_NAME_BYTES} bytes long"
        raise IggyError(IggyStatus.INVALID_TOKEN_NAME, text)


def digest_of(token: str) -> str:
    """What is kept of a token. It has 400 random bits, so a fast hash is enough."""
    return sha256(token.encode()).hexdigest()


def _expires_ns(now_ns: int, expiry_us: int) -> int:
    if expiry_us in {0, MAX_U64}:
        return 0
    expires_ns = now_ns + expiry_us * NS_PER_US
    return expires_ns if expires_ns <= MAX_NS else 0
