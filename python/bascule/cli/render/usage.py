"""The error message of a wrong call, in one sentence: the value, the bound, and the command's help."""

from typing import Any, Final

import typer

__all__ = ["usage"]

_BOUNDS: Final = {"ge": "is below", "gt": "is not above", "le": "is above", "lt": "is not below"}
_KINDS: Final = {"int": "whole number", "float": "number", "bool": "boolean (yes or no)"}


def usage(failure: typer.TyperException) -> str:
    """The error message; empty if the help was shown instead."""
    context = getattr(failure, "ctx", None)
    said = (_value(failure) or failure.format_message().replace("Value error, ", "")).strip()
    if not said:
        return ""
    if context is None:
        return said
    end = "" if said.endswith(("?", ".")) else "."
    return f"{said}{end} See {context.command_path} --help"


def _value(failure: typer.TyperException) -> str:
    """The message for a value that is out of bounds or of another type; empty for other errors."""
    from pydantic import ValidationError  # noqa: PLC0415 (already loaded here; a correct command does not need it)

    cause, parameter = failure.__cause__, getattr(failure, "param", None)
    if not isinstance(cause, ValidationError) or parameter is None:
        return ""
    first = cause.errors(include_url=False)[0]
    name, given = _name(parameter), str(first["input"])
    bounds = first.get("ctx", {})
    for bound, verb in _BOUNDS.items():
        if bound in bounds:
            return f"{name} {given} {verb} {bounds[bound]}"
    kind = _KINDS.get(first["type"].partition("_")[0])
    return f'{name} "{given}" is not a {kind}' if kind else ""


def _name(parameter: Any) -> str:
    """An option by its longest spelling, an argument by its name."""
    spellings: list[str] = parameter.opts
    return max(spellings, key=len)
