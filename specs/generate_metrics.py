"""Write the data plane's table of metrics and docs/reference/metrics.md; with --check only compare."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "crates/broker/src/metrics/table.rs"
PAGE = ROOT / "docs/reference/metrics.md"
HEAD = """\
# Metrics

This page lists all metrics. `/metrics` of the HTTP listener (`http.listen`, by default 127.0.0.1:9393) returns them
in the OpenMetrics text format: `curl http://127.0.0.1:9393/metrics`. Counters begin at 0 at every start of the
broker.
Series with the label `partition` need `metrics.partitions: true`; `metrics.groups: false` leaves out those with the
label `group` or `query`.
Generated from `specs/metrics.toml`.

| Metric | Kind | Labels | Meaning |
|---|---|---|---|"""


def _family(row: dict[str, Any]) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(row["kind"], "")
    return str(row["metric"]).removesuffix(suffix)


def _unit(family: str) -> str:
    """OpenMetrics wants a unit to be the last word of the name."""
    return next((unit for unit in ("seconds", "bytes") if family.endswith(f"_{unit}")), "")


def _series(row: dict[str, Any]) -> str:
    """How many series the row has; those of histograms and of rows with values are made otherwise."""
    labels = row.get("labels", ())
    if "partition" in labels:
        return "Partition"
    return "Labelled" if labels and "values" not in row and row["kind"] in {"counter", "gauge"} else "One"


def rust(table: dict[str, dict[str, Any]]) -> str:
    """The text of the data plane's table."""
    lines = [
        "//! Generated from `specs/metrics.toml` by `specs/generate_metrics.py`: edit that, then `make fix`.",
        "use super::{Kind, Metric, Series};",
        "",
        "/// Every metric, in the order of export.",
        "#[rustfmt::skip]",
        "pub(super) const METRICS: &[Metric] = &[",
    ]
    for name, row in table.items():
        family = _family(row)
        values = {
            "name": json.dumps(name),
            "family": json.dumps(family),
            "kind": f"Kind::{row['kind'].capitalize()}",
            "unit": json.dumps(_unit(family)),
            "in_nanos": str(row["unit"] == "nanoseconds").lower(),
            "labels": json.dumps(",".join(f'{key}="{value}"' for key, value in row.get("values", {}).items())),
            "series": f"Series::{_series(row)}",
            "help": json.dumps(row["meaning"], ensure_ascii=False),
        }
        lines.append("    Metric { " + ", ".join(f"{key}: {value}" for key, value in values.items()) + " },")
    return "\n".join([*lines, "];", ""])


def page(table: dict[str, dict[str, Any]]) -> str:
    """The text of the page."""
    lines = [HEAD]
    rows = {row["metric"]: row for row in table.values()}
    for row in rows.values():
        labels = ", ".join(f"`{label}`" for label in row.get("labels", ()))
        lines.append(f"| `{row['metric']}` | {row['kind']} | {labels} | {row['meaning']} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Write or compare; returns the exit code."""
    table = tomllib.loads((ROOT / "specs/metrics.toml").read_text())
    stale = 0
    for path, text in ((TABLE, rust(table)), (PAGE, page(table))):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what specs/metrics.toml gives: make fix\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
