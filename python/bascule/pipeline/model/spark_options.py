"""Sections of a job file whose keys are the options of a Spark format, under their own names."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import Field, create_model

from bascule.pipeline.model.base import Part
from bascule.spark.option_model import Option, OptionSet

__all__ = ["KIND", "RANGE", "option_texts", "with_options"]

KIND: Final = "x-kind"
"""In the JSON Schema of a key: the type of the option, as the options page prints it."""
RANGE: Final = "x-range"
"""In the same place: its allowed values, as the options page prints them."""

_Value = str | int | bool | list[Any] | dict[str, Any] | None
P = TypeVar("P", bound=Part)


def with_options(base: type[P], name: str, options: OptionSet, *, unset: Mapping[str, str]) -> type[P]:
    """A section with the fields of `base` and one for each option, not set by default.

    Args:
        base: its own fields come first; a field of the same name stands for the option.
        name: of the class.
        options: of the format.
        unset: what applies in a job if an option is not given, by its name, where that differs from the format.
    """
    taken = {field.alias for field in base.model_fields.values()}
    fields: dict[str, Any] = {
        option.name: (
            _Value,
            Field(
                default=None,
                alias=option.name,
                description=_meaning(option, unset.get(option.name)),
                json_schema_extra={KIND: option.kind, RANGE: option.range},
            ),
        )
        for option in options.options
        if option.name not in taken
    }
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


def _meaning(option: Option[Any], unset: str | None) -> str:
    default = unset or (option.default if option.default is not None else option.unset)
    bounds = f"; {option.range}" if option.range else ""
    only = {"": "", "batch": "; only in the mode batch", "stream": "; not in the mode batch"}[option.only]
    return f"{option.meaning}{bounds}; default: {default}{only}"


def option_texts(part: Part) -> dict[str, str]:
    """The options given in a section, as Spark takes them: text by name. Lists and mappings become JSON."""
    given = part.model_dump(by_alias=True, exclude_none=True)
    return {name: _text(value) for name, value in given.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (list, Mapping)) else str(value)
