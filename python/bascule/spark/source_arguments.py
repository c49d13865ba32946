"""Arguments of the calls that start a query from `format("bascule")`, as options of the source."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bascule.spark.options import SOURCE, parse_options
from bascule.spark.usage import usage
from bascule.spark.zones import SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
OF_SOURCE: Final = {"stream": "argument stream", "columns": "argument columns"}
"""How the calls spell these options of the source."""


def source_options(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    stream: str | Sequence[str] | None,
    columns: Sequence[str],
    options: Mapping[str, str | float | bool],
    refused: Mapping[str, str],
    needed: Sequence[str],
    call: str,
    what: str,
    also: Sequence[str] = (),
) -> dict[str, str]:
    """The options of the source, with the session's time zone unless `options` has one.

    Args:
        spark: the session.
        stream: one name or several; None = an option selects them.
        columns: that are read.
        options: given by name.
        refused: what to use instead of an option, by its name in lower case.
        needed: columns that must be read.
        call: name of the function, for messages.
        what: the table, for messages, as `an archive`.
        also: names of the table's options, near which a wrong name may be.

    Raises:
        UsageError: an option is refused, unknown or outside its range, or a column is missing.
    """
    known = {name.lower() for name in SOURCE.names}
    for given in options:
        if (instead := refused.get(given.lower())) is not None:
            raise usage(f"option {given} cannot be given to {call}: {instead}", option=given)
        if given.lower() not in known:
            raise SOURCE.unknown(given, also)
    if missing := [column for column in needed if column not in columns]:
        raise usage(f"columns of {what} include {', '.join(needed)}: {missing[0]} is missing")
    found = {given: option_text(value) for given, value in options.items()}
    found.setdefault("timeZone", str(spark.conf.get(SETTING)))
    if stream is not None:
        found["stream"] = json.dumps([stream] if isinstance(stream, str) else list(stream))
    found["columns"] = ",".join(columns)
    parse_options(found)  # here and not by a worker of Spark, which does not know how the call spells them
    return found


def option_text(value: str | float | bool) -> str:
    """A value as an option of Spark has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
