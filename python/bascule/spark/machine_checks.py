"""Checks of a machine on which Spark reads streams: interpreters, packages, Java, settings, the broker.

Each check answers in one line, and one that fails or warns says what to do.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from bascule.errors import BrokerError, StateError
from bascule.spark import java
from bascule.spark.connection import Broker
from bascule.spark.connection_options import ADDRESS
from bascule.spark.sessions import SETTINGS
from bascule.spark.unreached import shown_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Outcome = Literal["ok", "warning", "failed"]
Setting = Callable[[str], str | None]

EXTRA: Final = "pip install 'bascule[spark]'"
_PACKAGES: Final = (("pyspark", (4, 3), (4, 4)), ("pyarrow", (21,), None), ("pandas", (2, 2), (3,)))
"""Packages, each with its oldest version and the first that is too new."""
_WORKER_PROGRAM: Final = """
import sys
missing = []
for name in ("bascule.spark", "pyspark", "pyarrow"):
    try:
        __import__(name)
    except ImportError:
        missing.append(name.partition(".")[0])
print("%d.%d" % sys.version_info[:2], *missing)
"""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_WAIT_S: Final = 30.0
_REQUEST_MS: Final = 5_000


@dataclass(frozen=True)
class Finding:
    """The result of one check. `remedy` is empty if the outcome is ok."""

    check: str
    outcome: Outcome
    found: str
    remedy: str = ""


_MASTER: Final = re.compile(
    r"local|local\[(\*|\d+)(,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|[a-z0-9]+://.+"
)
"""Master URLs that Spark knows, or that a cluster manager of the user's may add."""


def doctor(
    spark: "SparkSession | None" = None, *, address: str | None = None, master: str = "local[*]"
) -> list[Finding]:
    """Check whether Spark can read streams here.

    Args:
        spark: a session whose settings are checked; None = those that `bascule.spark.session` would make, with the
            file `spark-defaults.conf`.
        address: the broker, as in the option `address`; None = none is asked.
        master: the master URL, for None as session.

    Raises:
        UsageError: the address is not one.
    """
    setting: Setting = _of_defaults() if spark is None else _of_session(spark)
    findings = [_driver_python(), *_packages(), _workers(setting, spark is None), _java(), _spark_home()]
    findings += [_ports(), *_master(master if spark is None else str(spark.sparkContext.master))]
    findings += _settings(setting, is_made=spark is None)
    if address is not None:
        findings.append(_broker(ADDRESS.read(address)))
    return findings


def _driver_python() -> Finding:
    found = f"Python {sys.version_info.major}.{sys.version_info.minor} ({sys.executable})"
    return Finding("Python of the driver", "ok", found)


def _packages() -> Iterator[Finding]:
    for name, oldest, too_new in _PACKAGES:
        wanted = f"{_dotted(oldest)} or newer" + (f", before {_dotted(too_new)}" if too_new else "")
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(name, "failed", "not installed", EXTRA)
            continue
        numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        if numbers < oldest or (too_new is not None and numbers >= too_new):
            yield Finding(name, "failed", f"{found}, needed is {wanted}", EXTRA)
        else:
            yield Finding(name, "ok", found)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)


def _workers(setting: Setting, is_made: bool) -> Finding:
    """The interpreter that executors start, as far as it is on this machine."""
    check = "Python of the workers"
    given = setting("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    interpreter = given or (sys.executable if is_made else "python3")
    path = shutil.which(interpreter)
    remedy = f"set PYSPARK_PYTHON={sys.executable}"
    if path is None:
        return Finding(check, "failed", f"there is no {interpreter} on this machine", remedy)
    try:
        shown = subprocess.run(
            [path, "-c", _WORKER_PROGRAM], capture_output=True, text=True, check=True, timeout=_WAIT_S, errors="replace"
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as failure:
        return Finding(check, "failed", f"{path} does not run: {failure}", remedy)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if shown[0] != own:
        found = f"{path} is Python {shown[0]}, that of the driver is {own}: Spark needs the same one"
        return Finding(check, "failed", found, remedy)
    if missing := shown[1:]:
        return Finding(check, "failed", f"{path} lacks {', '.join(missing)}", f"{remedy}, or there {EXTRA}")
    return Finding(check, "ok", f"Python {shown[0]} ({path})")


def _java() -> Finding:
    try:
        found = java.find_java()
    except StateError as failure:
        sentence, _, remedy = str(failure).partition("; ")
        return Finding("Java", "failed", sentence, remedy)
    return Finding("Java", "ok", str(found))


def _spark_home() -> Finding:
    """Whether another Spark than that of the package would start."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return Finding("Spark", "ok", "that of the package pyspark")
    jars = sorted(path.name for path in Path(home).glob("jars/spark-core_*.jar"))
    try:
        own = version("pyspark")
    except PackageNotFoundError:
        own = ""
    if own and any(own in jar for jar in jars):
        return Finding("Spark", "ok", f"{own} of SPARK_HOME ({home})")
    found = (
        f"SPARK_HOME is {home}, which has {', '.join(jars) or 'no Spark'}; the package pyspark is {own or 'missing'}"
    )
    return Finding("Spark", "failed", found, "unset SPARK_HOME, or install the version of pyspark that it has")


def _ports() -> Finding:
    """Whether the driver can listen, which tasks connect to."""
    address = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
            listener.bind((address, 0))
    except OSError as failure:
        found = f"the driver cannot listen on {address}: {failure.strerror}"
        return Finding("ports", "failed", found, "set SPARK_LOCAL_IP to an address of this machine")
    return Finding("ports", "ok", f"the driver can listen on {address}")


def _master(master: str) -> Iterator[Finding]:
    if _MASTER.fullmatch(master) is None:
        remedy = "local[2], local[*], spark://host:7077, yarn and k8s://https://host:443 are master URLs"
        yield Finding("master", "failed", f"{master!r} is not a master URL", remedy)
        return
    if not master.startswith("spark://"):
        return
    first = master.removeprefix("spark://").split(",")[0]
    host, _, port = first.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as failure:
        remedy = "start it with spark-class org.apache.spark.deploy.master.Master, or name another --master"
        yield Finding("master", "failed", f"{master} cannot be reached: {failure}", remedy)
    else:
        yield Finding("master", "ok", f"{master} can be reached")


def _settings(setting: Setting, *, is_made: bool) -> Iterator[Finding]:
    if (setting(_PUSHDOWN) or "false").lower() == "true":
        found = f"{_PUSHDOWN} is true: each read fails, and pushed filters of Spark 4.3 return wrong rows"
        yield Finding("settings", "failed", found, f"set {_PUSHDOWN} to false")
    if is_made:
        yield Finding("settings", "ok", "bascule.spark.session makes them")
        return
    advised = {name: value for name, value in SETTINGS.items() if name.startswith(("spark.python.", "spark.sql."))}
    others = {name: setting(name) for name in advised}
    differing = {name: value for name, value in others.items() if value != advised[name]}
    for name, value in differing.items():
        found = f"{name} is {value or 'not set'}; bascule.spark.session sets {advised[name]}"
        yield Finding("settings", "warning", found, "make the session with bascule.spark.session, or set it")
    if not differing:
        yield Finding("settings", "ok", "those of bascule.spark.session")


def _of_session(spark: "SparkSession") -> Setting:
    def setting(name: str) -> str | None:
        return spark.conf.get(name, None)

    return setting


def _of_defaults() -> Setting:
    """Settings of `spark-defaults.conf`, by name."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text().splitlines() if file.is_file() else []
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if not line.lstrip().startswith("#"))
    found = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
    return found.get


def _broker(address: str) -> Finding:
    broker = Broker(address, "default", _REQUEST_MS, 0)
    shown = shown_address(address)
    try:
        count = len(broker.streams())
    except BrokerError as failure:
        remedy = "start it with bascule serve, or check the address and the files that it names"
        reason = str(failure).removeprefix(f"broker at {shown}: ").partition("; ")[0]
        return Finding("broker", "failed", f"{shown}: {reason} ({failure.code})", remedy)
    except ImportError as failure:
        return Finding("broker", "failed", f"{shown} was not asked: {failure}", EXTRA)
    return Finding("broker", "ok", f"{shown} answers, {count} streams in namespace default")


def started(findings: list[Finding], master: str) -> list[Finding]:
    """`findings`, and whether a session starts and runs a task in a Python worker; not tried if it lacks something."""
    if any(finding.outcome == "failed" and finding.check != "broker" for finding in findings):
        return findings
    from bascule.spark.sessions import session  # noqa: PLC0415 - heavy

    try:
        spark: Any = session("bascule doctor", master=master)
        rows = spark.range(3).mapInArrow(_unchanged, "id bigint").count()
        found = f"{spark.version} ran a task in a Python worker"
        spark.stop()
    except Exception as failure:  # noqa: BLE001 - any failure is the finding
        first = str(failure).strip().partition("\n")[0]
        return [
            *findings,
            Finding("session", "failed", first, "bascule.spark.session(quiet=False) in Python shows the whole error"),
        ]
    assert rows == 3
    return [*findings, Finding("session", "ok", found)]


def _unchanged(batches: Any) -> Any:
    return batches
