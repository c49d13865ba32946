"""Every reference to a specification in `docs/spec` leads to a section or a row of it (see `docs/spec/README.md`)."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from bascule._liftbridge_pb import message

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
DOCUMENTS = ("liftbridge", "operations", "reliability", "replication", "spark", "storage")
TEXTS = {".md", ".proto", ".py", ".pyi", ".rs", ".sh", ".toml", ".yaml", ".yml"}
OWN_ROWS = {"liftbridge": "D", "reliability": "SPFAI"}
"""Letters of the ids of rows."""
ROWS_ALONE = {
    "docs/reliability.md": "reliability",
    "tests/checker/": "reliability",
    "tests/simulator/": "reliability",
}
"""Where the id of a row stands without the name of its document."""

_TARGET = r"(?:§\d+(?:\.\d+)*|[ADFIPS]\d{1,2}\b)"
_LIST = rf"{_TARGET}(?:(?:, | and | to |; |–){_TARGET})*"
REFERENCE = re.compile(rf"\b({'|'.join(DOCUMENTS)}) ({_LIST})")
BARE_LIST = re.compile(_LIST)
OTHERS = re.compile(r"\bRFC \d+ §\d+(?:\.\d+)*")
NO_DOCUMENT = re.compile(r"§ ?\d+(?:\.\d+)*|\b(?i:specification)(?: of \w+)?,? (?:chapter )?§?\d+(?:\.\d+)*")


def unfolded(text: str) -> str:
    """The text with each line break, and the mark of a comment after it, as one blank: a reference may cross lines."""
    return re.sub(r"\s*\n\s*(?:(?://[/!]?|#|\*) )?", " ", text)


@cache
def headings(document: str) -> frozenset[str]:
    """Numbers of the sections of a specification."""
    text = (SPEC / f"{document}.md").read_text()
    return frozenset(re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE))


@cache
def rows(document: str) -> frozenset[str]:
    """Ids of its rows: the first cells of tables, and the invariants, which stand in a paragraph."""
    text = (SPEC / f"{document}.md").read_text()
    letters = OWN_ROWS.get(document, "")
    if not letters:
        return frozenset()
    found = re.findall(rf"^\| ([{letters}]\d+) \|", text, re.MULTILINE)
    return frozenset(found) | frozenset(re.findall(r"(?:^\w+: |· )(I\d+) ", text, re.MULTILINE))


def leads_nowhere(document: str, targets: str) -> list[str]:
    """Those of a list of targets that the document does not have."""
    known = headings(document) | rows(document)
    return [target for target in re.findall(_TARGET, targets) if target.removeprefix("§") not in known]


def faults(text: str, own: str = "") -> Iterator[str]:
    """What is wrong with the references of a text; `own` is the document that it is, if it is one."""
    text = OTHERS.sub("", unfolded(text))
    for found in REFERENCE.finditer(text):
        for target in leads_nowhere(found[1], found[2]):
            yield f"`{found[0]}`: docs/spec/{found[1]}.md has no {target}"
    rest = REFERENCE.sub("", text)
    if own:
        for section in re.findall(r"§\d+(?:\.\d+)*", rest):
            if leads_nowhere(own, section):
                yield f"docs/spec/{own}.md has no {section}"
        rest = re.sub(r"§\d+(?:\.\d+)*", "", rest)
    for bare in NO_DOCUMENT.findall(rest):
        yield f"`{bare}` names no document: write as `liftbridge §3.7`"


def tracked() -> list[str]:
    """Files of text in the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = [name for name in listed.split("\0") if name]
    assert len(names) > 500
    return [name for name in names if Path(name).suffix in TEXTS and (ROOT / name).is_file()]


def test_every_reference_leads_to_a_section_or_a_row() -> None:
    wrong: list[str] = []
    count = 0
    for name in tracked():
        if name == Path(__file__).relative_to(ROOT).as_posix():
            continue
        path = ROOT / name
        text = path.read_text()
        count += len(REFERENCE.findall(unfolded(text)))
        own = path.stem if path.parent == SPEC and path.stem in DOCUMENTS else ""
        wrong += [f"{name}: {fault}" for fault in faults(text, own)]
    assert not wrong, "\n".join(wrong)
    assert count > 85


def test_ids_of_rows_that_stand_alone_are_rows() -> None:
    wrong: list[str] = []
    count = 0
    for name in tracked():
        for place, document in ROWS_ALONE.items():
            if name.startswith(place):
                ids = re.findall(rf"(?<![\w-])[{OWN_ROWS[document]}]\d{{1,2}}(?![\w-])", (ROOT / name).read_text())
                count += len(ids)
                wrong += [f"{name}: {row}" for row in ids if row not in rows(document)]
    assert count > 100
    assert not wrong


def test_documents_have_numbered_sections_and_rows() -> None:
    assert sorted(path.stem for path in SPEC.glob("*.md")) == sorted([*DOCUMENTS, "README"])
    assert {"3.15", "2.5", "13.4"} <= headings("liftbridge")
    assert all(headings(document) for document in DOCUMENTS)
    assert {f"D{number}" for number in range(1, 20)} == rows("liftbridge")
    assert {f"{letter}{number}" for letter, last in zip("SPFAI", (27, 18, 50, 18, 30), strict=True)
            for number in range(1, last + 1)} == rows("reliability")  # fmt: skip


def test_the_table_of_extension_fields_is_that_of_the_definition() -> None:
    text = (SPEC / "liftbridge.md").read_text().split("### 2.5 ")[1].split("\n---")[0]
    table = {(row[0], int(row[1]), row[2]) for row in re.findall(r"^\| (\w+) \| (\d+) \| (\w+) \|", text, re.MULTILINE)}
    proto = (ROOT / "specs" / "proto" / "liftbridge.proto").read_text()
    defined: set[tuple[str, int, str]] = set()
    for name in re.findall(r"^message (\w+) \{", proto, re.MULTILINE):
        fields = message(name).DESCRIPTOR.fields
        defined |= {(name, field.number, field.name) for field in fields if field.number >= 100}
    assert table == defined


@pytest.mark.parametrize(
    "text",
    [
        "as in liftbridge §3.99",
        "liftbridge §3.7 to §3.8, §77",
        "reliability S99",
        "liftbridge D77",
        "spark S1",
        "/// The checks (liftbridge\n/// §3.98) and more",
        "as in §3.7",
        "RFC 8878 §3.1.1 and §3.7",
        "specification 3.15",
        "(specification of Liftbridge, 13.4)",
        "Liftbridge specification, chapter 12",
    ],
)
def test_a_reference_that_leads_nowhere_is_found(text: str) -> None:
    assert list(faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "as in liftbridge §3.7, §3.8 and D5",
        "reliability §3.1, steps 4 to 7; S10",
        "/// (liftbridge\n/// §3.5)",
        "reliability F11–F17, I25",
        "Zstandard (RFC 8878 §3.1.1.2.4)",
    ],
)
def test_a_reference_that_leads_somewhere_is_none(text: str) -> None:
    assert not list(faults(text))


def test_inside_a_document_its_name_may_be_left_out() -> None:
    assert not list(faults("see §3.7", "liftbridge"))
    assert list(faults("see §3.97", "liftbridge"))
