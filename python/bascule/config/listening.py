"""Settings of the HTTP listener and of metrics."""

from ipaddress import ip_address
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bascule.config.value_types import FilePath

__all__ = ["OFF", "HttpSettings", "IggySettings", "MetricsSettings", "is_loopback", "parse_address"]

OFF: Final = "off"
HTTP_LISTEN: Final = "127.0.0.1:9393"
MAX_PORT: Final = 65_535


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(value: str) -> tuple[str, int]:
    """Host and port of `host:port`, with an IPv6 address in brackets.

    Raises:
        ValueError: it has another form; the message names the right one.
    """
    host, colon, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise ValueError(f'not an address to listen on: write host:port, e.g. "{HTTP_LISTEN}", or "{OFF}"')
    return host, int(port)


def _check_listen(value: object) -> object:
    """The normalized address. YAML reads `off` without quotes as a boolean."""
    if value is False or value == OFF:
        return OFF
    if not isinstance(value, str):
        raise ValueError(f'not an address to listen on: write host:port, e.g. "{HTTP_LISTEN}", or "{OFF}"')  # noqa: TRY004 (pydantic wants it)
    parse_address(value)
    return value


class HttpSettings(BaseModel):
    """The HTTP listener: probes (`/livez`, `/readyz`, `/startupz`) and `/metrics`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Annotated[str, BeforeValidator(_check_listen)] = Field(
        default=HTTP_LISTEN, description="address and port, `off` = no listener; port 0 = a free one"
    )
    allow_remote: bool = Field(
        default=False,
        description="listen where other machines can connect, which read metrics and probes without TLS and login",
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; `None` = no listener."""
        return None if self.listen == OFF else parse_address(self.listen)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if self.address is not None and not self.allow_remote and not is_loopback(self.address[0]):
            raise ValueError(
                f"http.listen is {self.listen}, where other machines could read metrics and probes in plain text and"
                " without a login: set http.allow_remote to true to allow that, or listen on 127.0.0.1"
            )
        return self


class IggySettings(BaseModel):
    """The listener for Iggy's clients, and the account that it begins with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Annotated[str, BeforeValidator(_check_listen)] = Field(
        default=OFF, description="address and port, usually 127.0.0.1:8090; `off` = no listener; port 0 = a free one"
    )
    http_listen: Annotated[str, BeforeValidator(_check_listen)] = Field(
        default=OFF,
        description="the same for clients that speak HTTP, usually 127.0.0.1:3000; needs `iggy.listen`",
    )
    quic_listen: Annotated[str, BeforeValidator(_check_listen)] = Field(
        default=OFF,
        description="the same for clients that speak QUIC, a port of UDP, usually 127.0.0.1:8080; needs `iggy.listen`",
    )
    http_max_request_bytes: int = Field(
        default=2 << 20, ge=1_000, le=128 << 20, description="largest body of a request over HTTP"
    )
    http_cors_origins: tuple[str, ...] = Field(
        default=("*",),
        description="origins whose pages may call over HTTP, as `https://app.example`; `*` = all, an empty list = none",
    )
    root_password_file: FilePath | None = Field(
        default=None,
        description="file with the password of the user `iggy`, who is made at the first start with the listener;"
        " unset = a generated password, which that start prints",
    )
    allow_default_password: bool = Field(
        default=False, description="listen where other machines can connect, with the password that everybody knows"
    )

    tokens_per_user: int = Field(
        default=100, ge=1, le=1_000, description="tokens of one user; those that have expired do not count"
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; `None` = no listener."""
        return None if self.listen == OFF else parse_address(self.listen)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """The same of HTTP."""
        return None if self.http_listen == OFF else parse_address(self.http_listen)

    @property
    def quic_address(self) -> tuple[str, int] | None:
        """The same of QUIC."""
        return None if self.quic_listen == OFF else parse_address(self.quic_listen)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        others = {"http_listen": self.http_listen, "quic_listen": self.quic_listen}
        for name, listen in others.items():
            if listen != OFF and self.address is None:
                raise ValueError(
                    f"iggy.{name} is {listen} and iggy.listen is off: set iggy.listen too, as 127.0.0.1:8090"
                )
        return self


class MetricsSettings(BaseModel):
    """Content of `/metrics`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: bool = Field(default=False, description="series of every partition beside those of the broker")
    groups: bool = Field(default=True, description="lag of every consumer group in every stream that it has read")
