"""Hashes of passwords: Argon2id.

They are made one at a time and off the event loop: a flood of logins takes one core at most.
"""

import asyncio
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

__all__ = ["MAX_PASSWORD_BYTES", "MIN_PASSWORD_BYTES", "Passwords"]

MIN_PASSWORD_BYTES, MAX_PASSWORD_BYTES = 3, 100


class Passwords:
    """Makes and checks hashes. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turn = asyncio.Lock()
        self._stranger = ""

    async def hashed(self, password: str) -> str:
        """The hash of a password, in PHC string format."""
        async with self._turn:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, kept: str | None, password: str) -> bool:
        """Whether `password` is the one of the hash `kept`. `None`, a user who does not exist, takes as long."""
        if len(password.encode()) > MAX_PASSWORD_BYTES:
            return False
        async with self._turn:
            if not self._stranger:
                self._stranger = await asyncio.to_thread(self._hasher.hash, secrets.token_hex())
            matches = await asyncio.to_thread(self._verify, kept or self._stranger, password)
        return matches and kept is not None

    def _verify(self, kept: str, password: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False
