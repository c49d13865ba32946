"""Parsing of cargo's output, and repetition of failed tests."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[3] / "deploy" / "rust_tests.py"
FAILED: Final = """\
---- a::b stdout ----

thread 'a::b' panicked at crates/x.rs:1:1:

failures:
    a::b
    c

test result: FAILED. 8 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.23s

error: test failed, to rerun pass `-p one --test two`

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: 1 target failed:
    `-p one --test two`
"""
PASSED: Final = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"

Run = Callable[[list[str]], tuple[int, str]]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rust_tests", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(*given: tuple[int, str]) -> tuple[Run, list[list[str]]]:
    left, calls = list(given), []

    def run(arguments: list[str]) -> tuple[int, str]:
        calls.append(arguments)
        return left.pop(0)

    return run, calls


def test_failed_targets_and_names_are_found(script: ModuleType) -> None:
    assert script.failures(FAILED) == (["-p one --test two"], ["a::b", "c"])


@pytest.mark.parametrize(
    "output",
    [
        "error: could not compile `one`\n",
        FAILED.replace("    c\n", ""),
        FAILED.replace("    `-p one --test two`\n", ""),
        FAILED + "error: 1 target failed:\n    `-p one --lib`\n",
    ],
)
def test_an_incomplete_run_is_not_repeated(script: ModuleType, output: str) -> None:
    assert script.failures(output) == ([], [])


def test_a_run_that_passes_is_not_repeated(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = answers((0, PASSED))
    monkeypatch.setattr(script, "_run", run)
    assert script.main(["-p", "one"]) == 0
    assert calls == [["--no-fail-fast", "-p", "one"]]


def test_a_test_that_passes_alone_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, calls = answers((101, FAILED), (0, PASSED))
    monkeypatch.setattr(script, "_run", run)
    assert script.main(["--locked", "-p", "one", "-p", "other"]) == 0
    assert calls[1] == ["--locked", "-p", "one", "--test", "two", "--", "--test-threads=1", "--exact", "a::b", "c"]
    assert "unstable: a::b failed, and passed alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    "again",
    [(101, FAILED), (0, PASSED.replace("2 passed", "1 passed"))],
    ids=["fails again", "a test was not run"],
)
def test_a_test_that_fails_again_fails_the_run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, again: tuple[int, str]
) -> None:
    run, _ = answers((101, FAILED), again)
    monkeypatch.setattr(script, "_run", run)
    assert script.main(["-p", "one"]) == 101


def test_many_failures_are_not_repeated(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = answers((101, FAILED.replace("    c\n", "    c\n    d\n").replace("2 failed", "3 failed")))
    monkeypatch.setattr(script, "_run", run)
    assert script.main(["-p", "one"]) == 101
    assert len(calls) == 1
