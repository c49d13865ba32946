"""What all parts of a job file have in common: names as in the file, unknown keys refused, times with units, paths.

A path is relative to the directory of the job file, which the validation context carries; without a file it is relative
to the current directory.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.alias_generators import to_camel

from bascule._paths import parse_path
from bascule._units import parse_duration_ms

__all__ = ["BASE", "Location", "Milliseconds", "Name", "Part", "SmallFile", "exactly_one", "is_url", "location"]

BASE: Final = "base"
"""Key of the validation context: the directory that relative paths start from."""

_URL: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+://")


class Part(BaseModel):
    """A section of a job file. Immutable. Keys are in camel case; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


def is_url(path: str) -> bool:
    """Whether a path names its file system, as `s3://bucket/table`."""
    return _URL.match(path) is not None


def _base(info: ValidationInfo) -> Path:
    context = cast("Mapping[str, Any]", info.context or {})
    return Path(context.get(BASE) or Path.cwd())


def _file(value: object, info: ValidationInfo) -> object:
    path = parse_path(value)
    return _base(info) / path if isinstance(path, Path) else path


def location(value: str, info: ValidationInfo) -> str:
    """The value of a `Location`: a relative path becomes one below the directory of the job file.

    Raises:
        ValueError: it is empty.
    """
    if not value.strip():
        raise ValueError("the path is empty")
    if is_url(value):
        return value
    return str((_base(info) / Path(value).expanduser()).absolute())


def _name(value: str) -> str:
    if not value.strip() or len(value) > _LONGEST_NAME or not value.isprintable():
        raise ValueError(f"a name must have 1 to {_LONGEST_NAME} printable characters")
    return value


_LONGEST_NAME: Final = 200

Name = Annotated[str, AfterValidator(_name)]
"""A name of 1 to 200 printable characters."""
Milliseconds = Annotated[int, BeforeValidator(parse_duration_ms, json_schema_input_type=int | str), Field(ge=0)]
"""A duration of at least 0, as "30s"; a number without a unit is in milliseconds."""
SmallFile = Annotated[Path, BeforeValidator(_file)]
"""A file on the machine of the driver."""
Location = Annotated[str, AfterValidator(location)]
"""A directory: a path of this machine, or a URL such as `s3://bucket/path`."""


def exactly_one(part: Part, *names: str) -> str:
    """The one of these fields that is set.

    Raises:
        ValueError: none is set, or several are.
    """
    given = [name for name in names if getattr(part, name) is not None]
    if len(given) == 1:
        return given[0]
    keys = [type(part).model_fields[name].alias or name for name in names]
    found = " and ".join(type(part).model_fields[name].alias or name for name in given)
    raise ValueError(f"exactly one of {', '.join(keys)} must be given: {f'{found} are' if given else 'none is'} set")
