"""How the surface that a user called spells an option, so that an error names what the user wrote.

One option has several spellings: `leaveOut` for Spark, `leave_out` as an argument of Python, `--leave-out` on the
command line. Checks are written once, by the option's name, and `named` gives the spelling. Without a surface that is
`option leaveOut`.

>>> named("leaveOut")
'option leaveOut'
>>> with surface({"leaveOut": "--leave-out"}):
...     named("leaveOut")
'--leave-out'
>>> with renamed({"path": "archivePath"}):
...     named("path")
'option archivePath'
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["named", "renamed", "spelled", "surface"]

_surface: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("_surface", default=None)
_renames: Final[ContextVar[tuple[Mapping[str, str], ...]]] = ContextVar("_renames", default=())


def named(option: str) -> str:
    """The spelling of an option for an error, with its kind: `option leaveOut`, `argument leave_out`, `--leave-out`.

    Args:
        option: the name by which it is declared.
    """
    for names in reversed(_renames.get()):
        option = names.get(option, option)
    return (_surface.get() or {}).get(option, f"option {option}")


def spelled(option: str) -> str:
    """The spelling of an option alone, within a sentence: `leaveOut`, `leave_out`, `--leave-out`."""
    return named(option).rpartition(" ")[2]


@contextmanager
def surface(spellings: Mapping[str, str]) -> Generator[None]:
    """For the body of a call of users: how this call spells options. Within another surface it has no effect, because
    that is the one that the user called.

    Args:
        spellings: by the name of the option, with the kind, as `argument to`; others are `option NAME`.
    """
    if _surface.get() is not None:
        yield
        return
    token = _surface.set(spellings)
    try:
        yield
    finally:
        _surface.reset(token)


@contextmanager
def renamed(names: Mapping[str, str]) -> Generator[None]:
    """For checks of options that users give by other names, as those of an archive that a read gives by `archivePath`.

    Args:
        names: that users give, by the name of the option that is checked.
    """
    token = _renames.set((*_renames.get(), names))
    try:
        yield
    finally:
        _renames.reset(token)
