"""Documents that this package keeps for itself: one that is damaged is named, with what to do about it."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from bascule.errors import CorruptionError

__all__ = ["object_of", "valid"]


@contextmanager
def valid(file: str, remedy: str, where: str = "") -> Generator[None]:
    """Errors about the content of a document as one that names its file.

    Args:
        file: name of the file.
        remedy: what to do; a clause.
        where: folder of the file, for the message; empty = `file` says it.

    Raises:
        CorruptionError: the content is not as it was written.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as cause:
        reason = f"it has no {cause.args[0]}" if isinstance(cause, KeyError) else str(cause)
        message = f"{where}{': ' if where else ''}{file} is not valid: {reason}; {remedy}"
        raise CorruptionError("damaged", message, {"file": file}) from cause


def object_of(content: bytes | str) -> dict[str, Any]:
    """The object of a JSON document.

    Raises:
        ValueError: it is not one.
    """
    document: object = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - the content is wrong, not a call
    return cast("dict[str, Any]", document)
