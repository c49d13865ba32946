"""A client of schema registries that speak the usual HTTP API (`/schemas/ids/{id}`, `/subjects/{subject}/versions/…`).

Schemas are kept in this module by registry and id, which never change their schema: Spark's workers are used again. A
registry that does not answer is an error of the task, never of a record; an id that it does not know is an error of the
record, and is asked for again after 30 s.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from bascule.errors import AccessError, StateError, UnavailableError
from bascule.pipeline.decode.failures import UNKNOWN_SCHEMA_ID, RecordError
from bascule.pipeline.model.schemas import Registry

__all__ = ["Reference", "RegisteredSchema", "RegistryClient"]

KEPT_SCHEMAS: Final = 1024
"""Schemas kept by one process; the one used longest ago is dropped."""
UNKNOWN_FOR_S: Final = 30.0
"""How long an unknown id is not asked for again."""
LARGEST_ANSWER: Final = 16 << 20
"""Largest answer that is read, in bytes."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_UNKNOWN: Final = 404
_LOGIN: Final = frozenset({401, 403})
_LATER: Final = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: Avro's full name or Protobuf's import path, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as registered. `kind`: `AVRO`, `PROTOBUF` or `JSON`."""

    kind: str
    text: str
    references: tuple[Reference, ...]
    id: int


@dataclass(frozen=True)
class RegistryClient:
    """Address and login of a registry. Has no connection, so it is cheap to pickle; its text has no login.

    Attributes:
        url: without a trailing slash.
        authorization: value of the header, or None.
        authorities: PEM text of the certificate authorities, or None for the system's.
        timeout_ms: how long a request is tried, retries included.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)
    authorities: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000

    @classmethod
    def of(cls, registry: Registry) -> "RegistryClient":
        """The client for the section of a job file. Reads the login and the authorities now, on the driver.

        Raises:
            UsageError: a file cannot be read, a variable is not set.
        """
        from bascule.pipeline.model.schemas import read_file  # noqa: PLC0415 - only here

        authorities = None if registry.ca_file is None else read_file(registry.ca_file)
        return cls(registry.url, registry.authorization(), authorities, registry.timeout)

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id; cached.

        Raises:
            RecordError: `UnknownSchemaId`: the registry has no such id.
            UnavailableError: it did not answer in time.
            AccessError: it refused the login.
            StateError: it gave another error.
        """
        key = (self.url, schema_id)
        if time.monotonic() < _unknown.get(key, 0.0):
            raise _no_such_id(self, schema_id)
        try:
            return _by_id(self, schema_id)
        except StateError as failure:
            if failure.code != "not_found":
                raise
            if len(_unknown) >= KEPT_SCHEMAS:
                _unknown.clear()
            _unknown[key] = time.monotonic() + UNKNOWN_FOR_S
            raise _no_such_id(self, schema_id) from None

    def by_version(self, subject: str, version: str | int) -> RegisteredSchema:
        """The schema of a version of a subject, or of its `latest`, which is asked for each time.

        Raises:
            StateError: code `not_found`: there is no such subject or version; other codes as `by_id`.
            UnavailableError, AccessError: as `by_id`.
        """
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return _parsed(self, answer, int(answer.get("id", -1)))

    def referenced(self, reference: Reference) -> RegisteredSchema:
        """The schema that a reference names; cached. Errors as `by_version`."""
        return _referenced(self, reference)

    def _get(self, path: str) -> dict[str, Any]:
        deadline = time.monotonic() + self.timeout_ms / 1000
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._ask(path, max(deadline - time.monotonic(), 0.05))
            except UnavailableError:
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _ask(self, path: str, timeout_s: float) -> dict[str, Any]:
        headers = {"Accept": _ACCEPT}
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        request = Request(self.url + path, headers=headers)  # noqa: S310 - the model allows http and https only
        try:
            with _opener(self.authorities)(request, timeout_s) as answer:
                body = answer.read(LARGEST_ANSWER + 1)
        except HTTPError as failure:
            with failure:
                _refused(self.url + path, failure.code, failure.read(LARGEST_ANSWER))
        except (URLError, http.client.HTTPException, OSError) as failure:
            reason = failure.reason if isinstance(failure, URLError) else failure
            if isinstance(reason, ssl.SSLCertVerificationError):
                message = f"the certificate of the schema registry {self.url} is not valid: {reason.verify_message}"
                raise AccessError("tls_failed", message) from None
            message = f"the schema registry {self.url} does not answer: {reason or type(failure).__name__}"
            raise UnavailableError("unavailable", message) from None
        return _document(self.url + path, body)


_unknown: dict[tuple[str, int], float] = {}
"""Ids that a registry does not know, and until when that is believed."""


@lru_cache(KEPT_SCHEMAS)
def _by_id(client: RegistryClient, schema_id: int) -> RegisteredSchema:
    return _parsed(client, client._get(f"/schemas/ids/{schema_id}"), schema_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@lru_cache(KEPT_SCHEMAS)
def _referenced(client: RegistryClient, reference: Reference) -> RegisteredSchema:
    return client.by_version(reference.subject, reference.version)


def _no_such_id(client: RegistryClient, schema_id: int) -> RecordError:
    return RecordError(UNKNOWN_SCHEMA_ID, f"the registry {client.url} has no schema with the id {schema_id}", schema_id)


class _NoRedirect(HTTPRedirectHandler):
    """Redirects are refused: they would carry the login to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse, so that the redirect is an error."""
        return


@lru_cache(16)
def _opener(authorities: str | None) -> Callable[[Request, float], Any]:
    context = ssl.create_default_context(cadata=authorities)
    opener = build_opener(HTTPSHandler(context=context), _NoRedirect())

    def opened(request: Request, timeout_s: float) -> Any:
        return opener.open(request, timeout=timeout_s)

    return opened


def _refused(url: str, status: int, body: bytes) -> NoReturn:
    reason = ""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        reason = f": {cast('dict[str, Any]', document).get('message', '')}"[:300].rstrip(": ")
    if status == _UNKNOWN:
        raise StateError("not_found", f"the schema registry has no {url}{reason}")
    if status in _LOGIN:
        raise AccessError("permission_denied", f"the schema registry refused the login for {url} ({status}){reason}")
    if status >= http.client.INTERNAL_SERVER_ERROR or status in _LATER:
        raise UnavailableError("unavailable", f"the schema registry answered {url} with {status}{reason}")
    raise StateError("failed_precondition", f"the schema registry answered {url} with {status}{reason}")


def _document(url: str, body: bytes) -> dict[str, Any]:
    if len(body) > LARGEST_ANSWER:
        raise StateError("failed_precondition", f"the answer of {url} is larger than {LARGEST_ANSWER} bytes")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StateError("failed_precondition", f"{url} is not a schema registry: its answer is not a JSON object")
    return cast("dict[str, Any]", document)


def _parsed(client: RegistryClient, document: dict[str, Any], schema_id: int) -> RegisteredSchema:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in document.get("references") or ()
        )
        return RegisteredSchema(
            str(document.get("schemaType") or "AVRO"), str(document["schema"]), references, schema_id
        )
    except (KeyError, TypeError, ValueError) as failure:
        message = f"the schema registry {client.url} gave a schema without a valid {failure}"
        raise StateError("failed_precondition", message) from None
