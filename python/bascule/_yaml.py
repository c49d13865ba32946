"""What is wrong with a YAML file, without the text of the file: it may hold secrets."""

from typing import Final

import yaml

__all__ = ["FAILURES", "yaml_problem"]

FAILURES: Final = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""What reading raises: besides its own, the parser lets out what numbers, times and nesting beyond all bounds raise."""


def yaml_problem(failure: Exception) -> str:
    """Problem and place of one of `FAILURES`."""
    if isinstance(failure, yaml.reader.ReaderError):
        return f"a character that cannot stand there, at position {failure.position}"
    problem = getattr(failure, "problem", None) or (
        "it cannot be read" if isinstance(failure, yaml.YAMLError) else str(failure)
    )
    mark = getattr(failure, "problem_mark", None)
    place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    return _without_names(str(problem)) + place


def _without_names(problem: str) -> str:
    """Aliases, tags and numbers are the file's own text; other quotes hold a character or the name of a token."""
    is_own = any(word in problem for word in ("alias", "anchor", "tag", "literal"))
    return problem.partition("'" if "'" in problem else '"')[0].rstrip(" :") if is_own else problem
