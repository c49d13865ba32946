"""Errors: one table, its generated forms, and the exceptions made from it."""

import ast
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from bascule import errors
from bascule._error_codes import CODES
from bascule.errors import BrokerError, InternalError, OutcomeUnknownError, UsageError

ROOT = Path(__file__).resolve().parents[3]
TABLE = tomllib.loads((ROOT / "specs/errors.toml").read_text())
CLASSES = {name: getattr(errors, name) for name in errors.__all__ if name.endswith("Error")}

CODE_AS_TEXT = (
    r"\b(?:Engine)?Error::new\(\s*\"(\w+)\"",
    r"\bnative_error\(\s*\"(\w+)\"",
    r"\bNativeError::new_err\(\(\s*\"(\w+)\"",
    r"\brefuse\(\s*Code::\w+,\s*\"(\w+)\"",
    r"\bcode (?:==|!=|=) \"(\w+)\"",
    r"=> \(Code::\w+, \"(\w+)\"\)",
    r"\bCode::\w+(?: \| Code::\w+)*(?: if [^=]+(?:==[^=]+)?)? => \"(\w+)\"",
)


def test_generated_files_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "specs/generate_errors.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("code", TABLE)
def test_every_code_is_complete(code: str) -> None:
    row = TABLE[code]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert set(row) == {"text", "class", "retry", "fixer", "grpc", "http", "exit"}
    assert re.fullmatch(r"([a-z]|NATS).*[^.]", row["text"]), "one sentence in lower case without a full stop"
    assert row["class"] in CLASSES
    assert row["retry"] in {"never", "backoff", "refresh"}
    assert row["fixer"] in {"caller", "operator", "developer"}
    assert 400 <= row["http"] <= 599 or (code, row["http"]) == ("end_of_stream", 200)
    assert row["exit"] in {1, 2, 3, 4, 5, 6, 7} or (code, row["exit"]) == ("end_of_stream", 0)


def test_exit_codes_follow_the_class() -> None:
    for code, row in TABLE.items():
        if row["class"] == "UsageError":
            assert row["exit"] == 2, code
        if row["class"] == "OutcomeUnknownError":
            assert row["exit"] == 7, code
        if row["class"] == "UnavailableError":
            assert row["exit"] == 5, code
        if row["class"] == "AccessError":
            assert row["exit"] == 4, code
        if code.endswith("not_found"):
            assert row["exit"] == 3, code


@pytest.mark.parametrize("code", TABLE)
def test_every_code_makes_an_exception_that_survives_pickling(code: str) -> None:
    made = errors.error(code, "one sentence", {"offset": 118})
    assert type(made) is CLASSES[TABLE[code]["class"]]
    again = pickle.loads(pickle.dumps(made))
    assert (type(again), again.code, str(again), again.details) == (type(made), code, "one sentence", {"offset": 118})
    assert made.retry == TABLE[code]["retry"]
    assert made.exit_code == TABLE[code]["exit"]
    assert made.docs_url.endswith(code)


def test_without_a_message_the_text_of_the_table_is_used() -> None:
    assert str(errors.error("stream_exists")) == TABLE["stream_exists"]["text"]


def test_ordinary_code_catches_what_it_expects() -> None:
    assert isinstance(errors.error("invalid_argument"), ValueError)
    assert isinstance(errors.error("permission_denied"), PermissionError)
    assert isinstance(errors.error("outcome_unknown"), TimeoutError)


def test_an_unknown_code_is_an_internal_error() -> None:
    made = errors.error("no_such_code", "hm")
    assert type(made) is InternalError
    assert "no_such_code" in str(made)


@pytest.mark.parametrize(
    ("args", "code", "text", "details"),
    [
        (("busy", "wait", '{"index": 3}'), "busy", "wait", {"index": 3}),
        (("busy", "wait", ""), "busy", "wait", {}),
        (("busy", "wait", "{broken"), "busy", "wait", {"details": "{broken"}),
        (("busy", "wait", "[1]"), "busy", "wait", {"details": [1]}),
        (("busy",), "busy", TABLE["busy"]["text"], {}),
    ],
)
def test_failures_of_the_data_plane_become_exceptions(
    args: tuple[str, ...], code: str, text: str, details: dict[str, object]
) -> None:
    made = errors.from_native(Exception(*args))
    assert (made.code, str(made), made.details) == (code, text, details)


def test_the_tree_is_as_drawn() -> None:
    drawn = re.findall(r"[├└]── (\w+Error)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(set(CLASSES) - {"BrokerError"})
    assert issubclass(OutcomeUnknownError, errors.UnavailableError)
    assert all(issubclass(cls, BrokerError) for cls in CLASSES.values())


def test_rust_names_codes_by_the_generated_enumeration() -> None:
    rust = {path: path.read_text() for path in (ROOT / "crates").glob("*/src/**/*.rs")}
    used = {name for text in rust.values() for name in re.findall(r"\bErrorCode::(\w+)", text)}
    assert len(used) >= 30, "the search finds too little"
    literals = {
        str(path.relative_to(ROOT)): found
        for path, text in rust.items()
        for pattern in CODE_AS_TEXT
        if (found := re.findall(pattern, text))
    }
    assert literals == {}


def codes_in_python() -> dict[str, str]:
    found: dict[str, str] = {}
    makers = {*CLASSES, "error"}
    for path in (ROOT / "python/bascule").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                first = node.args[0]
                text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
                # `error` is also a method of loggers, whose texts are not codes.
                if name in makers and re.fullmatch(r"[a-z_]+", text):
                    found[text] = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node, ast.Compare) and getattr(node.left, "attr", "") == "code":
                for value in node.comparators:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[value.value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_every_code_in_python_is_in_the_table() -> None:
    found = codes_in_python()
    assert len(found) >= 20, "the search finds too little"
    assert {code: place for code, place in found.items() if code not in TABLE} == {}


def test_the_package_knows_the_whole_table() -> None:
    assert list(CODES) == list(TABLE)
    assert UsageError("closed").exit_code == 2
