"""Sinks of a whole broker: old runs, lost answers, aborts, and targets that change between stage and publish."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from uuid import uuid4

import pytest
from bascule import Client, StreamOptions, testing
from bascule.errors import BrokerError

from tests.failpoints import broker_failpoints
from tests.integration.sink_run import Attempt, Run, TaskRows, expected, rows, stored
from tests.torture.copying_process import LIMIT_S
from tests.waiting import until


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker(durability="disk") as running:
        yield running


@pytest.fixture
def client(broker: testing.TestBroker) -> Iterator[Client]:
    if not broker.is_running:
        broker.start()
    with broker.connect() as connected:
        yield connected


@pytest.fixture
def run(broker: testing.TestBroker, client: Client) -> Run:
    stream = f"orders-{uuid4()}"
    client.create_stream(stream, options=StreamOptions(partitions=2))
    return Run(broker.address, stream)


def following(run: Run) -> Run:
    """The next run of the same query: after a restart, or from a copy of its checkpoint."""
    return Run(run.address, run.stream, run.query_id)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(BrokerError) as failure:
        call()
    return failure.value.code


def test_a_run_that_was_replaced_neither_stages_nor_publishes(run: Run) -> None:
    run.write(0, rows(0))
    old = run.attempt(1, rows(7))
    old.put(0, 64)
    whole = run.attempt(1, rows(8))
    whole.stage()
    restarted = following(run).attempt(1, rows(1))
    assert refused(lambda: old.put(1, 65)) == "sink_fenced"
    assert refused(whole.publish) == "sink_fenced"
    restarted.stage()
    assert restarted.publish()
    assert refused(whole.publish) == "sink_fenced"
    assert refused(lambda: run.attempt(2, rows(2))) == "sink_fenced"
    assert stored(run.address, run.stream) == expected(rows(0), rows(1))


def test_a_copied_checkpoint_cannot_write_an_epoch_again_with_other_rows(run: Run) -> None:
    run.write(0, rows(0))
    first = run.attempt(1, rows(1))
    first.stage()
    assert first.publish("a" * 64)
    copied = following(run)
    again = copied.attempt(1, rows(5))
    assert again.sink.last_epoch == 1, "its tasks stage nothing"
    assert refused(lambda: again.put(0, 64)) == "sink_published"
    assert refused(lambda: replayed(copied, 1, rows(1, count=99)).publish("b" * 64)) == "sink_replay_differs"
    assert refused(lambda: replayed(copied, 1, rows(5)).publish("b" * 64)) == "sink_replay_differs"
    assert refused(replayed(copied, 0, rows(0)).publish) == "sink_epoch", "the copy is older than the sink"
    assert replayed(copied, 1, rows(1)).publish("a" * 64)
    assert refused(lambda: run.attempt(2, rows(2))) == "sink_fenced", "the copy has replaced the original"
    copied.write(2, rows(2))
    assert stored(run.address, run.stream) == expected(rows(0), rows(1), rows(2))


def replayed(run: Run, epoch: int, tasks: list[TaskRows]) -> Attempt:
    """An attempt whose tasks only count their rows."""
    attempt = run.attempt(epoch, tasks)
    attempt.verify()
    return attempt


@pytest.mark.slow
def test_a_publish_whose_answer_is_lost_is_answered_again_also_after_a_kill(
    broker: testing.TestBroker, run: Run
) -> None:
    attempt = run.attempt(0, rows(0))
    attempt.stage()
    assert attempt.publish()
    assert attempt.publish()
    broker.kill()
    broker.start()
    assert attempt.publish()
    run.write(1, rows(1))
    assert stored(run.address, run.stream) == expected(rows(0), rows(1))


def test_an_attempt_that_is_aborted_after_its_publish_stays(run: Run) -> None:
    attempt = run.attempt(0, rows(0))
    attempt.stage()
    assert attempt.publish()
    assert refused(attempt.abort) == "sink_published"
    run.write(1, rows(1))
    assert stored(run.address, run.stream) == expected(rows(0), rows(1))


def test_of_an_expiry_and_a_decision_at_the_same_time_exactly_one_happens(run: Run) -> None:
    outcomes: set[bool] = set()
    with ThreadPoolExecutor(2) as threads:
        for epoch in range(12):
            attempt = run.attempt(epoch, rows(epoch, count=5))
            attempt.stage()
            calls: dict[str, Future[object]] = {}
            for name in ("publish", "abort") if epoch == 1 else ("abort", "publish"):
                calls[name] = threads.submit(getattr(attempt, name))
                if epoch < 2:
                    wait(calls.values())  # each order once for certain; the others race
            failures = [calls[name].exception() for name in ("abort", "publish")]
            codes = [failure.code if isinstance(failure, BrokerError) else failure for failure in failures]
            assert codes in ([None, "sink_expired"], ["sink_published", None]), codes
            outcomes.add(codes[1] is None)
            if codes[1] is not None:
                run.write(epoch, rows(epoch, count=5))
    assert outcomes == {True, False}
    assert stored(run.address, run.stream) == expected(*(rows(epoch, count=5) for epoch in range(12)))


def test_a_read_only_target_refuses_the_epoch_until_it_is_writable(run: Run, client: Client) -> None:
    attempt = run.attempt(0, rows(0))
    attempt.stage()
    client.set_readonly(run.stream, partitions=[1])
    assert refused(attempt.publish) == "readonly"
    assert stored(run.address, run.stream) == [[], []]
    client.set_readonly(run.stream, False, partitions=[1])
    assert attempt.publish()
    assert stored(run.address, run.stream) == expected(rows(0))


def test_rows_for_a_paused_target_are_published(run: Run, client: Client) -> None:
    attempt = run.attempt(0, rows(0))
    attempt.stage()
    client.pause_stream(run.stream)
    assert attempt.publish()
    assert stored(run.address, run.stream) == expected(rows(0))


def test_rows_for_a_purged_target_are_refused_and_staged_again(run: Run, client: Client) -> None:
    run.write(0, rows(0))
    attempt = run.attempt(1, rows(1))
    attempt.stage()
    client.purge_stream(run.stream, now=True)
    assert refused(attempt.publish) == "incarnation_changed"
    run.write(1, rows(1))
    assert stored(run.address, run.stream) == expected(rows(1))


def test_rows_for_a_deleted_target_are_refused_and_go_to_a_new_one(run: Run, client: Client) -> None:
    run.write(0, rows(0))
    attempt = run.attempt(1, rows(1))
    attempt.stage()
    client.delete_stream(run.stream)
    assert refused(attempt.publish) == "stream_not_found"
    client.create_stream(run.stream, options=StreamOptions(partitions=2))
    assert refused(attempt.publish) == "incarnation_changed"
    run.write(1, rows(1))
    assert stored(run.address, run.stream) == expected(rows(1))


def pieces(broker: testing.TestBroker) -> list[Path]:
    """The sealed pieces of the broker, in the order of partitions."""
    return sorted((broker.directory / "data").glob("partitions/*/stage/*.piece"))


def flip(piece: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)


@pytest.mark.slow
def test_a_piece_that_is_damaged_after_the_decision_blocks_its_partition_until_it_is_skipped(
    broker: testing.TestBroker, run: Run
) -> None:
    run.write(0, rows(0))
    until(lambda: not pieces(broker), LIMIT_S, what="only pieces of the next epoch are here")
    broker.stop()
    with broker_failpoints("link.started=1*return(abort)"):
        broker.start()
    run.publish_timeout_ms = 2000
    attempt = run.attempt(1, rows(1, tasks=1))
    attempt.stage()
    with ThreadPoolExecutor(1) as threads:
        published = threads.submit(attempt.publish)
        until(lambda: not broker.is_running, LIMIT_S, what="the broker is killed")
        first = pieces(broker)[0]
        flip(first)
        broker.start()
        assert not published.result(60), "it is decided, and cannot be linked"
    with broker.connect() as fresh:
        until(lambda: any(each.blocked for each in fresh.sink(run.stream).partitions), LIMIT_S, what="it is reported")
        blocked = {each.partition: each for each in fresh.sink(run.stream).partitions}
        assert "damaged" in blocked[0].blocked or "cannot be linked" in blocked[0].blocked
        assert (blocked[0].phase, blocked[1].phase) == ("decided", "linked")
        assert refused(lambda: run.write(2, rows(2))) == "sink_busy"
        fresh.skip_sink(run.stream, run.stream, 0)
        until(lambda: fresh.sink(run.stream).finished, LIMIT_S, what="the epoch is finished")
    run.publish_timeout_ms = 60_000
    following(run).write(2, rows(2))
    without, whole = expected(rows(0), rows(2)), expected(rows(0), rows(1, tasks=1), rows(2))
    assert stored(run.address, run.stream) == [without[0], whole[1]]


def test_a_piece_whose_end_is_damaged_before_the_decision_is_refused_and_staged_again(
    broker: testing.TestBroker, run: Run
) -> None:
    attempt = run.attempt(0, rows(0, tasks=1))
    before = set(pieces(broker))
    attempt.stage()
    piece = min(set(pieces(broker)) - before)
    piece.write_bytes(piece.read_bytes()[:-1])
    assert refused(attempt.publish) == "sink_pieces_missing"
    attempt.messages.clear()
    attempt.stage()
    assert attempt.publish()
    assert stored(run.address, run.stream) == expected(rows(0, tasks=1))
