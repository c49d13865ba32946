"""JSON from people and clients: a name stands once in an object, and numbers are JSON's own."""

import json
from typing import Any, NoReturn

__all__ = ["load_json"]


def load_json(text: str | bytes) -> Any:
    """The value that JSON text holds. `json.loads` would keep the last of two equal names and take `NaN`.

    Raises:
        ValueError: not valid JSON, a name stands twice in an object, or a number is none of JSON's; the message says
            which. RecursionError: nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{repeated[:80]}" is given twice in one object')
    return document


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")
