"""Which folder of a Rust crate may import which. Imports go one way, also within a crate."""

import re
from collections.abc import Iterator
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
        {"integrity"},
    ],
}
"""By crate: the modules at its root, lowest level first. One of a level imports only modules of lower levels."""
UNBOUND = {"log": {"failure_tests", "format_tests", "fuzz", "lib"}}
"""Modules at the root that may import everything, and that no module imports."""

_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
_PATH = re.compile(r"(?<![\w:$])crate::(\w+)")
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


def reexports(source: Path) -> dict[str, str]:
    """By name that the crate's root re-exports: the module at the root that it comes from."""
    used = [leaf for tree in _USE.findall((source / "lib.rs").read_text()) for leaf in leaves(tree)]
    return {leaf.rsplit("::", 1)[-1]: leaf.split("::")[0] for leaf in used if "::" in leaf}


def imports(path: Path, source: Path, exported: dict[str, str]) -> Iterator[str]:
    """The modules at the crate's root that a file imports from or names in a path, its tests left out."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    tests = _TESTS.search(text)
    text = text[: tests.start()] if tests else text
    module = module_of(path, source)
    for tree in _USE.findall(text):
        for leaf in leaves(tree):
            parts: list[str] = [part.strip() for part in leaf.split("::")]
            above = parts.count("super")
            if parts[0] == "crate":
                yield exported.get(parts[1], parts[1])
            elif above > 0:
                full: list[str] = [*module[: len(module) - above], *parts[above:]]
                yield exported.get(full[0], full[0])
    named: list[str] = _PATH.findall(text)
    yield from (exported.get(name, name) for name in named)


def upward(crate: str, source: Path) -> list[str]:
    """The imports that do not go to a lower level, one line each."""
    level = {name: number for number, names in enumerate(LEVELS[crate]) for name in names}
    exported = reexports(source)
    found = set[str]()
    for path in sorted(source.rglob("*.rs")):
        own = module_of(path, source)
        if "tests" in own or own[0] in UNBOUND[crate]:
            continue
        for name in imports(path, source, exported):
            if name != own[0] and (name not in level or level[name] >= level[own[0]]):
                found.add(f"{path.relative_to(source)} imports {name}")
    return sorted(found)


@pytest.mark.parametrize("crate", LEVELS)
def test_the_levels_name_every_module_at_the_root(crate: str) -> None:
    source = CRATES / crate / "src"
    there = {module_of(path, source)[0] for path in source.rglob("*.rs")}
    named = [name for names in LEVELS[crate] for name in names]
    assert len(named) == len(set(named))
    assert there == {*named, *UNBOUND[crate]}


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


def test_tests_and_comments_may_name_everything(tmp_path: Path) -> None:
    (tmp_path / "io" / "tests").mkdir(parents=True)
    (tmp_path / "lib.rs").write_text("pub use log::Log;\n")
    (tmp_path / "io" / "tests" / "mod.rs").write_text("use crate::Log;\n")
    (tmp_path / "io" / "disk.rs").write_text(
        "//! Used by [`crate::Log`].\n\n#[cfg(test)]\nmod tests {\n    use crate::Log;\n}\n"
    )
    assert upward("log", tmp_path) == []
