"""Errors of closing an object when its context is left."""

from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["leaving"]


@contextmanager
def leaving(failure: BaseException | None, text: str) -> Generator[None]:
    """Close an object in the body when its context is left.

    Args:
        failure: the exception that leaves the context; one of the body is added to its notes. `None` = none, and the
            exception of the body is raised.
        text: the note, in which `{}` is the exception of the body.
    """
    try:
        yield
    except Exception as second:  # a callback may raise any exception
        if failure is None:
            raise
        failure.add_note(text.format(second))
