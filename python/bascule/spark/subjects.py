"""The option `subject` for records of an archive: the broker applies it to its own."""

import re
from importlib import import_module
from typing import Any

from bascule.spark.usage import usage


def subject_expression(pattern: str) -> str:
    """A regular expression, of RE2 and of Python alike, that the subjects of a filter match as a whole.

    Args:
        pattern: a NATS subject in which `*` stands for one token and a final `>` for one or more.

    Raises:
        UsageError: NATS would not accept a subscription on it.
    """
    tokens = pattern.split(".")
    is_valid = all(token and not re.search(r"\s", token) for token in tokens) and ">" not in tokens[:-1]
    if not is_valid:
        raise usage(f"option subject is {pattern!r}: it must be tokens separated by dots, with > as the last one only")
    return "(?s:" + r"\.".join({"*": r"[^.]*", ">": ".*"}.get(token, re.escape(token)) for token in tokens) + ")"


def with_subject(rows: Any, pattern: str) -> Any:
    """The rows whose column `subject` matches a filter."""
    pc: Any = import_module("pyarrow.compute")
    return rows.filter(pc.match_substring_regex(rows.column("subject"), rf"\A{subject_expression(pattern)}\z"))
