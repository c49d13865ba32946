"""Check what must be on the machine before anything else can be installed; names each missing thing with its remedy.

`--java`: also what Spark needs, which is for the demo and the tests.
"""

import re
import shutil
import subprocess
import sys

RUST_AT_LEAST = (1, 95)
JAVA_AT_LEAST = 17


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _missing() -> list[str]:
    missing: list[str] = []
    if sys.version_info < (3, 11):  # noqa: UP036 (runs before the version is known)
        version = ".".join(map(str, sys.version_info[:2]))
        missing.append(f"Python {version} is too old: install 3.11 or newer, or name one: make PYTHON=python3.12 ...")
    if not shutil.which("cargo"):
        missing.append("cargo is not on the PATH: install Rust with rustup, then open a new shell")
    else:
        found = re.search(r"(\d+)\.(\d+)", _output("rustc", "--version"))
        if not found or tuple(map(int, found.groups())) < RUST_AT_LEAST:
            missing.append(f"rustc {found.group(0) if found else '?'} is too old: rustup update (1.95 or newer)")
    if not shutil.which("cc"):
        missing.append("no C compiler (cc), which Rust links with: install gcc or clang, e.g. apt-get install gcc")
    return missing


def _missing_java() -> list[str]:
    missing: list[str] = []
    if not shutil.which("java"):
        missing.append(
            "java is not on the PATH, and Spark needs it: install a Java 17 runtime, e.g. apt-get install"
            " openjdk-17-jre-headless"
        )
    else:
        found = re.search(r'version "(\d+)', _output("java", "-version"))
        if not found or int(found.group(1)) < JAVA_AT_LEAST:
            missing.append(f"java {found.group(1) if found else '?'} is too old for Spark 4: install Java 17 or newer")
    return missing


if __name__ == "__main__":
    problems = [*_missing(), *(_missing_java() if "--java" in sys.argv[1:] else ())]
    for problem in problems:
        print(f"missing: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)
