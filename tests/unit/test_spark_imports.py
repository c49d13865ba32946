"""What processes of Spark import, each in a process of its own: a small program has dozens of them."""

import subprocess
import sys

PRELOADED = """
import os, sys
from bascule.spark.daemon import PRELOADED, preload
preload()
assert all(name in sys.modules for name in PRELOADED), sorted(set(PRELOADED) - set(sys.modules))
heavy = [name for name in ("numpy", "pandas", "pyarrow", "grpc") if name in sys.modules]
print(len(os.listdir("/proc/self/task")), heavy)
"""
READ = """
import sys
import pyarrow as pa
from bascule.spark.columns import arrow_schema
from bascule.spark.reading import conform
offsets = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(bytes(16))])
served = pa.RecordBatch.from_arrays([offsets], names=["offset"])
schema = arrow_schema(["incarnation", "offset"])
large = 2**63 - 1
print([conform(each, schema, large).column(0).to_pylist() for each in (served, served.slice(0, 0))])
print("pandas" in sys.modules)
"""


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_daemon_imports_what_workers_need_and_starts_no_thread() -> None:
    assert printed(PRELOADED) == ["1 []"]


def test_the_incarnation_of_records_is_added_without_pandas() -> None:
    assert printed(READ) == [f"[[{2**63 - 1}, {2**63 - 1}], []]", "False"]
