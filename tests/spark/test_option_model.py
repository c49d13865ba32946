import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.spark.option_model import Option, OptionSet, choice, duration, flag, number, parsed, size, text
from bascule.spark.options import SOURCE

ROOT = Path(__file__).resolve().parents[2]

NAME = text("targetName", "the name")
COUNT = number("count", "how many", least=1, most=9, default="3")
LIMIT = size("limit", "most bytes", least=1)
DELAY = duration("delay", "how long", default="15m")
MODE = choice("mode", "how", ("fast", "safe"), default="safe")
QUIET = flag("quiet", "no messages", default="false")
PAIR = parsed("pair", "two words", "words", lambda given: tuple(given.split()))
EXAMPLE = OptionSet(
    "Example",
    "An example.",
    (NAME, COUNT, LIMIT, DELAY, MODE, QUIET, PAIR),
    ignored=frozenset({"checkpointlocation"}),
    advice={"topic": "use targetName"}.get,
)


def test_values_have_the_type_of_their_option_and_defaults_go_through_the_same_checks() -> None:
    given = EXAMPLE.read({"COUNT": " 9 ", "limit": "64MiB", "Mode": "FAST", "quiet": "True", "pair": "a b"})
    found = [given.get(option) for option in EXAMPLE.options]
    assert found == [None, 9, 64 << 20, 900_000, "fast", True, ("a", "b")]
    assert EXAMPLE.read({}).value(COUNT) == 3
    assert (given.has(COUNT), given.has(DELAY)) == (True, False)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cuont": "1"}, r"there is no option 'cuont' \(did you mean count\?\)$"),
        ({"topic": "1"}, "there is no option 'topic': use targetName$"),
        ({"count": "0"}, "option count is '0': it must be a number from 1 to 9$"),
        ({"count": "many"}, "option count is 'many': it must be a number from 1 to 9$"),
        ({"limit": "0"}, "option limit is '0': it must be a size in bytes at least 1, for example 64MiB$"),
        ({"delay": "soon"}, "option delay is 'soon': it must be a time in ms at least 0, for example 30s$"),
        ({"mode": "fst"}, r"option mode is 'fst': it must be one of fast, safe \(did you mean fast\?\)$"),
        ({"quiet": "yes"}, "option quiet is 'yes': it must be true or false$"),
        ({"targetName": "  "}, "option targetName is empty$"),
        ({}, "option targetName is missing: the name$"),
        ({"key": "-----BEGIN PRIVATE KEY-----\nabc"}, r"option key has the text of a PEM file.*spark\.files"),
        ({"pair": "x -----BEGIN CERTIFICATE-----"}, r"option pair has the text of a PEM file.*spark\.files"),
    ],
)
def test_mistakes_name_option_value_and_remedy(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        [EXAMPLE.read(given).value(option) for option in (COUNT, DELAY, MODE, QUIET, *_given(given), NAME)]


def test_the_spelling_of_the_user_is_kept_and_that_of_an_option_elsewhere_is_ours() -> None:
    with pytest.raises(UsageError, match="there is no option 'XYZ'; there are targetName, count, limit,"):
        EXAMPLE.read({"XYZ": "1"})
    with pytest.raises(UsageError, match=r"there is no option 'maxOffsetsPerTrigger' here: it is an option of reads$"):
        EXAMPLE.read({"maxoffsetspertrigger": "1"})
    with pytest.raises(UsageError, match=r"^option targetName has the text of a PEM file"):
        EXAMPLE.read({"targetname": "-----BEGIN PRIVATE KEY-----"})


def _given(given: dict[str, str]) -> list[Option[Any]]:
    return [option for option in EXAMPLE.options if option.name in given]


def test_what_spark_adds_is_left_out() -> None:
    added = {"checkpointLocation": "/c", "path": "/t", "option.count": "4", "count": "4", "owner": "me"}
    assert EXAMPLE.read(added).value(COUNT) == 4


def test_a_name_that_repeats_is_refused() -> None:
    with pytest.raises(AssertionError, match="options of Twice repeat a name"):
        OptionSet("Twice", "", (COUNT, number("COUNT", "again")))


def test_every_default_of_the_source_is_valid() -> None:
    given = SOURCE.read({})
    with_default = [option for option in SOURCE.options if option.default is not None]
    assert all(given.get(option) is not None for option in with_default)


def test_the_options_page_is_current() -> None:
    command = [sys.executable, ROOT / "specs/generate_spark_options.py", "--check"]
    compared = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr
