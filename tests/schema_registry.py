"""A schema registry for tests: the usual HTTP API over a real socket, with login, references and chosen failures."""

import base64
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

__all__ = ["SchemaRegistry", "schema_registry"]


@dataclass
class SchemaRegistry:
    """Schemas by id and by subject.

    Attributes:
        url: of the server.
        login: (user, password) that every request must have; None = none.
        failures: statuses of the next answers, instead of the real ones.
        asked: paths of all requests, in order.
    """

    url: str = ""
    login: tuple[str, str] | None = None
    failures: list[int] = field(default_factory=list[int])
    asked: list[str] = field(default_factory=list[str])
    _ids: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    _subjects: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Add a version to a subject; returns the id of its schema."""
        document: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = references
        found = next((number for number, known in self._ids.items() if known == document), None)
        schema_id = found or len(self._ids) + 1
        self._ids[schema_id] = document
        self._subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Status and document for a request."""
        self.asked.append(path)
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "Error in the backend data store"}
        if self.login is not None:
            wanted = base64.b64encode(":".join(self.login).encode()).decode()
            if authorization != f"Basic {wanted}":
                return 401, {"error_code": 40101, "message": "Unauthorized"}
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            document = self._ids.get(int(match[1]))
            return (200, document) if document else (404, {"error_code": 40403, "message": "Schema not found"})
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            return self._version(unquote(match[1]), match[2])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        ids = self._subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {number} not found."}
        schema_id = ids[number - 1]
        return 200, {"subject": subject, "version": number, "id": schema_id, **self._ids[schema_id]}


@contextmanager
def schema_registry() -> Generator[SchemaRegistry]:
    """A registry on a free port of 127.0.0.1 while the context lasts."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = registry.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
