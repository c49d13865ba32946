"""Which folder of a Rust crate may import which. Imports go one way, also within a crate."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

CRATES = Path(__file__).resolve().parents[2] / "crates"

LEVELS = {
    "log": [
        {"error", "failpoint", "options"},
        {"io"},
        {"segment"},
        {"state"},
        {"read", "wal"},
        {"commit"},
        {"log"},
        {"maintain", "recovery"},
        {"integrity", "replicas"},
    ],
    "broker": [
        {
            "budget",
            "clock",
            "disk_full",
            "grpc_status",
            "grpc_timeout",
            "limits",
            "names",
            "owner_only",
            "statistics",
            "user_rights",
        },
        {"slots"},
        {"events"},
        {"encryption", "groups", "holds", "nats/client", "stage", "tls"},
        {"access"},
        {"admission", "partition", "watchdog"},
        {"cursor_index", "forward/item", "forward/outcome", "metadata", "run_state", "view"},
        {"user_caller"},
        {"forward/server"},
        {"consensus", "nats/connections", "republish/marks"},
        {"ingest/nats", "peer"},
        {"republish"},
        {"nats"},
        {"forward", "replication", "subscriptions"},
        {"client_requests", "resume"},
        {"checks", "flight", "liftbridge"},
        {"lag"},
        {"engine/manifest", "metrics"},
        {"engine/directory"},
        {"engine/created"},
        {"engine/error"},
        {"cluster", "engine/serve", "tools"},
        {"http"},
        {"iggy"},
        {"engine"},
    ],
}
"""By crate: the modules at its root, lowest level first; a path with a slash has a level of its own. A module imports
only from lower levels."""
UNBOUND = {"log": {"failure_tests", "format_tests", "fuzz", "lib"}, "broker": {"fuzz", "ingest", "lib"}}
"""Modules at the root that may import everything, and that no module imports."""

_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
_PATH = re.compile(r"(?<![\w:$])crate::(\w+(?:::\w+)*)")
_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod tests \{", re.MULTILINE)


def leaves(tree: str) -> list[str]:
    """The paths in a use tree: `a::{b, c::{d, self}}` has `a::b`, `a::c::d` and `a::c::self`."""
    tree = re.sub(r" as \w+", "", tree).strip()
    opening = tree.find("{")
    if opening < 0:
        return [tree]
    head, inside = tree[:opening], tree[opening + 1 : tree.rindex("}")]
    parts, depth, part = list[str](), 0, ""
    for character in inside:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [head + leaf for part in [*parts, part] if part.strip() for leaf in leaves(part)]


def module_of(path: Path, source: Path) -> list[str]:
    parts = list(path.relative_to(source).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "mod" else parts


def room(module: list[str], rooms: Collection[str]) -> str:
    """The longest path of a module that has a level, or its first part."""
    paths = ["/".join(module[:length]) for length in range(len(module), 0, -1)]
    return next((path for path in paths if path in rooms), module[0])


def reexports(source: Path) -> dict[str, str]:
    """By name that the crate's root re-exports: the module at the root that it comes from."""
    used = [leaf for tree in _USE.findall((source / "lib.rs").read_text()) for leaf in leaves(tree)]
    return {leaf.rsplit("::", 1)[-1]: leaf.split("::")[0] for leaf in used if "::" in leaf}


def imports(path: Path, source: Path, exported: dict[str, str]) -> Iterator[list[str]]:
    """The paths within the crate that a file imports or names, its tests left out."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    tests = _TESTS.search(text)
    text = text[: tests.start()] if tests else text
    module = module_of(path, source)
    for tree in _USE.findall(text):
        for leaf in leaves(tree):
            parts: list[str] = [part.strip() for part in leaf.split("::")]
            above = parts.count("super")
            if parts[0] == "crate":
                yield [exported.get(parts[1], parts[1]), *parts[2:]]
            elif above > 0:
                full: list[str] = [*module[: len(module) - above], *parts[above:]]
                yield [exported.get(full[0], full[0]), *full[1:]]
    named: list[str] = _PATH.findall(text)
    for name in named:
        first, *others = name.split("::")
        yield [exported.get(first, first), *others]


def upward(crate: str, source: Path) -> list[str]:
    """The imports that do not go to a lower level, one line each."""
    level = {name: number for number, names in enumerate(LEVELS[crate]) for name in names}
    exported = reexports(source)
    found = set[str]()
    for path in sorted(source.rglob("*.rs")):
        module = module_of(path, source)
        own = room(module, level)
        if "tests" in module or (own not in level and own in UNBOUND[crate]):
            continue
        for imported in imports(path, source, exported):
            name = room(imported, level)
            if name != own and (name not in level or level[name] >= level[own]):
                found.add(f"{path.relative_to(source)} imports {name}")
    return sorted(found)


@pytest.mark.parametrize("crate", LEVELS)
def test_the_levels_name_every_module_at_the_root(crate: str) -> None:
    source = CRATES / crate / "src"
    there = {module_of(path, source)[0] for path in source.rglob("*.rs")}
    named = [name for names in LEVELS[crate] for name in names]
    assert len(named) == len(set(named))
    assert there == {*(name for name in named if "/" not in name), *UNBOUND[crate]}
    for name in named:
        assert (source / name).is_dir() or (source / f"{name}.rs").is_file(), name


@pytest.mark.parametrize("crate", LEVELS)
def test_imports_go_to_lower_levels_only(crate: str) -> None:
    assert upward(crate, CRATES / crate / "src") == []


@pytest.mark.parametrize(
    "line",
    [
        "use crate::maintain::retention::mark_removed;",
        "use crate::{Error, maintain::retention::mark_removed};",
        "use super::super::maintain::retention;",
        "use crate::{\n    Error,\n    Log,\n};",
        "fn f() { crate::maintain::f(); }",
    ],
)
def test_an_upward_import_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "io").mkdir()
    (tmp_path / "lib.rs").write_text("mod io;\npub use error::Error;\npub use log::{Appended, Log};\n")
    (tmp_path / "io" / "disk.rs").write_text(f"use crate::Error;\nuse super::files::Files;\n{line}\n")
    assert len(upward("log", tmp_path)) == 1


def test_a_part_of_a_module_has_a_level_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "nats" / "client").mkdir(parents=True)
    (tmp_path / "lib.rs").write_text("mod nats;\n")
    (tmp_path / "nats" / "link.rs").write_text("use super::client::Client;\nuse crate::partition::Partition;\n")
    client = tmp_path / "nats" / "client" / "dial.rs"
    client.write_text("use super::options::Options;\nuse super::super::link::NatsLink;\n")
    assert upward("broker", tmp_path) == ["nats/client/dial.rs imports nats"]
    client.write_text("use crate::nats::NatsLink;\n")
    assert upward("broker", tmp_path) == ["nats/client/dial.rs imports nats"]


def test_tests_and_comments_may_name_everything(tmp_path: Path) -> None:
    (tmp_path / "io" / "tests").mkdir(parents=True)
    (tmp_path / "lib.rs").write_text("pub use log::Log;\n")
    (tmp_path / "io" / "tests" / "mod.rs").write_text("use crate::Log;\n")
    (tmp_path / "io" / "disk.rs").write_text(
        "//! Used by [`crate::Log`].\n\n#[cfg(test)]\nmod tests {\n    use crate::Log;\n}\n"
    )
    assert upward("log", tmp_path) == []
