"""Requests of the data plane about the HTTP interface: who a token stands for, and what is decided here."""

import json
from collections.abc import Mapping
from typing import Final

from bascule.control import Controller
from bascule.metadata import User
from bascule.protocols.iggy.fields import MalformedError
from bascule.protocols.iggy.http import access, openapi
from bascule.protocols.iggy.http.access import Tokens, generation_of
from bascule.protocols.iggy.http.bodies import BodyError
from bascule.protocols.iggy.http.exchange import GENERATIONS, Generation, HttpReply, HttpRequest, first_number, problem
from bascule.protocols.iggy.http.routes import find
from bascule.protocols.iggy.statuses import IggyError, IggyStatus
from bascule.protocols.router import AdminRequest, Handler

__all__ = ["HttpService"]

_LOGIN_BY_TOKEN: Final = "LOGIN_WITH_PERSONAL_ACCESS_TOKEN"  # noqa: S105 - a command
_BAD_TOKENS: Final = {IggyStatus.RESOURCE_NOT_FOUND, IggyStatus.INVALID_TOKEN, IggyStatus.TOKEN_EXPIRED}
_MS_PER_S: Final = 1000


class HttpService:
    """Answers them. `commands`: handlers of the binary protocol, by method."""

    def __init__(self, controller: Controller, commands: Mapping[str, Handler]) -> None:
        self._controller = controller
        self._commands = commands
        self._tokens = Tokens()
        self._document = HttpReply(200, openapi.document())

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        return {"iggyhttp/REQUEST": self.answer, "iggyhttp/AUTHENTICATE": self.authenticate}

    async def authenticate(self, request: AdminRequest) -> bytes:
        """Who a token stands for, as JSON: `user`, `generation`, and for how long that may be kept, `keep_ms`.

        Raises:
            IggyError: 78: it is not valid.
        """
        token = request.body.decode(errors="replace")
        if access.is_signed(token):
            claims = self._tokens.check(token)
            answer = {"user": claims.user, "generation": claims.generation, "keep_ms": claims.rest_s * _MS_PER_S}
        else:
            # A personal access token may be deleted at any time: it is asked about each time.
            payload = self._token_payload(token)
            try:
                number = await self._log_in_as("v2", _LOGIN_BY_TOKEN, payload, request.peer, request.timeout_s)
            except IggyError as refused:
                if refused.iggy_status in _BAD_TOKENS:
                    raise IggyError(IggyStatus.INVALID_ACCESS_TOKEN, refused.message) from refused
                raise
            answer = {"user": number, "generation": "v2", "keep_ms": 0}
        return json.dumps(answer).encode()

    async def answer(self, asked: AdminRequest) -> bytes:
        """The reply to a request.

        Raises:
            IggyError: it is refused.
        """
        request = HttpRequest.read(asked.body, asked.client, asked.peer, asked.timeout_s)
        try:
            return (await self._answer(request)).encode()
        except BodyError as wrong:
            return wrong.reply.encode()
        except MalformedError as malformed:
            return problem(400, "bad_request", str(malformed)).encode()

    async def _answer(self, request: HttpRequest) -> HttpReply:
        if request.path == ("openapi.json",):
            return self._document
        found = find(request.path)
        if not found:
            return problem(404, "not_found", f"there is no path /{'/'.join(request.path)[:200]}")
        if request.method not in found:
            allow = ", ".join(sorted(found))
            text = f"the path takes {allow}, not {request.method}"
            return problem(405, "method_not_allowed", text, allow=allow)
        route, parts = found[request.method]
        if route.handler is None:
            return problem(404, "not_found", "the data plane answers this path")
        return await route.handler(request, self, parts)

    async def run(self, request: HttpRequest, name: str, payload: bytes = b"") -> bytes:
        """The payload of the reply to a command.

        Raises:
            IggyError: it fails.
        """
        method = f"{GENERATIONS[request.generation]}/{name}"
        handler = self._commands.get(method)
        if handler is None:
            raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, f"clients of this generation have no command {name}")
        return await handler(AdminRequest(method, payload, request.peer, request.timeout_s, request.user))

    async def log_in(self, request: HttpRequest, name: str, payload: bytes, version: str | None) -> HttpReply:
        """An identity for whom a login lets in.

        Raises:
            IggyError: the login is refused, or the version is not spoken.
        """
        generation = generation_of(version)
        user = await self._log_in_as(generation, name, payload, request.peer, request.timeout_s)
        return self._identity(user, generation)

    async def refresh(self, token: str) -> HttpReply:
        """A new identity for the user of a token; that of a client of v1 can be refreshed once.

        Raises:
            IggyError: 78: the token is not valid.
        """
        claims = self._tokens.check(token)
        if not self._is_active(claims.user):
            raise IggyError(IggyStatus.INVALID_ACCESS_TOKEN, "the user is gone, or is inactive")
        reply = self._identity(claims.user, claims.generation)
        if claims.generation != "v1":
            return reply
        self._tokens.revoke(claims)
        return HttpReply(reply.status, reply.body, revoked={token: claims.rest_s})

    def log_out(self, request: HttpRequest) -> HttpReply:
        """Revokes the token of the request; a personal access token stays.

        Raises:
            IggyError: 78: it has become invalid meanwhile.
        """
        if not access.is_signed(request.token):
            return HttpReply(204)
        claims = self._tokens.check(request.token)
        self._tokens.revoke(claims)
        return HttpReply(204, revoked={request.token: claims.rest_s})

    def users(self) -> int:
        """How many there are."""
        return len(self._controller.state.users)

    def _token_payload(self, token: str) -> bytes:
        encoded = token.encode()
        if not 1 <= len(encoded) <= 255:
            raise IggyError(IggyStatus.INVALID_ACCESS_TOKEN, "the access token is not valid")
        return bytes([len(encoded)]) + encoded

    async def _log_in_as(self, generation: Generation, name: str, payload: bytes, peer: str, timeout_s: float) -> int:
        """The id of the user whom a login lets in.

        Raises:
            IggyError: it is refused.
        """
        method = f"{GENERATIONS[generation]}/{name}"
        reply = await self._commands[method](AdminRequest(method, payload, peer, timeout_s))
        return int.from_bytes(reply, "little") - first_number(generation)

    def _identity(self, user: int, generation: Generation) -> HttpReply:
        issued = self._tokens.issue(user, generation)
        number = user + first_number(generation)
        token = {"token": issued.token, "expiry": issued.expiry}
        return HttpReply(200, {"user_id": number, "access_token": token})

    def _is_active(self, user: int) -> bool:
        users: Mapping[str, User] = self._controller.state.users
        return any(each.id == user and each.is_active for each in users.values())
