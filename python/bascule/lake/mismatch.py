"""How a table differs from the rows that are to be written to it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bascule.errors import StateError

EVOLVES: Final = " (a job adds columns and fills them with null with onSchemaChange: evolve)"


_KINDS: Final = {
    "records": "every record",
    "latest": "the latest row of each key",
    "history": "all versions of each key",
}


def check_holds(uri: str, found: str, holds: str) -> None:
    """Compare what a row of a table is.

    Raises:
        StateError: a table of one kind is to be written or read as one of another kind.
    """
    if found != holds:
        raise another_table(uri, f"it has {_KINDS.get(found, found)}, not {_KINDS[holds]}")


def check_keys(uri: str, found: Sequence[str], keys: Sequence[str]) -> None:
    """Compare the keys of a table that is merged by keys.

    Raises:
        StateError: it has others.
    """
    if list(found) != list(keys):
        raise another_table(uri, f"its keys are {', '.join(found) or 'none'}, and keys is {', '.join(keys)}")


def difference(wanted: Mapping[str, Any], there: Mapping[str, Any], *, can_evolve: bool = False) -> str:
    """How the columns of a table differ from those of rows, as a clause; for different ones.

    Args:
        wanted: types of the rows by column, as JSON has them.
        there: the same of the table.
        can_evolve: jobs can add columns to the table.
    """
    hint = EVOLVES if can_evolve else ""
    for name, kind in wanted.items():
        if name not in there:
            return f"it has no column {name}{hint}"
        if there[name] != kind:
            return f"its column {name} is {json.dumps(there[name])}, the rows have {json.dumps(kind)}"
    extra = next(name for name in there if name not in wanted)
    return f"it has a column {extra}, which the rows lack{hint}"


def another_table(uri: str, what: str) -> StateError:
    """The refusal of a table that rows cannot be written to, because of `what`."""
    message = f"{uri} is another table: {what}; write to a new table"
    return StateError("failed_precondition", message, {"table": uri})
