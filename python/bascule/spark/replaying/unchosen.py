"""Why a re-drive chooses no dead letter, as a sentence. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bascule._text import counted
from bascule.spark.replaying.options import Bounds
from bascule.spark.spelling import spelled

__all__ = ["LetterCount", "why_none"]

_SHOWN: Final = 5


@dataclass(frozen=True)
class LetterCount:
    """Letters with one error class, job and stream."""

    error_class: str
    job: str
    stream: str
    letters: int


def why_none(
    stream: str, records: int, there: Sequence[LetterCount], wanted: Mapping[str, Sequence[str]], bounds: Bounds
) -> str:
    """The sentence for letters of which none is chosen.

    Args:
        stream: of the letters.
        records: of the stream within the bounds, letters or not.
        there: all letters among them.
        wanted: chosen values, by the arguments `error_class`, `job` and `stream`; empty = all are chosen.
        bounds: of the re-drive.
    """
    within = "" if bounds == Bounds() else " between the offsets and times that were asked for"
    letters = sum(each.letters for each in there)
    if not records:
        return f"stream {stream} has no records{within}, so there is no dead letter to drive again"
    if not letters:
        return (
            f"stream {stream} has no dead letters{within}: it has {counted(records, 'record')}, without the headers "
            "bascule.dlq.… of letters; name the stream that a job or the sink writes its dead letters to"
        )
    found = f"stream {stream} has {counted(letters, 'dead letter')}{within}, and none is chosen"
    given = {name: values for name, values in wanted.items() if values}
    for name, values in given.items():
        values_there = sorted({str(getattr(each, name)) for each in there})
        if not set(values) & set(values_there):
            more = ", …" if len(values_there) > _SHOWN else ""
            known = ", ".join(each or "(none)" for each in values_there[:_SHOWN])
            return f"{found}: {spelled(name)} is {', '.join(values)}, and theirs is {known}{more}"
    return f"{found}: no letter has all of {', '.join(spelled(name) for name in given)} as given; leave one out"
