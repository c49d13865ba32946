"""A follower's part: its log loses what its leader does not have, and takes the leader's batches as they are.

The leader is a copy of the log on another disk, without faults, that has gone on in a later leader epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulator import things
from tests.simulator.model import Entry, Model, RunEndedError, ViolationError
from tests.simulator.native import Log, SimError, Store

if TYPE_CHECKING:
    from tests.simulator.world import World


@dataclass(frozen=True)
class Leader:
    """The log of the leader, and what it has that the follower has not."""

    log: Log
    store: Store
    start: int
    """Offset where the two histories part."""
    epoch: int
    batches: list[list[Entry]]


def follow(world: World, number: int) -> None:
    """Find where the histories part, truncate, and append; sometimes the leader has removed what follows."""
    model = world.models[number]
    if number not in world.logs or not _is_whole(world, model) or _is_waiting(world, number):
        return
    stream = world.streams.follow
    boundaries = [end for end in model.ends if end >= max(model.acked, model.log_start)]
    if not boundaries:
        return
    leader = _lead(world, model, stream.choice(boundaries))
    try:
        _copy(world, number, leader)
    except SimError as error:
        if world.disk.is_stopped():
            raise RunEndedError from error
        raise
    world.doing = "nothing"
    world.note(f"followed {number}: {leader.start} {model.end} epoch {leader.epoch}")


def _copy(world: World, number: int, leader: Leader) -> None:
    model, log = world.models[number], world.logs[number]
    _check_links(model, log, leader)
    _check_refused(world, log, model, leader)
    if leader.start < model.end:
        _truncate(world, number, leader)
    if world.streams.follow.maybe(0.15):
        _reset(world, number, leader)
    else:
        _append(world, number, leader)


def _is_whole(world: World, model: Model) -> bool:
    """Whether the log has no damage, which a copy would share, and its directory has not failed."""
    damaged = model.weak or model.damaged or model.flaky or model.haunted or model.no_opening
    able = world.plan.read == 0 and not world.no_descriptors and world.space is None
    return not damaged and able and world.store.failure() is None


def _is_waiting(world: World, number: int) -> bool:
    """Whether a commit is not answered yet: its answer may promise more than the truncation leaves."""
    return any(key[0] == number for key in world.tickets)


def _lead(world: World, model: Model, start: int) -> Leader:
    """A copy of the log that ends at `start`, with new batches of a later epoch."""
    stream = world.streams.follow
    disk = world.disk.fork()
    disk.restart()
    disk.set_faults()
    store = Store(disk, model.journal)
    log, _ = store.open(model.path, model.incarnation, model.number, **model.settings.arguments())
    log.set_high_watermark(start)
    log.truncate(start, model.epoch)
    if log.ends()[1] != start:
        raise ViolationError("I21", f"{model.path} of the leader ends at {log.ends()[1]} after a truncation to {start}")
    epoch, batches = model.epoch + stream.randint(1, 3), list[list[Entry]]()
    for _ in range(stream.choice([0, 1, 1, 3])):
        world.counter += 1
        value = b"%d:%d:" % (model.number, world.counter) + b"." * stream.choice([0, 100, 900])
        records: list[tuple[bytes | None, bytes | None]] = [(None, value)] * stream.choice([1, 1, 4])
        _, _, timestamp = log.append(epoch, world.now, records, codec=stream.choice([0, 1]))
        batches.append([Entry(key, each, epoch, timestamp, world.elapsed) for key, each in records])
    return Leader(log, store, start, epoch, batches)


def _check_links(model: Model, log: Log, leader: Leader) -> None:
    """I21: two logs have the same links up to where they part, and nowhere behind it.

    Raises:
        ViolationError: I21, I15.
    """
    first = log.ends()[0]
    end = leader.log.ends()[1]
    for offset in range(first, model.end + 1):
        own, theirs = log.link_at(offset), leader.log.link_at(offset)
        if own is None and offset < model.scanned_to:
            continue  # a compaction may have put batches together
        if (own is not None) != (offset in model.ends):
            raise ViolationError("I21", f"{model.path} has the link {own} at {offset}; it has the ends {model.ends}")
        if offset in model.ends and (offset <= leader.start) != (own == theirs):
            raise ViolationError("I21", f"links at {offset}, {own} and {theirs}, of logs that part at {leader.start}")
    if leader.batches and leader.log.epoch_end(leader.epoch) != (leader.epoch, end):
        raise ViolationError("I15", f"epoch {leader.epoch} ends at {leader.log.epoch_end(leader.epoch)}, not at {end}")
    last = model.entries[model.end - 1].epoch if model.end > first else None
    if last is not None and log.epoch_end(leader.epoch) != (last, model.end):
        raise ViolationError("I15", f"{model.path}: {log.epoch_end(leader.epoch)}, not {(last, model.end)}")


def _check_refused(world: World, log: Log, model: Model, leader: Leader) -> None:
    """P13: batches of another place, and a truncation of committed or of half batches, are refused.

    Raises:
        ViolationError: P13.
    """
    attempts: list[tuple[str, int]] = []
    if leader.batches and leader.start < model.end:
        try:
            log.append_verbatim(leader.log.batches(leader.start), world.now)
        except SimError as error:
            if error.args[0] != "not_next":
                raise
            world.reached.sometimes("a follower refused batches that do not follow")
        else:
            raise ViolationError("P13", f"{model.path} took batches of {leader.start} at its end {model.end}")
    halves = [offset for offset in range(model.acked, model.end) if offset not in model.ends]
    attempts += [("no_boundary", halves[0])] if halves else []
    below = [end for end in model.ends if log.ends()[0] <= end < log.ends()[3]]
    attempts += [("committed", below[-1])] if below else []
    for kind, to in attempts:
        try:
            log.truncate(to, leader.epoch)
        except SimError as error:
            if error.args[0] == kind:
                continue
            raise
        raise ViolationError("P13", f"{model.path} was truncated to {to}, though that is {kind}")


def _truncate(world: World, number: int, leader: Leader) -> None:
    model, log = world.models[number], world.logs[number]
    world.doing = "during a truncation"
    try:
        log.truncate(leader.start, leader.epoch)
    except SimError as error:
        _closed(world, number, error)
    _heard(world)
    model.cut(leader.start)
    model.acked = leader.start  # everything is durable after a truncation
    start, end, durable, mark = log.ends()
    if (end, durable) != (leader.start, leader.start) or mark > end or start > model.log_start:
        raise ViolationError("I21", f"{model.path} has {log.ends()} after a truncation to {leader.start}")
    log.set_high_watermark(end)
    world.reached.sometimes("a follower's log was truncated")


def _append(world: World, number: int, leader: Leader) -> None:
    if not leader.batches:
        return
    model, log = world.models[number], world.logs[number]
    before, end = model.end, leader.log.ends()[1]
    batches = leader.log.batches(leader.start)
    _note_batches(model, leader)
    world.doing = "during an append"
    try:
        found = log.append_verbatim(batches, world.now)
    except SimError as error:
        things.failed(world, error)
        raise RunEndedError from error  # a part may be stored: the next run finds how much
    if found != (before, end) or log.batches(before) != batches:
        raise ViolationError("I21", f"{model.path} took {found}, and not the bytes of [{before}, {end})")
    world.reached.sometimes("a follower took batches as they are")


def _reset(world: World, number: int, leader: Leader) -> None:
    """The leader has removed everything that the follower has: begin where it ends."""
    model, log = world.models[number], world.logs[number]
    _note_batches(model, leader)
    model.log_start = model.end
    world.doing = "during a reset"
    try:
        log.reset_at(leader.log, model.end)
    except SimError as error:
        _closed(world, number, error)
    _heard(world)
    model.acked = model.end
    if log.ends() != (model.end,) * 4:
        raise ViolationError("I21", f"{model.path} has {log.ends()} after a reset to {model.end}")
    if log.link_at(model.end) != leader.log.link_at(model.end):
        raise ViolationError("I21", f"{model.path} has another link than its leader after a reset to {model.end}")
    world.reached.sometimes("a follower's log was reset")


def _note_batches(model: Model, leader: Leader) -> None:
    for entries in leader.batches:
        model.append(entries, None)
        model.last_timestamp = entries[-1].timestamp
    model.epoch = max(model.epoch, leader.epoch)


def _closed(world: World, number: int, error: SimError) -> None:
    """The log is closed after an error; the next run recovers it."""
    world.note(f"refused: {error.args[0]}")
    del world.logs[number]
    raise RunEndedError from error


def _heard(world: World) -> None:
    """Take the answers of the other logs: closing one log runs what is due for all of them."""
    for each in list(world.logs):
        things.hear(world, each, failed=world.store.failure() is not None)
