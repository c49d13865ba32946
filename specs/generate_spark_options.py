"""Write docs/reference/spark-options.md from the options of the Spark formats; with --check only compare."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bascule.lake.options import TABLE
from bascule.spark.option_model import Option, OptionSet
from bascule.spark.options import SOURCE
from bascule.spark.replaying.options import COPY, REDRIVE, REPLAY
from bascule.spark.sink.options import SINK

SETS: Final[tuple[OptionSet, ...]] = (SOURCE, SINK, TABLE, REPLAY, COPY, REDRIVE)
"""In the order of the page. A format adds its own here."""

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/reference/spark-options.md"
HEAD: Final = """\
# Options of the Spark formats

This page lists every option with its type, default and range. Generated from the option models in
`python/bascule/spark` and `python/bascule/lake`. [Read a stream with Spark](../how-to/spark.md) has examples.

- **Names:** their case is ignored. An unknown one is refused, and the error names the nearest known one, or the
  option here for one of Spark's Kafka connector.
- **Units:** sizes take units (`64MiB`), and so do times (`30s`). A time without a unit is in milliseconds;
  options whose name ends in `Ms` are numbers of milliseconds.
- **Only:** `batch` or `stream`: the option applies to such queries alone, and others refuse it. A table of the catalog
  may have `stream` options of the source: batch reads of it leave them out."""


def main() -> int:
    """Write or compare; returns the exit code."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
        return 0
    if not PAGE.exists() or PAGE.read_text() != text:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is not what the option models give: make fix\n")
        return 1
    return 0


def page() -> str:
    """The text of the page."""
    lines = [HEAD]
    for each in SETS:
        lines += ["", f"## {each.name}", "", each.summary, "", *_table(each)]
    return "\n".join([*lines, ""])


def _table(options: OptionSet) -> Iterator[str]:
    yield "| Option | Type | Default | Range | Only | Since | Meaning |"
    yield "|---|---|---|---|---|---|---|"
    for option in options.options:
        cells = (
            f"`{option.name}`",
            option.kind,
            _default(option),
            option.range,
            option.only,
            option.since,
            option.meaning,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(option: Option[Any]) -> str:
    return option.unset if option.default is None else f"`{option.default}`"


if __name__ == "__main__":
    sys.exit(main())
