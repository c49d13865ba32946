"""A small REST catalog of Iceberg for tests: the routes that a client needs to create, read and change tables.

Requirements are checked and updates applied by pyiceberg itself, in front of a SQL catalog that changes a row only if
the table still has the version that the change is based on; a refusal is a 409, as the specification says.
"""

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

SEPARATOR: Final = "\x1f"
"""Between the parts of a namespace in a path."""
_TABLE: Final = re.compile(r"/v1/namespaces/(?P<namespace>[^/]+)/tables/(?P<table>[^/]+)")
_TABLES: Final = re.compile(r"/v1/namespaces/(?P<namespace>[^/]+)/tables")


class RestCatalog:
    """The server. `commits` has the status of each answer to a change of a table.

    Attributes:
        uri: for the property `uri` of a catalog of the type `rest`.
        commits: in order of the answers.
        loses_answers: how many of the next changes are made and answered by 504.
    """

    def __init__(self, folder: Path) -> None:
        """Serve tables below `folder`, without a thread yet."""
        folder.mkdir(parents=True, exist_ok=True)
        sql = import_module("pyiceberg.catalog.sql")
        place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self._catalog: Any = sql.SqlCatalog("server", **place)
        self._exceptions: Any = import_module("pyiceberg.exceptions")
        self.commits: list[int] = []
        self.loses_answers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def serve(self) -> None:
        """Answer until `close`."""
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and document of an answer."""
        wrong = self._exceptions
        try:
            return self._answer(method, path, body)
        except (wrong.NoSuchTableError, wrong.NoSuchNamespaceError) as failure:
            return 404, _error(404, failure)
        except (
            wrong.TableAlreadyExistsError,
            wrong.NamespaceAlreadyExistsError,
            wrong.CommitFailedException,
        ) as failure:
            return 409, _error(409, failure)

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if (method, path) == ("GET", "/v1/config"):
            return 200, {"defaults": {}, "overrides": {}}
        if (method, path) == ("POST", "/v1/namespaces"):
            self._catalog.create_namespace(tuple(body["namespace"]), body.get("properties") or {})
            return 200, body
        if method == "POST" and (match := _TABLES.fullmatch(path)):
            return 200, self._create(_namespace(match), body)
        if match := _TABLE.fullmatch(path):
            identifier = (*_namespace(match), match["table"])
            return self._commit(identifier, body) if method == "POST" else (200, self._load(identifier))
        return 404, _error(404, LookupError(f"{method} {path} is not served"))

    def _create(self, namespace: tuple[str, ...], body: dict[str, Any]) -> dict[str, Any]:
        identifier = (*namespace, body["name"])
        if self._catalog.table_exists(identifier):
            raise self._exceptions.TableAlreadyExistsError(f"{identifier} exists")
        whole = {"location": None, "partition-spec": None, "write-order": None, **body}
        asked = import_module("pyiceberg.catalog.rest").CreateTableRequest.model_validate(whole)
        make = self._catalog._create_staged_table if asked.stage_create else self._catalog.create_table
        optional = {"partition_spec": asked.partition_spec, "sort_order": asked.write_order}
        made = make(
            identifier,
            asked.table_schema,
            asked.location,
            properties=asked.properties,
            **{name: value for name, value in optional.items() if value is not None},
        )
        return _described(made)

    def _load(self, identifier: tuple[str, ...]) -> dict[str, Any]:
        return _described(self._catalog.load_table(identifier))

    def _commit(self, identifier: tuple[str, ...], body: dict[str, Any]) -> tuple[int, Any]:
        asked = import_module("pyiceberg.table").CommitTableRequest.model_validate(
            {
                "identifier": {"namespace": identifier[:-1], "name": identifier[-1]},
                **body,
            }
        )
        table = SimpleNamespace(name=lambda: identifier)
        done = self._catalog.commit_table(table, asked.requirements, asked.updates)
        if self.loses_answers:
            self.loses_answers -= 1
            return 504, _error(504, TimeoutError("the answer is lost"))
        return 200, json.loads(done.model_dump_json(by_alias=True))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                path = self.path.partition("?")[0].replace("%1F", SEPARATOR)
                status, document = server.answer(self.command, path, body)
                if self.command == "POST" and _TABLE.fullmatch(path):
                    server.commits.append(status)
                content = b"" if self.command == "HEAD" else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_HEAD = _reply  # noqa: N815 - names of http.server

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of http.server
                """Print nothing."""

        return Handler


@contextmanager
def rest_catalog(folder: Path) -> Generator[RestCatalog]:
    """A running server, whose tables are below a folder."""
    server = RestCatalog(folder)
    thread = threading.Thread(target=server.serve, name="iceberg-rest")
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def _namespace(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(match["namespace"].split(SEPARATOR))


def _described(table: Any) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(status: int, failure: Exception) -> dict[str, Any]:
    return {"error": {"message": str(failure), "type": type(failure).__name__, "code": status}}
