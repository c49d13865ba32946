"""How the suite runs on several workers, which tests get a second try, and how many of those a run may have."""

import signal
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import java_start

hypothesis.settings.register_profile("suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("suite")
"""No deadline for one example or for making them: on a busy machine it fails tests that judge values, not time."""

REPEATED: Final = ("conformance", "integration", "spark", "docs")
"""Folders whose tests drive real processes over sockets and clocks, which a busy machine can upset: one second try,
named in the summary. A test that judges what was stored (simulator, torture, chaos, checker) never gets one."""

AT_MOST: Final = 2
"""Tests in one run, inclusive, that may need their second try; each is a defect to be fixed."""

SPARK_TIMEOUT_S: Final = 900
"""Only a hang takes so long: a timeout within a call to the JVM breaks the session for all tests behind it."""
FIRST: Final = ("spark", "simulator", "chaos", "torture")
"""Folders with the longest tests: they start first, so that no worker is left alone with one at the end."""

_HERE: Final = Path(__file__).parent


def pytest_configure() -> None:
    """What tests start obeys an interrupt, also when this run is a script's background job, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    java_start.set_environment()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that judges speed starts Java as users do."""
    with java_start.as_users() if item.get_closest_marker("alone") else nullcontext():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(_HERE)]
    for item in ours:
        folder = _folder(item)
        if folder in REPEATED:
            item.add_marker(pytest.mark.flaky(reruns=1))
        if _is_rig(item):
            # Speed, processor time, how many rounds share a sync: each depends on what runs beside it.
            item.add_marker(pytest.mark.alone)
        if folder == "spark" or item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """0: the folder of Spark, 1: others that start it, as pages do; then the other folders of `FIRST`, and the rest."""
    if _folder(item) != "spark" and item.get_closest_marker("spark"):
        return 1
    place = FIRST.index(_folder(item)) if _folder(item) in FIRST else len(FIRST)
    return place + 1 if place else 0


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""


def _is_rig(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return _folder(item) == "torture" and call is not None and "row" in call.params


PAGES: Final = "tests/docs/test_howto_pages.py"
PIPELINES: Final = ("tests/spark/test_declarative.py", f"{PAGES}::test_a_reader_follows_the_page[declarative.md]")
"""They run `spark-pipelines`, whose port is fixed: one at a time."""


class Groups(LoadScopeScheduling):
    """Tests that run on one worker: a module (its fixtures start brokers). Each worker has one session of Spark for all
    modules that need one. Each page that a reader follows is a group, since it shares nothing with the others.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if nodeid.startswith(PIPELINES):
            return "pipelines"
        if module == PAGES:
            return nodeid
        return module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    return Groups(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    unstable = reporter.stats.get("rerun", []) if reporter else []
    if len(unstable) > AT_MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\n{len(unstable)} tests passed only at their second try, and {AT_MOST} may: fix them")
