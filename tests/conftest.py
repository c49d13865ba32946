"""Which tests get a second try, how many of those a run may have, and what they begin with."""

import signal
from pathlib import Path
from typing import Final

import pytest

REPEATED: Final = ("conformance", "integration", "spark", "docs")
"""Folders whose tests drive real processes over sockets and clocks, which a busy machine can upset: one second try,
named in the summary. A test that judges what was stored (simulator, torture, chaos, checker) never gets one."""

AT_MOST: Final = 3
"""Tests in one run, inclusive, that may need their second try; each is a defect to be mended."""

_HERE: Final = Path(__file__).parent


def pytest_configure() -> None:
    """What tests start obeys an interrupt, also when this run is a script's background job, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE) and item.path.relative_to(_HERE).parts[0] in REPEATED:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    unstable = reporter.stats.get("rerun", []) if reporter else []
    if len(unstable) > AT_MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\n{len(unstable)} tests passed only at their second try, and {AT_MOST} may: mend them")
