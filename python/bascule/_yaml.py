"""Strict YAML: no repeated keys, no surprising numbers, and error messages without text of the file.

PyYAML keeps the last of two equal keys and reads `12:30:00` as 45,000 (base 60) and `010` as 8: a typo changes a
setting. Here a repeated key is an error, and those numbers stay text, which the type of the setting then rejects.
"""

import re
from typing import Any, Final

import yaml

__all__ = ["FAILURES", "load_yaml", "yaml_problem"]

FAILURES: Final = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""Exceptions of `load_yaml`: those of PyYAML, and those of invalid numbers, times and too deep nesting."""

_INTEGER: Final = re.compile(r"^(?:[-+]?0b[0-1_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$")
_FLOAT: Final = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)
_NUMBERS: Final = {"tag:yaml.org,2002:int": _INTEGER, "tag:yaml.org,2002:float": _FLOAT}


class RepeatedKeyError(yaml.MarkedYAMLError):
    """A key repeats in one mapping."""


class _Once(yaml.SafeLoader):
    """Rejects repeated keys; numbers are decimal, hexadecimal or binary."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Checks keys before merges (`<<`) are applied, because merged keys may be overridden."""
        node = super().compose_mapping_node(anchor)
        lines = dict[str, int]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                problem = f'key "{key.value}" is given twice, first in line {lines[key.value]}; again'
                raise RepeatedKeyError(problem=problem, problem_mark=key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return node


_Once.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in found]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _AsWritten(_Once):
    """Scalars stay text; only an empty value is `None`."""


_AsWritten.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.rpartition(":")[2] in ("null", "merge")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: str, *, as_written: bool = False) -> Any:
    """The document in `text`; `as_written`: numbers, booleans and times stay text.

    Raises:
        FAILURES: the text is not valid YAML, or a key repeats; see `yaml_problem`.
    """
    return yaml.load(text, _AsWritten if as_written else _Once)  # noqa: S506 (both are safe)


def yaml_problem(failure: Exception) -> str:
    """Reason and position of one of `FAILURES`, without text of the file."""
    if isinstance(failure, yaml.reader.ReaderError):
        return f"an invalid character at position {failure.position}"
    problem = getattr(failure, "problem", None) or (
        "it cannot be read" if isinstance(failure, yaml.YAMLError) else str(failure)
    )
    mark = getattr(failure, "problem_mark", None)
    place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    shown = str(problem) if isinstance(failure, RepeatedKeyError) else _without_names(str(problem))
    return shown + place


def _without_names(problem: str) -> str:
    """Remove quoted aliases, tags and numbers, which are text of the file; other quotes contain a token."""
    is_own = any(word in problem for word in ("alias", "anchor", "tag", "literal"))
    return problem.partition("'" if "'" in problem else '"')[0].rstrip(" :") if is_own else problem
