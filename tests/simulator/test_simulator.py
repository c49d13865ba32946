"""Tests of the simulator: the first seeds pass, and the same seed gives the same run."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

try:
    from tests.simulator import files
    from tests.simulator.native import Disk, Store
    from tests.simulator.run import run_seed
    from tests.simulator.sometimes import FOLLOWED, SITUATIONS, Reached, missing
except ImportError as absent:
    pytest.skip(f"the simulator is not built: {absent}", allow_module_level=True)

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_first_seeds_show_no_violation() -> None:
    assert [str(outcome.violation) for outcome in map(run_seed, range(200)) if outcome.violation] == []


def test_the_first_seeds_of_followers_show_no_violation() -> None:
    outcomes = [run_seed(seed, follower=True) for seed in range(200)]
    assert [str(outcome.violation) for outcome in outcomes if outcome.violation] == []
    reached: Counter[str] = sum((outcome.reached for outcome in outcomes), Counter[str]())
    assert [situation for situation in FOLLOWED if not reached[situation]] == []


EARLY = (18370, 19887, 29759, 36376, 114820, 120072, 123053, 124390, 132099, 137471)
"""Seeds of a bug: retention removed records too early."""
BACK = (20636, 114569, 142073)
"""Seeds of a bug: a timestamp went back after reopening."""
STRAYS = (44046, 104386, 123449, 132488, 140643, 111175, 8098377)
"""Seeds of a bug: copies of other pages and batches of earlier runs were accepted."""
LOST = (35599, 40684, 115074, 115874, 120961, 141369, 1964, 1107376, 5104947, 120972, 8100436, 105577, 8109183)
"""Seeds of a bug: acked records after damage were lost or unreadable."""
TWICE = (6109789, 6113735)
"""Seeds of a bug: after a lost tail the second opening reported more damage than the first."""
PASSING = (9100364, 9104539)
"""Seeds of a bug: a transient read error of the journal was treated as a loss."""
OTHERS = (33547, 102129, 114294, 127684, 957, 1000408, 1101332, 2004967, 4000, 4496, 6120418, 8107696, 119777)
"""Seeds of bugs: a lost only segment, a directory used for another log, misread removed or never rolled segments."""


UNREAD = (111243,)
"""Seeds of a bug: a file of producers that could not be read once outlived the truncation of its batches."""
LEFT = (117213, 118530)
"""Seeds of a bug: the name of an empty segment that a roll without space had left hid the records after damage."""
UNLINKED = (201062,)
"""Seeds of a bug: an append behind a damaged last batch was not linked to it, and was lost in the next crash."""
LENGTHS = (14249,)
"""Seeds of a fault of the simulator: damage behind a damaged length was counted as damage to the batch before."""


@pytest.mark.parametrize(
    "seed", [*EARLY, *BACK, *STRAYS, *LOST, *TWICE, *PASSING, *OTHERS, *UNREAD, *LEFT, *UNLINKED, *LENGTHS]
)
def test_a_seed_that_once_showed_a_violation_shows_none(seed: int) -> None:
    assert run_seed(seed).violation == ""


STORED_LENGTH = 80
"""Position of the length of the payload in a header."""
PAYLOAD_CHECKSUM = 104
"""Position of the checksum of the payload in a header."""


def three_batches() -> bytearray:
    """A segment with three batches and zeros behind them."""
    disk = Disk(1)
    disk.make_directory("/partitions")
    log = Store(disk).create(
        "/partitions/1", 1, 0, memory=False, segment_bytes=1 << 20, segment_age_ns=0, preallocate_bytes=0
    )
    for value in (b"a", b"b", b"c"):
        log.append(1, 1, [(None, value)])
    ((_, path),) = files.segments(disk.paths(), "/partitions/1")
    return bytearray(disk.read(path) + bytes(1 << 14))


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_batch_with_a_damaged_length_has_no_known_end(damaged: int) -> None:
    content = three_batches()
    whole = files.known_batches(bytes(content))
    assert [(batch.base_offset, batch.next_offset) for batch in whole] == [(0, 1), (1, 2), (2, 3)]
    content[whole[damaged].position + STORED_LENGTH + 1] ^= 0x20
    assert len(files.batches(bytes(content))) == damaged + 1  # it seems to reach over its successors
    assert files.known_batches(bytes(content)) == whole[:damaged]


def test_a_batch_with_other_damage_in_its_header_has_a_known_end() -> None:
    content = three_batches()
    whole = files.known_batches(bytes(content))
    content[whole[1].position + PAYLOAD_CHECKSUM] ^= 1
    assert files.known_batches(bytes(content)) == whole


def digests(first: int) -> str:
    """The digests of some seeds in new processes."""
    command = [sys.executable, "-m", "tests.simulator", "--seeds", "10", "--first", str(first), "--digests"]
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    assert digests(40) == digests(40)
    assert digests(40) != digests(50)


def test_a_situation_that_is_not_on_the_list_is_refused() -> None:
    with pytest.raises(KeyError):
        Reached().sometimes("a situation nobody listed")


def test_a_situation_that_never_occurred_is_reported() -> None:
    assert missing(Counter(SITUATIONS[1:])) == [SITUATIONS[0]]
    assert missing(Counter(SITUATIONS), follower=True) == list(FOLLOWED)
