"""Types of settings: numbers with units, paths, URLs of NATS servers, and parts of NATS subjects."""

import re
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from bascule._paths import parse_path
from bascule._units import parse_bytes, parse_duration_ms

__all__ = ["ByteCount", "FilePath", "Milliseconds", "NatsUrl", "Tokens"]

MAX_TOKENS_BYTES: Final = 255
NATS_SCHEMES: Final = ("nats", "tls")


def check_nats_url(value: str) -> str:
    """Return `value` if it is the URL of a NATS server: `nats://`, `tls://` or no scheme, then host and port."""
    try:
        url = urlsplit(value if "://" in value else f"nats://{value}")
        fits = url.scheme in NATS_SCHEMES and url.hostname and url.port != 0 and not re.search(r"\s", value)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            'not the URL of a NATS server: write one like "nats://10.0.0.5:4222" or "tls://nats.example.org"'
        )
    return value


def check_tokens(value: str) -> str:
    """Return `value` if it can be part of a NATS subject."""
    if any(not re.fullmatch(r"[^\s*>\x00-\x1f\x7f]+", token) for token in value.split(".")) or (
        len(value.encode()) > MAX_TOKENS_BYTES
    ):
        raise ValueError(
            "it is part of NATS subjects: write tokens joined by dots, without white space, * and >, of at most "
            f"{MAX_TOKENS_BYTES} bytes"
        )
    return value


NatsUrl = Annotated[str, AfterValidator(check_nats_url)]
Tokens = Annotated[str, AfterValidator(check_tokens)]
Milliseconds = Annotated[int, BeforeValidator(parse_duration_ms), Field(ge=0)]
ByteCount = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]
FilePath = Annotated[Path, BeforeValidator(parse_path)]
