"""An operator of NATS with an account and its users: nkeys, JWTs and credentials files, as written by `nsc`."""

import base64
import binascii
import json
import time
import uuid
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
"""First bytes of public keys."""
_SEED: Final = 18 << 3
_UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}


class Key:
    """An nkey."""

    def __init__(self, kind: int) -> None:
        self._kind: Final = kind
        self._private: Final = Ed25519PrivateKey.generate()

    @property
    def public(self) -> str:
        """The public key."""
        return _encoded(bytes([self._kind]) + self._private.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """The seed."""
        prefix = bytes([_SEED | self._kind >> 5, (self._kind & 31) << 3])
        return _encoded(prefix + self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """A signature."""
        return self._private.sign(data)


class User:
    """A user of an account."""

    def __init__(self, key: Key, jwt: str) -> None:
        self.key: Final = key
        self.jwt: Final = jwt

    def write(self, file: Path) -> Path:
        """The user's `.creds` file."""
        jwt = f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n"
        warning = "\n************************* IMPORTANT *************************\nNKEY Seed printed below.\n\n"
        seed = f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n------END USER NKEY SEED------\n"
        file.write_text(jwt + warning + seed)
        return file

    def options(self) -> dict[str, Any]:
        """Options of nats-py to connect as this user."""
        return {
            "user_jwt_cb": self.jwt.encode,
            "signature_cb": lambda nonce: base64.b64encode(self.key.sign(nonce.encode())),
        }


class Operator:
    """An operator with one account."""

    def __init__(self) -> None:
        self._key: Final = Key(OPERATOR)
        self._account: Final = Key(ACCOUNT)

    def configuration(self) -> str:
        """Configuration of a nats-server that trusts this operator and knows its account."""
        own = _jwt(self._key, self._key, {"type": "operator"})
        limits = {**_UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
        account = _jwt(self._key, self._account, {"type": "account", "limits": limits})
        preload = f'{{ {self._account.public}: "{account}" }}'
        return f'operator: "{own}"\nresolver: MEMORY\nresolver_preload: {preload}\n'

    def user(self, *, expires_in_s: int | None = None, **claims: Any) -> User:
        """A new user with additional `claims`."""
        key = Key(USER)
        return User(key, _jwt(self._account, key, {"type": "user", **_UNLIMITED, **claims}, expires_in_s))


def _jwt(issuer: Key, subject: Key, claims: dict[str, Any], expires_in_s: int | None = None) -> str:
    now = int(time.time())
    body = {
        "jti": uuid.uuid4().hex, "iat": now, "iss": issuer.public, "sub": subject.public, "name": claims["type"],
        "nats": {**claims, "version": 2},
    }  # fmt: skip
    if expires_in_s is not None:
        body["exp"] = now + expires_in_s
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _part(document: dict[str, Any]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encoded(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).rstrip(b"=").decode()
