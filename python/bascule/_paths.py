"""Parses paths in settings and on the command line."""

from pathlib import Path

__all__ = ["parse_path"]


def parse_path(value: object) -> object:
    """The path in a text, with `~` and `~user` expanded; values of other types are returned unchanged.

    Raises:
        ValueError: the text is empty (it would mean the current directory), or names an unknown user.
    """
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError('an empty path; write "." for the current directory')
    if "\0" in value:
        raise ValueError("a path cannot contain the character NUL")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError(f'cannot expand "{value.split("/")[0]}": no such user or home directory') from None
