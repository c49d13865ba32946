"""Where the schema of a decoder comes from: a file, the job file itself, or a schema registry."""

import os
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from bascule.errors import UsageError
from bascule.pipeline.model.base import Milliseconds, Part, SmallFile, exactly_one

__all__ = ["AvroSchema", "JsonSchema", "ProtobufSchema", "Registry", "read_file"]


class Registry(Part):
    """A schema registry. Values begin with a zero byte and the id of their schema, 4 bytes, big-endian."""

    url: str = Field(description="http(s)://host:port, with a path if there is one")
    subject: str | None = Field(
        default=None, description="subject of the schema; default: the stream's name and `-key` or `-value`"
    )
    version: Literal["latest"] | int = Field(
        default="latest", description="version whose columns are read; records with other versions are converted to it"
    )
    username: str | None = Field(default=None, description="user name, for a login with a password")
    password_file: SmallFile | None = Field(default=None, description="file with the password")
    password_variable: str | None = Field(default=None, description="environment variable with the password")
    token_file: SmallFile | None = Field(default=None, description="file with a bearer token")
    token_variable: str | None = Field(default=None, description="environment variable with a bearer token")
    ca_file: SmallFile | None = Field(
        default=None, description="PEM file with the authorities of the registry; default: the system's"
    )
    timeout: Milliseconds = Field(default=30_000, ge=1, description="how long a request is tried, retries included")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            url = urlsplit(value)
            fits = url.scheme in {"http", "https"} and url.hostname and url.port != 0
        except ValueError:
            fits = False
        else:
            if url.username is not None or url.password is not None:
                raise ValueError("it has a login in it: give username and passwordFile instead")
        if not fits:
            raise ValueError('it must be a URL such as "https://registry.example.org:8081"')
        return value.rstrip("/")

    @field_validator("version")
    @classmethod
    def _check_version(cls, value: Literal["latest"] | int) -> Literal["latest"] | int:
        if isinstance(value, int) and value < 1:
            raise ValueError(f"version {value} is below 1")
        return value

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        secrets = [
            name
            for name in ("password_file", "password_variable", "token_file", "token_variable")
            if getattr(self, name) is not None
        ]
        if len(secrets) > 1:
            raise ValueError("give one of passwordFile, passwordVariable, tokenFile and tokenVariable, not several")
        has_password = bool(secrets) and secrets[0].startswith("password")
        if has_password != (self.username is not None):
            raise ValueError("username goes together with passwordFile or passwordVariable")
        return self

    def authorization(self) -> str | None:
        """The value of the header `Authorization`, read now from the file or the variable; None = no login.

        Raises:
            UsageError: code `configuration_invalid`: the file cannot be read, the variable is not set.
        """
        from base64 import b64encode  # noqa: PLC0415 - only with a login

        if self.token_file is not None or self.token_variable is not None:
            return f"Bearer {_secret(self.token_file, self.token_variable)}"
        if self.username is None:
            return None
        login = f"{self.username}:{_secret(self.password_file, self.password_variable)}"
        return f"Basic {b64encode(login.encode()).decode()}"


def _secret(file: Path | None, variable: str | None) -> str:
    if file is not None:
        return read_file(file).rstrip("\r\n")
    found = os.environ.get(variable or "")
    if not found:
        raise UsageError("configuration_invalid", f"the environment variable {variable} is not set")
    return found


def read_file(file: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: code `configuration_invalid`: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as failure:
        raise UsageError("configuration_invalid", f"cannot read {file}: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError("configuration_invalid", f"{file} is not UTF-8 text") from None


class JsonSchema(Part):
    """The columns of JSON values, as Spark writes them: `id BIGINT, name STRING, tags ARRAY<STRING>`."""

    file: SmallFile | None = Field(default=None, description="file with the columns")
    inline: str | None = Field(default=None, description="the columns")

    @model_validator(mode="after")
    def _check(self) -> Self:
        exactly_one(self, "file", "inline")
        return self

    def text(self) -> str:
        """The columns; see `read_file` for errors."""
        return self.inline if self.inline is not None else read_file(self.file or Path())


class AvroSchema(Part):
    """An Avro schema as JSON. With a file or inline, values are plain Avro; with a registry they are framed."""

    file: SmallFile | None = Field(default=None, description="file with the schema, usually `.avsc`")
    inline: str | None = Field(default=None, description="the schema, as JSON text")
    registry: Registry | None = Field(default=None, description="registry that has the schema")

    @model_validator(mode="after")
    def _check(self) -> Self:
        exactly_one(self, "file", "inline", "registry")
        return self

    def text(self) -> str:
        """The schema, unless it is in a registry; see `read_file` for errors."""
        return self.inline if self.inline is not None else read_file(self.file or Path())


class ProtobufSchema(Part):
    """A Protobuf schema. With a registry, values are framed; else they are plain messages."""

    file: SmallFile | None = Field(default=None, description="`.proto` file; its imports are searched beside it")
    inline: str | None = Field(default=None, description="text of a `.proto` file")
    descriptor_set: SmallFile | None = Field(
        default=None, description="file written by `protoc --include_imports --descriptor_set_out`"
    )
    registry: Registry | None = Field(default=None, description="registry that has the schema")

    @model_validator(mode="after")
    def _check(self) -> Self:
        exactly_one(self, "file", "inline", "descriptor_set", "registry")
        return self
