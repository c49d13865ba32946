"""How many sinks a namespace keeps, and when those of batch writes go."""

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest
from bascule.metadata import Rejection, State, StreamKey, apply
from bascule.metadata.sink_commands import DeleteSink, ExpireSink, OpenSink
from bascule.metadata.sinks import MAX_SINKS, Lifetime, Sink

from tests.unit.metadata.sink_rig import TOKEN, do, publish, refused, sink_of, start

ONCE: Final = OpenSink("default", "once", "ada", "batch", "hour", "", str(UUID(int=1)))


def opening(lifetime: Lifetime, name: str = "new", namespace: str = "default") -> OpenSink:
    return replace(ONCE, lifetime=lifetime, name=name, namespace=namespace)


def full(lifetime: Lifetime) -> State:
    """A state in which namespace `default` has as many sinks of a lifetime as it may have."""
    state = start(sink=None)
    made = (
        Sink("default", f"{lifetime}-{number}", "ada", "batch", lifetime, number, number, "", str(UUID(int=number)))
        for number in range(MAX_SINKS)
    )
    return replace(state, sinks={StreamKey(sink.namespace, sink.name): sink for sink in made})


@pytest.mark.parametrize(
    ("lifetime", "what", "remedy"),
    [
        ("kept", "named sinks", "delete some that are not used"),
        ("month", "idempotency keys and queries without sinkId that were used in the last 30 days", "delete some"),
        ("hour", "batch writes of the last hour", "give them an idempotencyKey"),
    ],
)
def test_the_last_place_is_given_and_the_next_one_refused_with_the_remedy(
    lifetime: Lifetime, what: str, remedy: str
) -> None:
    state = full(lifetime)
    _, result = apply(state, state.index + 1, opening(lifetime))
    assert isinstance(result, Rejection)
    assert result.code == "no_room"
    assert result.message.startswith(f"namespace default has 10000 {what}, the most it may: ")
    assert remedy in result.message
    assert result.message.endswith("; client ada has the most of them, 10000")
    # a sink that exists is opened all the same, nothing is evicted for another one, and a deletion makes a place
    known = do(state, replace(opening(lifetime, f"{lifetime}-7"), run_id=str(UUID(int=99_999))))
    assert len(known.sinks) == MAX_SINKS
    place = do(known, DeleteSink("default", f"{lifetime}-8", 8))
    assert len(do(place, opening(lifetime)).sinks) == MAX_SINKS


def test_batch_writes_do_not_take_the_places_of_keys_and_named_sinks_nor_those_of_another_namespace() -> None:
    state = full("hour")
    for lifetime in ("month", "kept"):
        state = do(state, opening(lifetime, lifetime))
    state = do(state, opening("hour", namespace="other"))
    assert len(state.sinks) == MAX_SINKS + 3
    assert refused(state, opening("hour")) == "no_room"


def test_a_client_is_refused_at_its_share_and_its_sinks_are_opened_all_the_same() -> None:
    share = replace(opening("month"), most_of_owner=2)
    state = start(sink=None)
    for name in ("a", "b"):
        state = do(state, replace(share, name=name))
    _, result = apply(state, state.index + 1, replace(share, name="c"))
    assert isinstance(result, Rejection)
    assert result.code == "no_room"
    assert result.message.startswith("client ada has 2 idempotency keys and queries without sinkId")
    assert "limits.sinks_per_client" in result.message
    do(state, replace(share, name="a", run_id=str(UUID(int=2))))
    do(do(state, DeleteSink("default", "b", sink_of(state, "b").id)), replace(share, name="c"))
    do(state, replace(share, name="c", owner="bob"))
    anonymous = state
    for name in ("c", "d", "e"):
        anonymous = do(anonymous, replace(share, name=name, owner=""))


def expiry(sink: Sink, token: str = TOKEN) -> ExpireSink:
    return ExpireSink(sink.namespace, sink.name, sink.id, sink.generation, 0, token)


def test_the_record_of_a_batch_write_goes_when_its_attempt_expires() -> None:
    state = do(start(sink=None), ONCE)
    sink = sink_of(state, "once")
    late = publish(state, 0, name="once")
    after = do(state, expiry(sink))
    assert after.sinks == {}
    assert refused(after, late) == "sink_not_found", "nothing of it can be published any more"
    # a task that is late makes a record of its own, which the late publish does not mean
    again = do(after, ONCE)
    assert sink_of(again, "once").id != sink.id
    assert refused(again, late) == "sink_not_found"


def test_a_decided_batch_write_and_one_with_a_key_keep_their_records() -> None:
    state = do(start(sink=None), ONCE)
    sink = sink_of(state, "once")
    decided = publish(state, 0, name="once")
    state = do(state, decided)
    assert refused(state, expiry(sink, decided.token)) == "sink_published"
    assert sink_of(do(state, expiry(sink, "f" * 32)), "once").last is not None
    keyed = do(start(sink=None), opening("month"))
    assert sink_of(do(keyed, expiry(sink_of(keyed, "new"))), "new").expired
