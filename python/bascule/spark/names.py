"""Options with names of streams."""

from typing import Any, cast

from bascule._json import load_json
from bascule.spark.spelling import named
from bascule.spark.usage import usage


def parse_names(option: str, given: str) -> tuple[str, ...]:
    """Names separated by commas, or as a JSON list; without repetitions, in their order.

    Args:
        option: name of the option, for errors.
        given: its text.

    Raises:
        UsageError: it is not valid JSON.
        ValueError: it names none.
    """
    names: list[Any] = (
        cast("list[Any]", parse_json(option, given, list))
        if given.startswith("[")
        else [name.strip() for name in given.split(",")]
    )
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("it must name one stream or several")
    return tuple(dict.fromkeys(names))


def parse_json(option: str, given: str, kind: type) -> Any:
    """The document of an option: a list or an object, as `kind` is `list` or `dict`.

    Raises:
        UsageError: it is not valid JSON, or of another kind.
    """
    try:
        document = load_json(given)
    except (ValueError, RecursionError) as cause:
        raise usage(f"{named(option)} is not valid JSON: {cause}") from cause
    if not isinstance(document, kind):
        raise usage(f"{named(option)} is {given!r}: it must be a JSON {'list' if kind is list else 'object'}")
    return document
