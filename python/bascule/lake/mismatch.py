"""How a table differs from the rows that are to be written to it."""

import json
from collections.abc import Mapping
from typing import Any

from bascule.errors import StateError


def difference(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """How the columns of a table differ from those of rows, as a clause; for different ones.

    Args:
        wanted: types of the rows by column, as JSON has them.
        there: the same of the table.
    """
    for name, kind in wanted.items():
        if name not in there:
            return f"it has no column {name}"
        if there[name] != kind:
            return f"its column {name} is {json.dumps(there[name])}, the rows have {json.dumps(kind)}"
    extra = next(name for name in there if name not in wanted)
    return f"it has a column {extra}, which the rows lack"


def another_table(uri: str, what: str) -> StateError:
    """The refusal of a table that rows cannot be written to, because of `what`."""
    message = f"{uri} is another table: {what}; write to a new table"
    return StateError("failed_precondition", message, {"table": uri})
