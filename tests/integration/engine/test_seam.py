"""The seam from Python's side: typed errors, events that wake a loop, forked children."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bascule import engine
from bascule._seam import Committed, Event
from bascule.engine import Engine
from bascule.errors import BrokerError


def settings(data: Path, **changes: Any) -> dict[str, Any]:
    return {
        "data_dir": str(data),
        "cluster_id": "c",
        "broker_id": "b",
        "runtime_threads": 1,
        "namespace": "n",
        **changes,
    }


def code_of(failure: pytest.ExceptionInfo[BrokerError]) -> str:
    return failure.value.code


def test_the_profile_is_one_of_cargos() -> None:
    assert engine.BUILD_PROFILE in {"debug", "fast", "release"}


def test_failures_are_typed_and_carry_their_values(tmp_path: Path) -> None:
    first = Engine(settings(tmp_path))
    with pytest.raises(BrokerError) as failure:
        Engine(settings(tmp_path))
    assert code_of(failure) == "data_directory_locked"
    assert failure.value.details["process"] == os.getpid()
    first.close(0)
    with pytest.raises(BrokerError) as failure:
        first.open(b"[]")
    assert code_of(failure) == "closed"
    with pytest.raises(BrokerError) as failure:
        Engine(settings(tmp_path, broker_id="other"))
    assert code_of(failure) == "data_directory_foreign"
    with pytest.raises(BrokerError) as failure:
        Engine(settings(tmp_path, surprise=1))
    assert code_of(failure) == "invalid_argument"
    assert "surprise" in str(failure.value)


async def test_committed_entries_wake_the_loop_in_order(tmp_path: Path) -> None:
    plane = Engine(settings(tmp_path))
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    loop.add_reader(plane.fileno(), woken.set)
    try:
        assert plane.metadata_open() == (0, b"", 0)
        plane.propose([(10, b"a"), (11, b"b")], 10_000)
        plane.propose([(12, b"c")], 10_000)
        events: list[Event] = []
        while len(events) < 3:
            await asyncio.wait_for(woken.wait(), 10)
            woken.clear()
            events.extend(plane.poll(2))
    finally:
        loop.remove_reader(plane.fileno())
        plane.close(0)
    assert events == [Committed(1, b"a", 10), Committed(2, b"b", 11), Committed(3, b"c", 12)]


_FORKED = """
import gc, os, sys, time
from bascule.engine import Engine

plane = Engine(SETTINGS)
child = os.fork()
if child == 0:
    answer = 1
    try:
        plane.status([])
    except RuntimeError as refused:
        answer = 0 if "forked" in str(refused) else 2
    plane = None
    gc.collect()
    os._exit(answer)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
# The parent's engine is intact, and its directory still locked.
assert plane.status([]) == []
try:
    Engine(SETTINGS)
except Exception as failure:
    assert failure.code == "data_directory_locked", failure
else:
    raise AssertionError("a second engine opened the directory")
plane.close(0)
print("done")
"""


def test_a_forked_child_is_refused_and_ends(tmp_path: Path) -> None:
    """The child has the last reference to the engine's memory; dropping it must not wait for the parent's threads.

    Runs in a separate interpreter, because threads of other tests would not survive the fork.
    """
    script = _FORKED.replace("SETTINGS", repr(settings(tmp_path)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
