"""The operations of a run: appends, commits, steps, reads, maintenance; each is checked at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulator import checks
from tests.simulator.model import Entry, Model, RunEndedError, ViolationError
from tests.simulator.native import SimError
from tests.simulator.plan import SECOND

if TYPE_CHECKING:
    from tests.simulator.world import World

GRACE_NS = 60 * SECOND
"""Time until the files of removed segments are deleted."""

PASSING = ("full", "exhausted")
"""Transient errors: no space, no file descriptor. Nothing was stored."""


def one_thing(world: World) -> None:
    number = world.streams.schedule.randrange(len(world.models))
    name, do = world.streams.schedule.pick(THINGS)
    if number not in world.logs:
        return
    do(world, number)
    world.note(f"{name} {number}")
    if world.disk.is_stopped():
        raise RunEndedError
    if world.streams.keys.maybe(world.plan.compaction):
        world.streams.keys.choice([compact, compact, compact, trim])(world, number)
    world.doing = "nothing"


def failed(world: World, error: SimError) -> None:
    """Check that after an error the directory has failed or the power was cut; other errors are violations."""
    kind, message = error.args
    world.note(f"refused: {kind}")
    if world.disk.is_stopped():
        raise RunEndedError from error
    if kind in {"io", "failed"} and world.store.failure() is None:
        raise ViolationError("P14", f"{message}, yet the directory has not failed") from error
    if kind not in {"io", "failed", *PASSING}:
        raise ViolationError("P15", f"refused as {kind}: {message}") from error


def append(world: World, number: int) -> None:
    world.doing = "during an append"
    model, log = world.models[number], world.logs[number]
    content = world.streams.content
    records: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(content.choice([1, 1, 1, 2, 5, 40])):
        world.counter += 1
        filler = b"." * content.choice([0, 10, 100, 900])
        key = b"k%d" % content.randrange(5) if content.maybe(0.3) else None
        value = b"%d:%d:" % (number, world.counter) + filler
        dead = key is not None and world.plan.compaction > 0 and world.streams.keys.maybe(0.3)
        records.append((key, None if dead else value))
    producer = None
    if content.maybe(0.3):
        name = content.randint(1, 2)
        producer = (name, 0, model.sequences.get(name, 0))
    timestamp = max(world.now, model.last_timestamp)
    entries = [Entry(key, value, model.epoch, timestamp, world.elapsed) for key, value in records]
    codec = content.choice([0, 0, 1, 2])
    before, segments = model.end, log.segment_count()
    try:
        found = log.append(model.epoch, world.now, records, codec=codec, producer=producer)
    except SimError as error:
        if error.args[0] not in PASSING:
            model.append(entries, None)  # the outcome is unknown; it is the last one of this run
        world.reached.sometimes("a write failed", when=error.args[0] == "io" and not world.disk.is_stopped())
        world.reached.sometimes("no space was left", when=error.args[0] == "full")
        failed(world, error)
        if error.args[0] not in PASSING:
            raise RunEndedError from error
        return
    world.reached.sometimes("a batch was compressed", when=codec > 0)
    world.reached.sometimes("timestamps were raised to the latest", when=timestamp > world.now)
    world.reached.sometimes("space came back and appends went on", when=world.reached.counts["no space was left"] > 0)
    by_size = model.settings.segment_age_ns == 0 and log.segment_count() > segments
    world.reached.sometimes("a segment was sealed by size", when=by_size)
    if found[2] != timestamp and model.may_begin_at(found[2], world.now):
        timestamp = found[2]
        entries = [replace(entry, timestamp=timestamp) for entry in entries]
    model.append(entries, producer)
    model.last_timestamp = timestamp
    if found != (before, model.end, timestamp):
        raise ViolationError("P5", f"append to {model.path} returned {found}, not {(before, model.end, timestamp)}")


def commit(world: World, number: int) -> None:
    ticket = world.logs[number].commit()
    world.tickets[number, ticket] = world.models[number].end
    hear(world, number, failed=world.store.failure() is not None)


def step(world: World, number: int = 0, *, doing: str = "during a step") -> None:
    world.doing = doing
    failed = world.store.failure() is not None
    waiting = {key[0] for key in world.tickets}
    world.reached.sometimes("several partitions were committed in one round", when=len(waiting) > 1)
    world.store.step()
    world.note(f"step {number}")
    for each in list(world.logs):
        hear(world, each, failed=failed)
    if not failed and world.store.failure() is not None and not world.disk.is_stopped():
        world.failed_before = True
        world.reached.sometimes("a sync failed", when="sync" in (world.store.failure() or ""))


def hear(world: World, number: int, *, failed: bool) -> None:
    """Process the answers of a log: acked records must exist from now on, and readers see them."""
    model, log = world.models[number], world.logs[number]
    for ticket, end, kind in log.answers():
        asked = world.tickets.pop((number, ticket))
        world.note(f"answer {number} {ticket}: {end} {kind}")
        world.reached.sometimes("a commit was answered by an error", when=end is None)
        if end is None:
            continue
        if end < asked:
            raise ViolationError("A1", f"{model.path} acked {end}, though {asked} was asked for")
        if failed and end > model.acked:
            raise ViolationError("P14", f"{model.path} acked {end} after its directory failed")
        model.acked = max(model.acked, end)
        log.set_high_watermark(end)
    if log.ends()[2] < model.acked and not model.settings.memory:
        raise ViolationError("I22", f"{model.path} is durable to {log.ends()[2]}, acked to {model.acked}")


def read(world: World, number: int) -> None:
    model, log = world.models[number], world.logs[number]
    start, _, _, mark = log.ends()
    if mark > model.acked:
        raise ViolationError("P6", f"{model.path} shows {mark}, acked to {model.acked}")
    first = world.streams.schedule.randint(start, max(start, mark))
    checks.read_all(model, log, (first, mark), world.reached, world.disk)


def look_up(world: World, number: int) -> None:
    model = world.models[number]
    if model.entries and world.plan.read == 0:
        wanted = world.streams.schedule.choice(model.entries).timestamp + world.streams.schedule.choice([-1, 0, 1])
        checks.check_times(model, world.logs[number], wanted)


def maintain(world: World, number: int) -> None:
    world.doing = "during a maintenance"
    model, log = world.models[number], world.logs[number]
    stream = world.streams.schedule
    age, size, messages = 0, 0, 0
    if world.plan.maintenance:
        age = stream.choice([0, 0, 3 * SECOND, 30 * SECOND])
        size, messages = stream.choice([0, 0, 3_000]), stream.choice([0, 0, 20])
    segments = log.segment_count()
    try:
        start = log.maintain(age, size, messages, world.now, 0)
    except SimError as error:
        failed(world, error)
        return
    aged = log.segment_count() > segments and model.settings.segment_age_ns > 0
    world.reached.sometimes("a segment was sealed by age", when=aged)
    if start < model.log_start or start > max(model.acked, model.log_start):
        raise ViolationError("P13", f"{model.path} starts at {start}, after {model.log_start}, acked {model.acked}")
    if start > model.log_start:
        world.reached.sometimes("a retention took segments")
        kept = [offset for offset in range(model.log_start, start) if offset not in model.gone]
        early = bool(kept) and (not age or is_young(world, model, kept[-1], age))
        if not size and not messages and early:
            raise ViolationError("P17", f"retention took offset {start - 1} of {model.path} too early")
    model.log_start = start


def is_young(world: World, model: Model, offset: int, age: int) -> bool:
    """Whether retention by this age must keep a record."""
    entry = model.entries[offset]
    young = entry.timestamp >= world.now - age
    if model.flaky or model.weak or model.may_be_damaged(offset, offset + 1):
        young &= entry.appended >= world.elapsed - age  # its timestamp may be unknown
    return young


def compact(world: World, number: int) -> None:
    if number not in world.logs:
        return
    model, log, stream = world.models[number], world.logs[number], world.streams.keys
    grace = stream.choice([0, 3 * SECOND, 1_000 * SECOND])
    _, _, _, mark = log.ends()
    try:
        due = log.compact(grace, stream.choice([1 << 10, 1 << 20]), world.now)
    except SimError as error:
        failed(world, error)
        return
    if due:
        model.compact(mark, world.now - grace)
    step(world, doing="during a compaction" if due else "during a step")
    if world.disk.is_stopped():
        raise RunEndedError
    for count in log.removed():
        world.reached.sometimes("a compaction removed superseded records", when=count > 0)
        world.note(f"compacted {number}: {count}")


def trim(world: World, number: int) -> None:
    if number not in world.logs:
        return
    model, log = world.models[number], world.logs[number]
    start, _, _, mark = log.ends()
    before = world.streams.keys.randint(start, max(start, mark))
    try:
        found = log.trim(before, world.now)
    except SimError as error:
        failed(world, error)
        return
    if found != before:
        raise ViolationError("P13", f"{model.path} starts at {found} after a trim to {before}")
    world.reached.sometimes("a trim moved the log start", when=before > start)
    model.log_start = before
    world.note(f"trimmed {number}: {before}")


def sweep(world: World, number: int) -> None:
    """Check that the files are deleted long after the removal."""
    model = world.models[number]
    maintain(world, number)  # the grace period of files removed by an earlier run starts when they are found
    step(world)
    tick_by(world, 2 * GRACE_NS)
    maintain(world, number)  # may seal a segment, and then it does nothing else
    maintain(world, number)
    step(world)
    if world.store.failure() is None and not world.disk.is_stopped():
        marked = [path for path in world.disk.paths() if ".deleted-" in path and path.startswith(f"{model.path}/")]
        old = [path for path in marked if int(path.rsplit("-", 1)[1]) + GRACE_NS < world.now - GRACE_NS]
        if old and world.space is None and not world.no_descriptors and world.plan.open == 0:
            raise ViolationError("I26", f"{old[0]} outlives its grace period")
        world.reached.sometimes("marked files were swept after their grace", when=not marked)


def tick(world: World, _: int) -> None:
    stream = world.streams.schedule
    tick_by(world, stream.choice([1, 1_000, SECOND, 4 * SECOND, -2 * SECOND]))


def tick_by(world: World, change: int) -> None:
    world.reached.sometimes("the clock went back", when=change < 0)
    world.now += change
    world.elapsed += max(change, 0)
    world.disk.set_now(world.now)


def checkpoint(world: World, number: int) -> None:
    try:
        world.logs[number].checkpoint()
    except SimError as error:
        failed(world, error)


def next_epoch(world: World, number: int) -> None:
    world.models[number].epoch += world.streams.schedule.choice([1, 1, 5])


def stale(world: World, number: int) -> None:
    model = world.models[number]
    last = model.entries[-1].epoch if model.entries else 0
    if last < 2 or world.store.failure():
        return
    try:
        world.logs[number].append(last - 1, world.now, [(None, b"stale")])
    except SimError as error:
        if error.args[0] != "stale_epoch":
            failed(world, error)
        world.reached.sometimes("a batch was refused for an old epoch", when=error.args[0] == "stale_epoch")
        return
    raise ViolationError("I16", f"{model.path} took a batch of epoch {last - 1} after one of {last}")


def shortage(world: World, _: int) -> None:
    if not world.plan.full:
        return
    stream = world.streams.schedule
    world.space = stream.choice([None, 0, 200, 3_000]) if world.space is None else None
    world.no_descriptors = stream.maybe(0.2)
    world.reached.sometimes("no descriptors were left", when=world.no_descriptors)
    world.set_faults(on=True)


def worst(world: World, number: int) -> None:
    world.note_astray()
    checks.check_worst_crash(world.disk, world.models[number], world.reached)


def foreign(world: World, number: int) -> None:
    """Check that another incarnation cannot open the directory."""
    checks.check_foreign(world.disk, world.models[number], world.reached)


def delete(world: World, number: int) -> None:
    old = world.models[number]
    log = world.logs.pop(number)
    world.models[number] = world.new_model(number, old.settings)  # the old one is not used again, whatever the result
    world.tickets = {key: end for key, end in world.tickets.items() if key[0] != number}
    try:
        log.delete()
    except SimError as error:
        world.note(f"delete refused: {error.args[0]}")
        raise RunEndedError from error
    world.reached.sometimes("a partition was deleted and created again")
    raise RunEndedError  # the next run creates the new one


THINGS: tuple[tuple[tuple[str, Callable[[World, int], None]], float], ...] = (
    (("append", append), 40),
    (("commit", commit), 20),
    (("step", step), 20),
    (("read", read), 6),
    (("look up", look_up), 2),
    (("maintain", maintain), 9),
    (("sweep", sweep), 0.5),
    (("tick", tick), 5),
    (("checkpoint", checkpoint), 3),
    (("epoch", next_epoch), 2),
    (("stale", stale), 1),
    (("shortage", shortage), 2),
    (("worst", worst), 3),
    (("foreign", foreign), 0.5),
    (("delete", delete), 0.2),
)
