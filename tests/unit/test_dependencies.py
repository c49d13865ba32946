"""Who may depend on whom: the table of the architecture, enforced."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "bascule"
OURS = {
    "bascule-record", "bascule-log", "bascule-wire", "bascule-replica", "bascule-broker", "bascule-client",
    "bascule-native",
}  # fmt: skip

CRATES = {
    "record": set[str](),
    "log": {"bascule-record"},
    "wire": {"bascule-record"},
    "replica": {"bascule-record"},
    "client": {"bascule-record", "bascule-wire"},
    "broker": {"bascule-record", "bascule-log", "bascule-replica", "bascule-wire"},
    "native": {"bascule-broker", "bascule-client", "bascule-wire"},
    "native-failpoints": {"bascule-native"},
    "rig": {"bascule-record", "bascule-log"},
    "shim": set[str](),
    "sim": {"bascule-log", "bascule-record"},
    "fuzz": {"bascule-record", "bascule-log", "bascule-wire", "bascule-broker", "bascule-client"},
}
"""What of ours each crate may use."""

NO_NETWORK = {"tokio", "tokio-stream", "tonic", "tonic-prost", "tower", "async-nats", "http", "http-body", "pyo3"}
NO_DISK = {"rustix", "tempfile"}

SERVER_PARTS = ("bascule.control", "bascule.metadata", "bascule.protocols", "bascule.server", "bascule.security")
IMPURE = {
    "asyncio", "concurrent", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
PURE = [
    *sorted(path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "metadata").glob("*.py")),
    "control/decide.py",
    "control/reconcile.py",
    "control/specs.py",
    "lake/commit_record.py",
    "lake/epochs.py",
    "lake/iceberg/state.py",
    "lake/ranges.py",
]

CLIENT_ROOMS = ("_core", "producer", "consumer", "sync", "_iggy", "aio", "tooling")
"""Rooms of `bascule.client`: each imports from itself and from those before it."""

CLI_ROOMS = (
    "render",
    "records",
    ("command_group", "connection", "contexts", "interrupts", "options", "parameters", "prompt", "slow_notice"),
    "liftbridge",
    "commands",
    "app",
    "liftbridge.command",
)
"""The same of `bascule.cli`; modules in one place of the order may import each other."""


def cargo(crate: str) -> dict[str, object]:
    return tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text())


def dependencies(crate: str) -> set[str]:
    names = cargo(crate).get("dependencies", {})
    assert isinstance(names, dict)
    return {str(name) for name in names}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def imports(path: Path) -> set[str]:
    """Absolute names of everything that a module imports, also inside functions and for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((PACKAGE / folder).rglob("*.py"))]


def within(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def test_the_table_names_every_crate() -> None:
    assert {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")} == set(CRATES)


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_uses_only_what_it_may(crate: str) -> None:
    assert dependencies(crate) & OURS <= CRATES[crate]


@pytest.mark.parametrize("crate", ["record", "log", "wire", "replica"])
def test_codecs_and_storage_know_no_network(crate: str) -> None:
    assert not dependencies(crate) & NO_NETWORK


@pytest.mark.parametrize("crate", ["record", "wire", "replica"])
def test_codecs_touch_no_disk(crate: str) -> None:
    assert not dependencies(crate) & NO_DISK
    for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
        assert "std::fs" not in path.read_text(), path
        assert "std::net" not in path.read_text(), path


def test_replication_has_no_clock_and_no_unordered_maps() -> None:
    for path in (ROOT / "crates" / "replica" / "src").rglob("*.rs"):
        for word in ("std::time", "SystemTime", "HashMap", "HashSet", "rand", "std::thread"):
            assert not re.search(rf"\b{word}\b", path.read_text()), (path, word)


def test_only_native_and_the_simulators_crate_know_python() -> None:
    assert {crate for crate in CRATES if "pyo3" in dependencies(crate)} == {"native", "sim"}


def test_only_the_engine_imports_the_data_plane() -> None:
    importers = [
        path.relative_to(PACKAGE).as_posix()
        for path in modules("")
        if any(within(name, ("bascule._native",)) for name in imports(path))
    ]
    assert importers == ["engine.py"]


@pytest.mark.parametrize("name", PURE)
def test_decisions_are_pure(name: str) -> None:
    used = imports(PACKAGE / name)
    assert not {module.partition(".")[0] for module in used} & IMPURE
    assert not {module for module in used if within(module, ("bascule.engine", "bascule.logs", "bascule.server"))}


@pytest.mark.parametrize("folder", ["client", "lake", "pipeline", "spark"])
def test_what_users_import_needs_no_part_of_the_server(folder: str) -> None:
    paths = modules(folder)
    assert len(paths) > 5
    for path in paths:
        assert not {name for name in imports(path) if within(name, SERVER_PARTS)}, path


def test_rooms_of_the_client_import_downwards() -> None:
    """Only `__init__`, which is the public door, imports from every room."""
    folder = PACKAGE / "client"
    assert {path.stem for path in folder.iterdir() if path.stem not in {"__init__", "__pycache__"}} == set(CLIENT_ROOMS)
    for path in modules("client"):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        allowed = CLIENT_ROOMS[: CLIENT_ROOMS.index(room) + 1]
        used = {name for name in imports(path) if within(name, ("bascule.client",)) and name != "bascule.client"}
        assert not {name for name in used if name.split(".")[2] not in allowed}, path


def test_rooms_of_the_command_line_import_downwards() -> None:
    """Entry points (`__init__`, `__main__`) import what they start, and inside their function only."""
    order = {
        room: rank for rank, rooms in enumerate(CLI_ROOMS) for room in ([rooms] if isinstance(rooms, str) else rooms)
    }

    def rank(name: str) -> int:
        """Of a module by its name within `bascule.cli`, of the longest room that it is in."""
        parts = name.split(".")
        return next(order[room] for end in (2, 1) if (room := ".".join(parts[:end])) in order)

    for path in modules("cli"):
        if path.stem in {"__init__", "__main__"}:
            continue
        used = {name.removeprefix("bascule.cli.") for name in imports(path) if name.startswith("bascule.cli.")}
        assert not {
            name
            for name in used
            if rank(name) > rank(".".join(path.relative_to(PACKAGE / "cli").with_suffix("").parts))
        }, path


@pytest.mark.parametrize("folder", ["cli", "spark", "server", "testing", "control", "protocols"])
def test_private_rooms_of_the_client_are_its_own(folder: str) -> None:
    for path in modules(folder):
        assert not {name for name in imports(path) if name.startswith("bascule.client._")}, path


def test_the_command_line_needs_the_server_to_serve_and_to_read_metadata_only() -> None:
    importers = {path.name for path in modules("cli") if any(within(name, SERVER_PARTS) for name in imports(path))}
    assert importers == {"serve.py", "log_names.py"}
    used = imports(PACKAGE / "cli/commands/log_names.py")
    assert not {name for name in used if within(name, SERVER_PARTS) and not within(name, ("bascule.metadata",))}


@pytest.mark.parametrize("folder", ["protocols", "metadata"])
def test_protocol_handlers_do_not_touch_the_data_plane(folder: str) -> None:
    for path in modules(folder):
        assert not {name for name in imports(path) if within(name, ("bascule._native",))}, path


def test_the_spark_source_needs_nothing_but_pyarrow_on_executors() -> None:
    for path in modules("spark"):
        # The sink computes digests; it and the reports of positions call methods of the administrative service.
        if path.parent.name != "sink" and path.name != "admin_calls.py":
            assert not {name for name in imports(path) if within(name, ("bascule.engine", "bascule.client"))}, path
