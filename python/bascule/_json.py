"""Strict JSON from people and clients: no repeated names in an object, and no `NaN` or `Infinity`."""

import json
from typing import Any, NoReturn

__all__ = ["load_json"]


def load_json(text: str | bytes) -> Any:
    """Parse JSON text. Unlike `json.loads`, it rejects repeated names and `NaN`.

    Raises:
        ValueError: the text is not valid JSON, a name repeats in an object, or a number is not valid; the message has
            the reason.
        RecursionError: it is nested too deeply.
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
    raise ValueError(f"{text} is not a valid JSON number")
