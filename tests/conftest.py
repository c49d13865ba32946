"""How the suite runs on several workers, which tests get a second try, and how many of those a run may have."""

import signal
from pathlib import Path
from typing import Final

import hypothesis
import pytest

hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")
"""No deadline for one example: on a busy machine it fails tests that judge values, not time."""

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
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: FIRST.index(_folder(item)) if _folder(item) in FIRST else len(FIRST))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""


def _is_rig(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return _folder(item) == "torture" and call is not None and "row" in call.params


def _group(item: pytest.Item) -> str:
    """Tests that run on one worker: a module (its fixtures start brokers), all of Spark (one session)."""
    return "spark" if _folder(item) == "spark" else str(item.path.relative_to(_HERE))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    unstable = reporter.stats.get("rerun", []) if reporter else []
    if len(unstable) > AT_MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\n{len(unstable)} tests passed only at their second try, and {AT_MOST} may: fix them")
