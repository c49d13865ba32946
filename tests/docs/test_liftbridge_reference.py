"""The reference of Liftbridge's protocol is complete, and every test that it names exists."""

import contextlib
import io
import re
from functools import cache
from pathlib import Path

from bascule._liftbridge_pb import message, methods
from bascule.cli.liftbridge import command
from bascule.cli.liftbridge.keys import KEYS

from tests.docs.test_guarantees import ROWS as RIGS
from tests.docs.test_guarantees import cut_short, rigs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "liftbridge.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| |")]
LATER = "not yet: cluster"
VERDICTS = {"yes", "yes, better", LATER}
FLAGS = """
--config -c --server-id --id --namespace --ns --nats-servers -n --embedded-nats -e --embedded-nats-config --nc
--data-dir -d --port -p --tls-cert --tls-key --level -l --raft-bootstrap-seed --raft-bootstrap-peers
--help -h --version -v
"""
"""Those of liftbridge §8.4."""
SUBJECTS = """
S S.i <ns>.<stream>.<i>.replicate <ns>.<stream>.<i>.offset <ns>.notify.<serverId> <ns>.ack.<random> <ns>.activity
<ns>.cursors <ns>.cursors.<i> <ns>.raft.metadata.propagate <ns>.raft.metadata.join <ns>.raft.metadata.info
<ns>.raft.metadata.fetch.<random> <ns>.raft.metadata.status.<serverId> <ns>.raft.metadata.bootstrap
<ns>.raft.metadata.bootstrap.reply <ns>.raft.metadata.<serverId>.accept <ns>.raft.metadata.<serverId>.request.<random>
"""
"""Those of liftbridge §4.1."""


def table(heading: str) -> list[list[str]]:
    """The cells of each row of the table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@cache
def functions(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"(?:def|fn) (\w+)", (ROOT / file).read_text()))


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w./]+)::(\w+)`", PAGE)
    assert len(named) > 100
    missing = [f"{file}::{name}" for file, name in named if name not in functions(file)]
    assert not missing
    assert not [name for name in cut_short(PAGE) if "::" in name]


def test_every_rig_that_is_named_exists() -> None:
    named = set(RIGS.findall(PAGE))
    assert named
    assert named <= rigs(), f"no rig for {sorted(named - rigs())}"


def test_what_is_there_names_a_test() -> None:
    claims = [row for row in ROWS if re.search(r"\| yes(, better)? \|", row)]
    assert len(claims) > 100
    assert not [row for row in claims if "::" not in row]


def test_every_row_has_a_verdict() -> None:
    columns = {
        "Methods": 1, "Fields": 2, "Enumerations": 2, "Envelopes on NATS": 1, "Subjects": 1, "Configuration keys": 2,
        "Environment": 1, "Flags": 1,
    }  # fmt: skip
    for heading, column in columns.items():
        for row in table(heading):
            assert row[column] in VERDICTS, row


def test_what_the_original_asserts_has_a_test_or_waits_for_the_cluster() -> None:
    rows = table("Conformance") + table("Deviations")
    assert len(rows) > 60
    assert not [row for row in rows if "::" not in row[-1] and row[-1] != LATER]


def test_every_deviation_and_every_type_of_envelope_is_listed() -> None:
    assert [row[0] for row in table("Deviations")] == [f"D{number}" for number in range(1, 20)]
    types = [int(word) for row in table("Envelopes on NATS") for word in row[0].split() if word.isdigit()]
    assert sorted(types) == list(range(15))


def test_every_subject_is_listed() -> None:
    listed = {subject for row in table("Subjects") for subject in re.findall(r"`(\S+)`", row[0])} - {"group"}
    assert listed == set(SUBJECTS.split())


def test_every_value_of_every_enumeration_is_listed() -> None:
    listed = [(row[0], value) for row in table("Enumerations") for value in re.findall(r"`(\w+)`", row[1])]
    file = message("Message").DESCRIPTOR.file
    defined = dict(file.enum_types_by_name.items())
    for owner in file.message_types_by_name.values():
        defined |= {f"{owner.name}.{name}": kind for name, kind in owner.enum_types_by_name.items()}
    assert sorted(listed) == sorted((name, value.name) for name, kind in defined.items() for value in kind.values)


def test_every_flag_is_listed() -> None:
    listed = [flag for row in table("Flags") for flag in re.findall(r"`(-[\w-]+)`", row[0])]
    assert sorted(listed) == sorted(FLAGS.split())
    assert set(FLAGS.split()) <= set(liftbridge_help())


def liftbridge_help() -> list[str]:
    """Every spelling that `liftbridge --help` shows."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert command.main(["--help"]) == 0
    return re.findall(r"(?<![\w-])-{1,2}[\w-]+", shown.getvalue())


def test_every_method_is_listed() -> None:
    listed = {row.split(" | ")[0].strip("| ") for row in ROWS}
    assert not methods().keys() - listed


def test_every_field_of_every_message_is_listed() -> None:
    listed = {(row[0], name) for row in table("Fields") for name in re.findall(r"`(\w+)`", row[1])}
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
        assert f"| `LIFTBRIDGE_{name.upper().replace('.', '_')}` |" in row
