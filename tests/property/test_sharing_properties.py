"""Streams that share messages with a new one, compared with a search over all short subjects."""

from dataclasses import replace
from itertools import product

from bascule.metadata import Partition, Stream, StreamSettings
from bascule.protocols.liftbridge.neighbours import neighbours
from hypothesis import example, given, settings
from hypothesis import strategies as st

TOKENS = ["a", "b", "0", "1", "2", "01"]
SUBJECTS = [parts for length in (1, 2, 3, 4) for parts in product(TOKENS, repeat=length)]
"""All concrete subjects that the patterns below can distinguish."""
Asked = tuple[str, int, bool]
"""Subject, number of partitions, whether they share the stream's subject."""


def joined(parts: list[str], rest: bool) -> str:
    return ".".join([*parts, ">"] if rest else parts)


SUBJECT = st.builds(joined, st.lists(st.sampled_from([*TOKENS, "*"]), min_size=1, max_size=2), st.booleans())
NAME = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join)


def allowed(asked: Asked) -> bool:
    subject, partitions, by_subject = asked
    return by_subject or partitions == 1 or not subject.endswith(">")


ASKED = st.tuples(SUBJECT, st.integers(1, 3), st.booleans()).filter(allowed)


def matches(pattern: str, parts: tuple[str, ...]) -> bool:
    """The rule of NATS: `*` is one token, a final `>` one or more."""
    wanted = pattern.split(".")
    if wanted[-1] == ">":
        return len(parts) >= len(wanted) and matches(
            ".".join([*wanted[:-1], *["*"] * (len(parts) - len(wanted) + 1)]), parts
        )
    return len(wanted) == len(parts) and all(token in ("*", part) for token, part in zip(wanted, parts, strict=True))


def stored(asked: Asked, numbers: range) -> set[tuple[str, ...]]:
    """The subjects whose messages partitions of these numbers store."""
    subject, partitions, by_subject = asked
    patterns = [
        subject if by_subject or number == 0 else f"{subject}.{number}" for number in numbers if number < partitions
    ]
    return {parts for parts in SUBJECTS if any(matches(pattern, parts) for pattern in patterns)}


def stream(name: str, asked: Asked) -> Stream:
    subject, partitions, by_subject = asked
    parts = tuple(Partition(number, number + 2, "b", 1, 1, ("b",), ("b",)) for number in range(partitions))
    return Stream("default", name, 0, 1, subject, "", 0, StreamSettings(partition_by_subject=by_subject), parts)


@settings(deadline=None)
@given(ASKED, NAME, ASKED)
@example(("a", 2, False), "a.1", ("b", 1, False))
@example(("a", 2, False), "a.2", ("b", 1, False))
@example(("a", 3, False), "b", ("a.2", 1, False))
@example(("a", 2, False), "b", ("a.*", 1, False))
@example(("a.01", 1, False), "b", ("a", 3, False))
@example((">", 1, False), "b", ("a", 1, False))
def test_a_stream_is_found_exactly_when_a_message_or_its_name_would_be_shared(
    new: Asked, name: str, there: Asked
) -> None:
    theirs = stored(there, range(3)) | {tuple(name.split("."))}
    shares = bool(stored(new, range(3)) & theirs)
    found = list(neighbours([stream(name, there)], "new", new[0], new[1], by_subject=new[2]))
    assert [neighbour.resource for neighbour in found] == ([name] if shares else [])
    if found:
        numbered = not new[2] and bool(stored(new, range(1, 3)) & theirs)
        assert found[0].by_number == numbered


@given(ASKED)
def test_a_stream_of_the_same_name_and_the_brokers_own_are_left_out(new: Asked) -> None:
    streams = [stream("new", new), stream("__cursors", (">", 1, False))]
    assert list(neighbours(streams, "new", new[0], new[1], by_subject=new[2])) == []


def test_a_stream_of_another_namespace_is_named_with_it() -> None:
    other = stream("orders", ("orders", 1, False))
    elsewhere = replace(other, namespace="iot")
    (found,) = neighbours([elsewhere], "orders", "orders", 1, by_subject=False)
    assert found.resource == "iot/orders"
