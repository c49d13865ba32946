"""The reference of Liftbridge's protocol: complete, and every test it names exists."""

import re
from functools import cache
from pathlib import Path

from bascule._liftbridge_pb import message, methods
from bascule.cli.liftbridge_keys import KEYS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "liftbridge.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| |")]
LATER = "not yet"


@cache
def functions(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"(?:def|fn) (\w+)", (ROOT / file).read_text()))


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w./]+)::(\w+)`", PAGE)
    assert len(named) > 100
    missing = [f"{file}::{name}" for file, name in named if name not in functions(file)]
    assert not missing


def test_what_is_there_names_a_test() -> None:
    claims = [row for row in ROWS if re.search(r"\| yes(, better)? \|", row)]
    assert len(claims) > 100
    assert not [row for row in claims if "::" not in row]


def test_every_method_is_listed() -> None:
    listed = {row.split(" | ")[0].strip("| ") for row in ROWS}
    assert not methods().keys() - listed


def test_every_field_of_every_message_is_listed() -> None:
    listed = {
        (found[1], name)
        for row in ROWS
        if (found := re.match(r"\| (\w+) \| ((?:`\w+`(?:, )?)+) \|", row))
        for name in re.findall(r"`(\w+)`", found[2])
    }
    pool = message("Message").DESCRIPTOR.file
    defined = {
        (kind.name, field.name)
        for kind in pool.message_types_by_name.values()
        if not kind.name.startswith("Nullable")
        for field in kind.fields
    }
    assert listed == defined


def test_every_key_of_the_configuration_is_listed_with_what_becomes_of_it() -> None:
    for name, key in KEYS.items():
        (row,) = [row for row in ROWS if row.startswith(f"| `{name}` |")]
        assert (LATER in row) == bool(key.reason and not key.setting), row
        assert key.setting in row
