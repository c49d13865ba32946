"""Run `cargo test` with the given arguments; tests that failed are run once more, alone, and each of them is named.

For tests over real sockets, processes and clocks, which a busy machine can upset. What passes alone is reported as
unstable and is a defect to be fixed; more than `AT_MOST` such tests fail the run. Tests that judge what was stored run
through plain `cargo test`: a record that was lost once is lost.
"""

import re
import subprocess
import sys
from typing import Final

AT_MOST: Final = 2
"""Unstable tests in one run, inclusive, that do not fail it."""

_TARGET: Final = re.compile(r"^    `(-p \S+ (?:--lib|--test \S+))`$", re.MULTILINE)
_NAMES: Final = re.compile(r"^failures:\n((?:    \S+\n)+)\ntest result: FAILED", re.MULTILINE)
_BROKEN: Final = re.compile(r"^test result: FAILED\. \d+ passed; (\d+) failed", re.MULTILINE)
_PASSED: Final = re.compile(r"^test result: ok\. (\d+) passed", re.MULTILINE)


def failures(output: str) -> tuple[list[str], list[str]]:
    """The targets that failed, as cargo's flags, and the names of the tests; both empty if some are not known."""
    targets = [found.group(1) for found in _TARGET.finditer(output)]
    names = [name.strip() for block in _NAMES.findall(output) for name in block.splitlines()]
    is_complete = len(names) == sum(int(count) for count in _BROKEN.findall(output))
    whole = is_complete and len(_BROKEN.findall(output)) == len(targets)
    return (targets, names) if whole and names else ([], [])


def _run(arguments: list[str]) -> tuple[int, str]:
    command = ["cargo", "test", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as cargo:
        assert cargo.stdout
        lines: list[str] = []
        for line in cargo.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
    return cargo.returncode, "".join(lines)


def _passes_alone(arguments: list[str], targets: list[str], names: list[str]) -> bool:
    passed = 0
    for target in targets:
        without = [
            word for word, before in zip(arguments, ["", *arguments], strict=False) if "-p" not in (word, before)
        ]
        code, output = _run([*without, *target.split(), "--", "--test-threads=1", "--exact", *names])
        if code != 0:
            return False
        passed += sum(int(count) for count in _PASSED.findall(output))
    return passed >= len(names)


def main(arguments: list[str]) -> int:
    """The exit code: zero where every test passed, at most `AT_MOST` of them only alone."""
    code, output = _run(["--no-fail-fast", *arguments])
    if code == 0:
        return 0
    targets, names = failures(output)
    if not names or len(names) > AT_MOST or not _passes_alone(arguments, targets, names):
        return code
    for name in names:
        print(f"unstable: {name} failed, and passed alone: fix it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
