"""TLS settings of a client, from arguments or from a URL."""

from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any, Final

from bascule.errors import UsageError

__all__ = ["Tls"]

File = str | PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The authorities that a client trusts, and its own certificate. Files are PEM.

    Attributes:
        ca: file with trusted authorities of the broker's certificate; `None` = the system's.
        cert: file with the client's certificate chain, for brokers that require one; needs `key`.
        key: file with the private key of `cert`, without a password.
        server_name: the name that the broker's certificate must have; `None` = the host of the address.
    """

    ca: File | None = None
    cert: File | None = None
    key: File | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise UsageError("invalid_argument", "a client's certificate and its key go together: give cert and key")

    def options(self) -> dict[str, Any]:
        """These settings as options of the native client."""
        given = {name: getattr(self, name) for name in NAMES}
        return {name: fspath(value) for name, value in given.items() if value is not None}


NAMES: Final = tuple(field.name for field in fields(Tls))
