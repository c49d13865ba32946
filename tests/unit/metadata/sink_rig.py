"""Sinks in a state with one stream, for tests."""

from dataclasses import replace

from bascule.metadata import (
    Command,
    CreateStream,
    Placement,
    RegisterBroker,
    Rejection,
    State,
    StreamKey,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.sink_commands import OpenSink, PublishSink
from bascule.metadata.sinks import Sink, TargetPartition, TargetStream, pack_winners

QUERY, OTHER = "0c6d5f9e-0000-4000-8000-000000000001", "0c6d5f9e-0000-4000-8000-000000000002"
RUN, NEXT_RUN = "0c6d5f9e-0000-4000-8000-00000000000a", "0c6d5f9e-0000-4000-8000-00000000000b"
DIGEST, TOKEN, TOKEN_2 = "d" * 32, "a" * 32, "b" * 32
OPEN = OpenSink("default", "s", "ada", "stream", "kept", QUERY, RUN)


def start(partitions: int = 2, sink: OpenSink | None = OPEN) -> State:
    """Broker `a`, stream `orders`, and the sink, opened."""
    state = do(initial_state(), RegisterBroker("a", "h", 1, 1))
    placements = (Placement(("a",), "a"),) * partitions
    state = do(state, CreateStream("default", "orders", "", "", 1, StreamSettings(), placements))
    return do(state, sink) if sink is not None else state


def do(state: State, command: Command) -> State:
    """The state after a command that is accepted."""
    after, result = apply(state, state.index + 1, command)
    assert not isinstance(result, Rejection), result
    return after


def refused(state: State, command: Command) -> str:
    """The code that a command is rejected with; it changes nothing."""
    after, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection), "it was accepted"
    assert after == state.at(after.index)
    return result.code


def sink_of(state: State, name: str = "s") -> Sink:
    """The sink."""
    return state.sinks[StreamKey("default", name)]


def targets(state: State, rows: int = 10, *numbers: int) -> tuple[TargetStream, ...]:
    """So many rows for each of these partitions of `orders`; of both by default."""
    stream = state.streams[StreamKey("default", "orders")]
    chosen = numbers or tuple(range(len(stream.partitions)))
    partitions = tuple(
        TargetPartition(number, stream.partitions[number].incarnation, rows, DIGEST, 0) for number in chosen
    )
    return (TargetStream("default", "orders", partitions),)


def publish(state: State, epoch: int, token: str = TOKEN, rows: int = 10, name: str = "s") -> PublishSink:
    """The entry that decides an epoch of the sink as it is now."""
    sink = sink_of(state, name)
    return PublishSink(
        namespace="default",
        name=name,
        id=sink.id,
        generation=sink.generation,
        run_id=sink.run_id,
        epoch=epoch,
        token=token,
        winners=pack_winners((64, 192)) if rows else (),
        targets=targets(state, rows) if rows else (),
        input_rows=2 * rows,
        input_digest=DIGEST,
    )


def replayed(state: State, epoch: int, token: str = TOKEN_2) -> PublishSink:
    """The entry of a repeated epoch: nothing is staged for it."""
    return replace(publish(state, epoch, token), winners=(), targets=())
