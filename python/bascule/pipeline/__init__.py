"""Jobs: one file that reads streams, decodes and checks their records, selects with SQL and writes to targets.

Needs `pip install 'bascule[pipeline,lake]'`. Importing this package imports neither pyspark nor pyarrow.

>>> bascule.pipeline.run(bascule.pipeline.from_file("job.yaml"))
>>> good, dead = bascule.pipeline.expect_or_dlq(frame, {"amount is positive": "amount > 0"})
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.pipeline.epochs import Gate
    from bascule.pipeline.expectations import expect, expect_or_dlq, expect_or_drop, expect_or_fail
    from bascule.pipeline.files import from_file, job_schema, parse_job
    from bascule.pipeline.model.job import Job
    from bascule.pipeline.plans import RunPlan, plan
    from bascule.pipeline.runs import Outcome, run

__all__ = [
    "Gate",
    "Job",
    "Outcome",
    "RunPlan",
    "expect",
    "expect_or_dlq",
    "expect_or_drop",
    "expect_or_fail",
    "from_file",
    "job_schema",
    "parse_job",
    "plan",
    "run",
]

_HOMES = {
    "Gate": "epochs",
    "Job": "model.job",
    "Outcome": "runs",
    "RunPlan": "plans",
    "expect": "expectations",
    "expect_or_dlq": "expectations",
    "expect_or_drop": "expectations",
    "expect_or_fail": "expectations",
    "from_file": "files",
    "job_schema": "files",
    "parse_job": "files",
    "plan": "plans",
    "run": "runs",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bascule.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"bascule.pipeline.{_HOMES[name]}"), name)
