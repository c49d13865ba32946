"""Write the tables of methods from specs/proto and specs/methods.toml; with --check only compare.

Needs grpcio-tools (a development dependency).
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from generate_descriptors import TARGETS, descriptors
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto

ROOT = Path(__file__).resolve().parent.parent
ANNOTATIONS = ROOT / "specs/methods.toml"
PYTHON = ROOT / "python/bascule/_methods.py"
RUST = ROOT / "crates/wire/src/methods.rs"
PROTOCOLS = {"proto.API": "liftbridge", "bascule.admin.v1.Admin": "admin"}
"""Service to the folder of python/bascule/protocols that has its handlers."""
KEYS = {"plane": str, "action": str, "resource": str, "also": list, "reads": bool, "request_bytes": int}
BOUNDED = "bascule.admin.v1.Admin"
REQUEST_BYTES = 64 << 10
WIDTH = 120


class Row(NamedTuple):
    """One method of ours: its definition, then its annotation."""

    service: str
    name: str
    request: str
    streams_requests: bool
    in_control: bool
    action: str
    resource: str
    reads: bool
    request_bytes: int | None
    also: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Of the gRPC call."""
        return f"/{self.service}/{self.name}"

    @property
    def handler(self) -> str:
        """The name by which the control plane knows it; empty = the data plane answers."""
        return f"{PROTOCOLS[self.service]}/{self.name}" if self.in_control else ""


def _definitions() -> dict[str, tuple[FileDescriptorProto, list[MethodDescriptorProto]]]:
    """The file and the methods of each service."""
    found: dict[str, tuple[FileDescriptorProto, list[MethodDescriptorProto]]] = {}
    for definition in TARGETS:
        for file in FileDescriptorSet.FromString(descriptors(definition)).file:
            found |= {f"{file.package}.{item.name}": (file, [*item.method]) for item in file.service}
    return found


def _fields(file: FileDescriptorProto, kind: str) -> set[str]:
    """Names of the fields of a message that is defined in the file."""
    name = kind.removeprefix(f".{file.package}.")
    return {field.name for item in file.message_type if item.name == name for field in item.field}


def _row(service: str, file: FileDescriptorProto, method: MethodDescriptorProto, given: dict[str, Any]) -> Row:
    """Raises: SystemExit: an annotation that the table of specs/methods.toml does not explain."""
    where = f"specs/methods.toml: {service}.{method.name}"
    for key, value in given.items():
        if type(value) is not KEYS.get(key):
            raise SystemExit(f"{where}: {key} = {value!r} is not one of {', '.join(KEYS)}, or of another type")
    plane, resource = given.get("plane"), given.get("resource", "")
    if plane not in ("control", "data") or "action" not in given:
        raise SystemExit(f'{where}: has to have an action and a plane, "control" or "data"')
    if (plane == "control") != bool(resource):
        raise SystemExit(f"{where}: a resource belongs to methods of the control plane, and to each of them")
    if resource not in ("", "*", "computed") and resource not in _fields(file, method.input_type):
        raise SystemExit(f'{where}: {method.input_type} has no field {resource}: name one, or "*" or "computed"')
    bounded = service == BOUNDED
    if "request_bytes" in given and not bounded:
        raise SystemExit(f"{where}: request_bytes bounds methods of {BOUNDED} only")
    return Row(
        service,
        method.name,
        method.input_type.removeprefix(f".{file.package}."),
        method.client_streaming,
        plane == "control",
        given["action"],
        resource,
        given.get("reads", False),
        given.get("request_bytes", REQUEST_BYTES) if bounded else None,
        tuple(given.get("also", ())),
    )


def rows(annotations: dict[str, Any]) -> list[Row]:
    """Every method of ours, in the order of the definitions.

    Raises:
        SystemExit: definitions and annotations do not belong together.
    """
    table: list[Row] = []
    for service, (file, methods) in _definitions().items():
        given = annotations.get(service, {})
        names = [method.name for method in methods]
        if missing := sorted(set(names) - given.keys()):
            raise SystemExit(f"specs/methods.toml has no line for {service}.{missing[0]}: add one")
        if strange := sorted(given.keys() - set(names)):
            raise SystemExit(f"specs/methods.toml: specs/proto has no method {service}.{strange[0]}")
        table += [_row(service, file, method, given[method.name]) for method in methods]
    if strange := sorted(annotations.keys() - _definitions().keys() - {"others"}):
        raise SystemExit(f"specs/methods.toml: specs/proto has no service {strange[0]}")
    names = [row.name for row in table]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SystemExit(f"{twice[0]} is a method of two services: the SDK finds a method by its name, choose another")
    return table


def actions(table: list[Row]) -> list[str]:
    """Every action once, in the order of the methods."""
    return [*dict.fromkeys(action for row in table for action in (row.action, *row.also))]


def _python_row(row: Row) -> str:
    texts = (f'"{text}"' for text in (row.service, row.request, row.action, row.resource))
    values = [*texts, str(row.in_control), str(row.request_bytes)]
    # broken where the formatter would break it
    line = f'    "{row.name}": Method({", ".join(values)}),'
    if len(line) > WIDTH:
        inner = f"        {', '.join(values)}"
        inner = inner if len(inner) <= WIDTH else "\n".join(f"        {value}," for value in values)
        line = f'    "{row.name}": Method(\n{inner}\n    ),'
    return line


def python(table: list[Row]) -> str:
    """The text of the module."""
    return "\n".join([
        '"""Generated from specs/proto and specs/methods.toml by specs/generate_methods.py: change them there."""',
        "",
        "from typing import Final, NamedTuple",
        "",
        '__all__ = ["ACTIONS", "METHODS", "Method"]',
        "",
        "",
        "class Method(NamedTuple):",
        '    """A method of the gRPC port.',
        "",
        "    Attributes:",
        "        service: full name of its service.",
        "        request: message of the request, in the package of the service.",
        "        action: the right in a policy that it needs.",
        "        resource: what the right is needed on, see specs/methods.toml; empty = the data plane checks.",
        "        in_control: the control plane answers it.",
        "        request_bytes: largest request message; `None` = only `limits.message_bytes` bounds it.",
        '    """',
        "",
        "    service: str",
        "    request: str",
        "    action: str",
        "    resource: str",
        "    in_control: bool",
        "    request_bytes: int | None",
        "",
        "",
        "METHODS: Final[dict[str, Method]] = {",
        *map(_python_row, table),
        "}",
        '"""By name."""',
        "",
        "ACTIONS: Final = (",
        *(f'    "{action}",' for action in actions(table)),
        ")",
        '"""Actions of policies and of errors, each once. Similar methods share one."""',
        "",
    ])  # fmt: skip


def _constant(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _rust_rows(table: list[Row], others: dict[str, dict[str, list[str]]]) -> list[str]:
    """One line for each path, sorted by it."""
    lines: dict[str, str] = {}

    def add(path: str, **values: str) -> None:
        lines[path] = ", ".join([f'path: "{path}"', *(f"{key}: {value}" for key, value in values.items())])

    for row in table:
        handler = f'Some("{row.handler}")' if row.handler else "None"
        streams, reads = str(row.streams_requests).lower(), str(row.reads).lower()
        add(row.path, is_ours="true", handler=handler, streams_requests=streams, reads=reads)
    for service, methods in others.items():
        for name in (*methods["one"], *methods["many"]):
            streams = str(name in methods["many"]).lower()
            add(f"/{service}/{name}", is_ours="false", handler="None", streams_requests=streams, reads="false")
    return [f"    Method {{ {lines[path]} }}," for path in sorted(lines)]


RUST_HEAD = """\
//! Generated from `specs/proto` and `specs/methods.toml` by `specs/generate_methods.py`: edit those, then `make fix`.

/// A method of the gRPC port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `/service/method`.
    pub path: &'static str,
    /// Whether it is defined in `specs/proto`; otherwise it belongs to Flight, health or reflection.
    pub is_ours: bool,
    /// The name by which the control plane knows it; `None` = the data plane answers.
    pub handler: Option<&'static str>,
    /// Whether the caller sends a stream of messages.
    pub streams_requests: bool,
    /// Whether it changes nothing, so that its call may be repeated. Known of our methods only.
    pub reads: bool,
}

impl Method {
    /// The place of a path in [`METHODS`].
    pub fn index(path: &str) -> Option<usize> {
        METHODS
            .binary_search_by(|method| method.path.cmp(path))
            .ok()
    }

    /// The method of a path.
    pub fn of(path: &str) -> Option<&'static Self> {
        Self::index(path).and_then(|index| METHODS.get(index))
    }

    /// The method of ours with this name, which only one service has.
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut ours = METHODS.iter().filter(|method| method.is_ours);
        ours.find(|method| method.name() == name)
    }

    /// The full name of its service.
    pub fn service(&self) -> &'static str {
        self.parts().0
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.parts().1
    }

    fn parts(&self) -> (&'static str, &'static str) {
        let path = self.path.trim_start_matches('/');
        path.split_once('/').unwrap_or_default()
    }
}
"""


def rust(table: list[Row], others: dict[str, dict[str, list[str]]]) -> str:
    """The text of the module."""
    lines = _rust_rows(table, others)
    names = actions(table)
    return "\n".join([
        RUST_HEAD,
        "/// Every method that is served, sorted by path.",
        "#[rustfmt::skip]",
        f"pub static METHODS: [Method; {len(lines)}] = [",
        *lines,
        "];",
        "",
        *(f'/// The service of `{file}`.\npub const {_constant(name)}: &str = "{service}";' for service, name, file in (
            ("proto.API", "Api", "specs/proto/liftbridge.proto"),
            ("bascule.admin.v1.Admin", "Admin", "specs/proto/bascule_admin_v1.proto"),
        )),
        "",
        *(f'/// Path of `{row.name}`.\npub const {_constant(row.name)}: &str = "{row.path}";'
          for row in table if not row.in_control),
        "",
        "/// What a policy can allow. Most methods have an action of their name; similar ones share one.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        "#[allow(missing_docs)]",
        "pub enum Action {",
        *(f"    {name}," for name in names),
        "}",
        "",
        "impl Action {",
        "    /// All of them, in the order of the enumeration.",
        f"    pub const ALL: [Self; {len(names)}] = [",
        *(f"        Self::{name}," for name in names),
        "    ];",
        "",
        "    /// The name in policies and texts.",
        "    pub const fn name(self) -> &'static str {",
        "        match self {",
        *(f'            Self::{name} => "{name}",' for name in names),
        "        }",
        "    }",
        "",
        "    /// The action of a name, which is case-sensitive.",
        "    pub fn of(name: &str) -> Option<Self> {",
        "        Self::ALL.into_iter().find(|action| action.name() == name)",
        "    }",
        "}",
        "",
    ])  # fmt: skip


def main() -> int:
    """Write or compare; returns the exit code."""
    annotations = tomllib.loads(ANNOTATIONS.read_text())
    table, stale = rows(annotations), 0
    for path, text in ((PYTHON, python(table)), (RUST, rust(table, annotations["others"]))):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what specs gives (methods.toml, proto): make fix\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
