"""Tokens of the HTTP interface: signed by this broker, valid for an hour, for this run of it."""

import secrets
import time
import uuid
from dataclasses import dataclass
from typing import Final

import jwt

from bascule.protocols.iggy.http.exchange import GENERATIONS, Generation
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["LIFETIME_S", "Claims", "Issued", "Tokens", "generation_of"]

LIFETIME_S: Final = 3600
LEEWAY_S: Final = 5
MAX_REVOKED: Final = 100_000
_ALGORITHM: Final = "HS256"
_ISSUERS: Final = {"v1": "iggy.rs"}
_ISSUER: Final = "iggy.apache.org"
_ALL: Final = [_ISSUER, *_ISSUERS.values()]
_SPOKEN: Final[dict[int, Generation]] = {7: "sdk7", 8: "sdk8", 9: "sdk9", 10: "sdk9", 11: "v2"}
_FIRST_OF_V1B: Final = 7


@dataclass(frozen=True, slots=True)
class Issued:
    """A token; `expiry`: seconds since 1970."""

    token: str
    expiry: int


@dataclass(frozen=True, slots=True)
class Claims:
    """What a valid token says. `expiry`: seconds since 1970, `user`: id."""

    number: str
    user: int
    generation: Generation
    expiry: int

    @property
    def rest_s(self) -> int:
        """Seconds for which the token is still accepted, at least 0."""
        return max(0, self.expiry + LEEWAY_S - int(time.time()))


class Tokens:
    """Issues and checks tokens. Each broker makes another key at each start."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._revoked: dict[str, int] = {}

    def issue(self, user: int, generation: Generation) -> Issued:
        """A token for the user of this id."""
        now = int(time.time())
        issuer = _ISSUERS.get(generation, _ISSUER)
        expiry = now + LIFETIME_S
        claims = {
            "jti": str(uuid.uuid4()),
            "iss": issuer,
            "aud": issuer,
            "sub": str(user),
            "iat": now,
            "nbf": now,
            "exp": expiry,
            "gen": generation,
        }
        return Issued(jwt.encode(claims, self._key, algorithm=_ALGORITHM), expiry)

    def check(self, token: str) -> Claims:
        """What a token says.

        Raises:
            IggyError: 78: it was not issued by this run of the broker, has expired, or was revoked.
        """
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=_ALL,
                issuer=_ALL,
                leeway=LEEWAY_S,
                options={"require": ["jti", "sub", "exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError as invalid:
            raise IggyError(IggyStatus.INVALID_ACCESS_TOKEN, f"the access token is not valid: {invalid}") from invalid
        if claims["jti"] in self._revoked:
            raise IggyError(IggyStatus.INVALID_ACCESS_TOKEN, "the access token was revoked")
        return Claims(claims["jti"], int(claims["sub"]), claims["gen"], claims["exp"])

    def revoke(self, claims: Claims) -> None:
        """From now on the token of these claims is not valid."""
        now = int(time.time()) - LEEWAY_S
        if len(self._revoked) >= MAX_REVOKED:
            self._revoked = {number: expiry for number, expiry in self._revoked.items() if expiry >= now}
        if len(self._revoked) >= MAX_REVOKED:
            # All that were issued end: none of the revoked may become valid again.
            self._key, self._revoked = secrets.token_bytes(32), {}
        self._revoked[claims.number] = claims.expiry


def is_signed(token: str) -> bool:
    """Whether a token has the form of those that are issued here."""
    return token.count(".") == 2


def generation_of(version: str | None) -> Generation:
    """The generation of a client that states this version of its SDK at login; the current one without a version.

    Raises:
        IggyError: 5: a version that is not spoken.
    """
    if not version:
        return "v2"
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if major == "0" and minor.isascii() and minor.isdigit():
        number = int(minor[:4])
        if number < _FIRST_OF_V1B:
            return "v1"
        if number in _SPOKEN:
            return _SPOKEN[number]
    text = f"the client states version {version[:32]!r} of its SDK, and this broker speaks those up to 0.11"
    raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)


assert set(_SPOKEN.values()) | {"v1"} == set(GENERATIONS)
