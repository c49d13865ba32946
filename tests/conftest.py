"""How the suite runs on several workers, which tests get a second try, and how many of those a run may have."""

import signal
from pathlib import Path
from typing import Final

import pytest

REPEATED: Final = ("conformance", "integration", "spark", "docs")
"""Folders whose tests drive real processes over sockets and clocks, which a busy machine can upset: one second try,
named in the summary. A test that judges what was stored (simulator, torture, chaos, checker) never gets one."""

AT_MOST: Final = 2
"""Tests in one run, inclusive, that may need their second try; each is a defect to be fixed."""

FIRST: Final = ("torture", "spark", "simulator", "chaos")
"""Folders with the longest tests: they start first, so that no worker is left alone with one at the end."""

ALONE_ROWS: Final = ("S13-idle", "S13", "S21", "S22")
"""Rows of the scoreboard that judge processor time or speed: nothing else runs beside them."""

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
        if folder == "torture" and _row(item) in ALONE_ROWS:
            item.add_marker(pytest.mark.alone)
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: FIRST.index(_folder(item)) if _folder(item) in FIRST else len(FIRST))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""


def _row(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    return call.params.get("row") if call else None


def _group(item: pytest.Item) -> str:
    """Tests that run on one worker: a module (its fixtures start brokers), all rigs, all of Spark (one session)."""
    return "spark" if _folder(item) == "spark" else str(item.path.relative_to(_HERE))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    unstable = reporter.stats.get("rerun", []) if reporter else []
    if len(unstable) > AT_MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\n{len(unstable)} tests passed only at their second try, and {AT_MOST} may: fix them")
