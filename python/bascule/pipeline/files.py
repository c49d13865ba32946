"""Job files: YAML into a checked `Job`, with errors of one sentence that name the key, the value and the remedy."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, ValidationError

from bascule._yaml import FAILURES, load_yaml, yaml_problem
from bascule.errors import UsageError
from bascule.pipeline.model.base import BASE
from bascule.pipeline.model.job import Job
from bascule.spark.kafka_names import kafka_advice
from bascule.spark.options import SOURCE

__all__ = ["from_file", "job_schema", "parse_job"]

_NOT_IN: Final = {"batch": ("checkpoint", "interval"), "availableNow": ("interval",)}
"""Keys of a file that do not apply when another mode is chosen for a run."""
_SHOWN: Final = 100
"""Characters of a value that an error shows."""


def from_file(file: str | Path, changes: Mapping[str, Any] | None = None) -> Job:
    """The job in a YAML file. Relative paths in it start from the file's directory.

    Args:
        file: path of the file.
        changes: top-level keys that replace those of the file. With the mode `batch` the checkpoint, the interval and
            the limits of an epoch (`source.maxOffsetsPerTrigger` and so on) of the file do not apply.

    Raises:
        UsageError: code `configuration_invalid`: it cannot be read, is not valid YAML, repeats a key, or is not a job.
    """
    path = Path(file)
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise _invalid(f"cannot read the job file {path}: {failure.strerror}") from None
    except FAILURES as failure:
        raise _invalid(f"{path} is not valid YAML: {yaml_problem(failure)}") from None
    if not isinstance(document, Mapping):
        raise _invalid(f"{path} must be a mapping with the keys of a job, {_instead(document)}")
    given = {**cast("Mapping[str, Any]", document), **(changes or {})}
    if changes:
        given = _without_mode(given)
    return parse_job(given, base=path.absolute().parent, where=str(path))


def _without_mode(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without those that do not apply in their mode."""
    mode, source = given.get("mode"), given.get("source")
    kept = {name: value for name, value in given.items() if name not in _NOT_IN.get(str(mode), ())}
    if mode == "batch" and isinstance(source, Mapping):
        streaming = {option.name for option in SOURCE.not_for("batch")}
        named = cast("Mapping[str, Any]", source).items()
        kept["source"] = {name: value for name, value in named if name not in streaming}
    return kept


def parse_job(document: Mapping[str, Any], *, base: Path | None = None, where: str = "the job") -> Job:
    """A job from a mapping with the keys of a job file.

    Args:
        document: as in a file.
        base: directory that relative paths start from; None = the current one.
        where: what has the job, for errors.

    Raises:
        UsageError: code `configuration_invalid`: an unknown key, with the nearest known one; a value outside its range.
    """
    try:
        return Job.model_validate(document, context={BASE: base or Path.cwd()})
    except ValidationError as invalid:
        raise _invalid(f"{where}: {_sentence(invalid)}") from None


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job file."""
    schema = Job.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _invalid(message: str) -> UsageError:
    return UsageError("configuration_invalid", message)


def _sentence(invalid: ValidationError) -> str:
    """The first error; one about an unknown key goes before others, which it often causes."""
    errors = invalid.errors(include_url=False)
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    place = _place(first["loc"])
    if first["type"] == "union_tag_invalid":
        context = first.get("ctx", {})
        given, known = context.get("tag"), str(context.get("expected_tags")).replace("'", "")
        return f"{'.'.join(place)}.format = {given!r}: it must be one of {known}"
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        advice = kafka_advice(key.lower()) if place[:-1] == ["source"] else None
        hint = _nearest(key, _known(first["loc"]), ".".join(place[:-1])) if advice is None else f": {advice}"
        return f'unknown key "{".".join(place)}"{hint}'
    path = ".".join(place)
    if first["type"] == "union_tag_not_found":
        path = f"{path}.format"
    if first["type"] in {"missing", "union_tag_not_found"}:
        return f'the key "{path}" is missing'
    given: Any = first["input"]
    kind = _KINDS.get(first["type"])
    if kind is not None or first["type"] == "too_short":
        return f"{path} is empty: name at least one" if kind is None else _wrong_kind(path, kind, first)
    reason = first["msg"].removeprefix("Value error, ")
    if not path or (isinstance(given, (Mapping, Sequence)) and not isinstance(given, str)):
        return f"{path}: {reason}" if path else reason
    shown = repr(given)[:_SHOWN]
    return f"{path} = {shown}: {reason[:1].lower()}{reason[1:]}"


_KINDS: Final = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""What a value must be in a file, by the error that pydantic has for another one."""


def _wrong_kind(path: str, kind: str, failure: Mapping[str, Any]) -> str:
    """What a value must be, with the keys of a section if it must be one."""
    loc = failure["loc"]
    model = _walked(loc)[1] if kind == "a mapping" and isinstance(loc[-1], str) else None
    names = [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    keys = f" (with keys such as {', '.join(names[:4])})" if names else ""
    return f"{path} must be {kind}{keys}, {_instead(failure['input'])}"


def _instead(given: Any) -> str:
    """What was given where another kind was expected."""
    if given is None:
        return "and it is empty"
    if isinstance(given, Mapping):
        return "not a mapping"
    if isinstance(given, Sequence) and not isinstance(given, str):
        return "not a list"
    return f"not {given!r}"[:_SHOWN]


def _place(loc: Sequence[int | str]) -> list[str]:
    """The keys of the file that lead to a value, without the names of alternatives that pydantic adds."""
    return _walked(loc)[0]


def _known(loc: Sequence[int | str]) -> list[str]:
    """The keys that are known beside the last one."""
    model = _walked(loc[:-1])[1]
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def _walked(loc: Sequence[int | str]) -> tuple[list[str], type[BaseModel] | None]:
    """The keys of a path, and the section at its end. The tag of a decoder or a target is not a key."""
    keys: list[str] = []
    model: type[BaseModel] | None = Job
    choices: dict[str, type[BaseModel]] = {}
    for each in loc:
        if isinstance(each, str) and each in choices:
            model, choices = choices[each], {}
            continue
        keys.append(str(each))
        if isinstance(each, int):
            continue
        field = next((f for n, f in model.model_fields.items() if (f.alias or n) == each), None) if model else None
        models = [] if field is None else list(_models(field.annotation))
        choices = {
            str(tag): m
            for m in models
            if "format" in m.model_fields
            for tag in get_args(m.model_fields["format"].annotation)
        }
        model = models[0] if len(models) == 1 else None
    return keys, model


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The sections that a type has."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        return
    for inner in get_args(kind):
        yield from _models(inner)


def _nearest(key: str, known: Sequence[str], above: str) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    prefix = f"{above}." if above else ""
    if near:
        return f'; did you mean "{prefix}{near[0]}"?'
    return f"; known are {', '.join(known)}" if known else ""
