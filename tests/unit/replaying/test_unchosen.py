"""Why a re-drive chooses no letter."""

from bascule.spark.replaying.options import ARGUMENTS, Bounds
from bascule.spark.replaying.unchosen import LetterCount, why_none
from bascule.spark.spelling import surface

THERE = [LetterCount("MalformedJson", "a", "in", 2), LetterCount("TypeMismatch", "b", "in", 1)]


def test_a_stream_without_letters_and_one_without_records_have_other_sentences() -> None:
    assert why_none("d", 0, [], {}, Bounds()).startswith("stream d has no records, so there is no dead letter")
    assert why_none("d", 5, [], {}, Bounds()).startswith("stream d has no dead letters: it has 5 records, without")
    bounded = why_none("d", 0, [], {}, Bounds(first=3))
    assert bounded.startswith("stream d has no records between the offsets and times that were asked for")


def test_the_filter_that_chooses_none_is_named_with_what_is_there() -> None:
    wanted = {"error_class": ("MalformedJson",), "job": ("c",), "stream": ()}
    assert why_none("d", 4, THERE, wanted, Bounds()) == (
        "stream d has 3 dead letters, and none is chosen: job is c, and theirs is a, b"
    )
    with surface({**ARGUMENTS, "error_class": "--error-class"}):
        sentence = why_none("d", 4, THERE, {"error_class": ("X", "Y")}, Bounds())
    assert sentence.endswith("none is chosen: --error-class is X, Y, and theirs is MalformedJson, TypeMismatch")


def test_filters_of_which_each_chooses_some_are_named_together() -> None:
    wanted = {"error_class": ("TypeMismatch",), "job": ("a",), "stream": ("in",)}
    assert why_none("d", 4, THERE, wanted, Bounds()).endswith(
        "no letter has all of error_class, job, stream as given; leave one out"
    )
