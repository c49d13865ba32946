"""Passwords that nobody chose."""

import secrets
import string
from typing import Final

__all__ = ["generated_password"]

GENERATED_LENGTH: Final = 32


def generated_password() -> str:
    """32 letters and digits."""
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(GENERATED_LENGTH))
