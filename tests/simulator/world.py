"""One simulation: runs of a process over one disk, from a recovery to a close, a kill or a power cut."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tests.simulator import checks, things
from tests.simulator.checks import PowerGoneError
from tests.simulator.follower import follow
from tests.simulator.harm import harm, lay_stray, raise_ghost, remember
from tests.simulator.model import Model, RunEndedError, ViolationError
from tests.simulator.native import Disk, Log, SimError, Store
from tests.simulator.plan import SECOND, Plan, Settings, draw
from tests.simulator.sometimes import Reached
from tests.simulator.streams import Streams


class World:
    """The simulation of one seed."""

    def __init__(self, seed: int, *, traced: bool = False, follower: bool = False) -> None:
        self.streams = Streams(seed)
        self.plan: Plan = draw(self.streams.plan)
        if follower:
            self.plan = replace(self.plan, follow=self.streams.follow.uniform(0.05, 0.4))
        self.disk = Disk(seed)
        self.reached = Reached()
        self.trace: list[str] | None = [] if traced else None
        self._hash = hashlib.blake2b(digest_size=8)
        self.events = 0
        self.now = 1_000 * SECOND
        self.disk.set_now(self.now)
        self.elapsed = 0
        self.incarnations = 0
        self.counter = 0
        self.models = [self.new_model(i, settings) for i, settings in enumerate(self.plan.partitions)]
        self.logs: dict[int, Log] = {}
        self.tickets: dict[tuple[int, int], int] = {}
        self.store = Store(self.disk)
        self.space: int | None = None
        self.no_descriptors = False
        self.doing = "nothing"
        self.power = True
        self.cut_short = False
        self.failed_before = False
        self.failed_syncs = 0

    def new_model(self, number: int, settings: Settings) -> Model:
        self.incarnations += 1
        return Model(number, self.incarnations, settings, self.plan.journal)

    def note(self, event: str) -> None:
        """One line of the trace."""
        self.events += 1
        self._hash.update(event.encode())
        if self.trace is not None:
            self.trace.append(event)

    def digest(self) -> str:
        """Digest of all events and of all operations on the disk."""
        whole = self._hash.copy()
        whole.update(self.disk.digest().to_bytes(8, "little"))
        return whole.hexdigest()

    # Lives.

    def run(self) -> None:
        """Run all runs, then one without faults, in which everything must work.

        Raises:
            ViolationError: a promise is broken.
        """
        self.disk.make_directory("/partitions")
        for life in range(self.plan.lives):
            self.note(f"life {life}")
            self._live()
        self.note("the last life")
        self._last_life()

    def _live(self) -> None:
        if self.streams.crash.maybe(self.plan.stops):
            self.disk.stop_after(int(2 ** self.streams.crash.uniform(0, 11)))
        try:
            self._begin(may_fail=True)
            for _ in range(self.streams.schedule.randint(1, self.plan.steps)):
                things.one_thing(self)
                if self.streams.follow.maybe(self.plan.follow):
                    follow(self, self.streams.follow.randrange(len(self.models)))
            self._end()
        except (RunEndedError, PowerGoneError):
            if self.disk.is_stopped():
                if self.doing in DOING:
                    self.reached.sometimes(f"the power went {self.doing}")
                self.cut_short = self.doing == "during a recovery"
                self.reached.sometimes("a recovery was cut short", when=self.cut_short)
            self._die()
        self._between()

    def _last_life(self) -> None:
        self.space, self.no_descriptors = None, False
        self._begin(may_fail=False)
        for number, model in enumerate(self.models):
            before = model.end
            things.append(self, number)
            things.commit(self, number)
            things.step(self)
            if model.acked <= before:
                raise ViolationError("P15", f"{model.path} does not ack although there are no more faults")
        for number in list(self.logs):
            self._close(number)
        self.store.end()
        self._begin(may_fail=False)

    def set_faults(self, *, on: bool) -> None:
        plan = self.plan
        if not on:
            self.disk.set_faults(write_back=plan.write_back)
            return
        self.disk.set_faults(
            read=plan.read,
            write=plan.write,
            sync=plan.sync,
            open=plan.open,
            misdirect=plan.misdirect,
            write_back=plan.write_back,
            no_descriptors=self.no_descriptors,
            space=self.space,
        )

    def _die(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        self.store.end()
        self.power = self.streams.crash.maybe(0.7)

    def _between(self) -> None:
        """Stop the machine, sometimes with damage."""
        before = dict(self.disk.counts())
        if self.plan.rot:
            for model in self.models:
                remember(self.disk, model)
        if self.power:
            crash = self.streams.crash
            keep = crash.choice([0.0, 0.05, 0.2, 0.5, 1.0])
            noise = crash.choice([0.0, 0.0, 0.1])
            self.disk.crash(keep, crash.choice([0.0, 0.5, 1.0]), noise, crash.choice([0.0, 0.5, 1.0]))
            for model in self.models:
                model.power_cut = True
            after = dict(self.disk.counts())
            self.reached.sometimes("names were lost in a crash", when=after["names_lost"] > before["names_lost"])
            torn, lost = after["pages_torn"] - before["pages_torn"], after["pages_lost"] - before["pages_lost"]
            self.reached.sometimes("pages of one sync were kept in part", when=torn > 0)
            self.reached.sometimes("the power went with nothing unsynced", when=torn == lost == 0)
        else:
            self.disk.restart()
        self.note(f"{'power cut' if self.power else 'kill'} {self.disk.digest():x}")
        self.note_astray()
        for model in self.models:
            haunted = self.plan.rot > 0 and self.streams.damage.maybe(0.7)
            if haunted and (ghost := raise_ghost(self.disk, model, self.streams.damage, self.reached)):
                self.note(f"ghost {ghost}")
                continue
            if self.streams.damage.maybe(self.plan.rot * 0.5):
                self.note(f"harm {harm(self.disk, model, self.streams.damage, self.reached)}")
            if self.streams.strays.maybe(self.plan.strays):
                self.note(f"stray {lay_stray(self.disk, model, self.streams.strays, self.reached)}")

    def note_astray(self) -> None:
        """Record syncs that failed or were misdirected since the last call."""
        failed = dict(self.disk.counts())["failed_syncs"]
        for model in self.models:
            model.power_cut |= failed > self.failed_syncs  # like a power cut: unsynced data may be lost
        self.failed_syncs = failed
        for path, _, _ in self.disk.misdirected():
            for model in self.models:
                model.weak |= path.startswith((f"{model.path}/", "/journal"))

    # The start of a run.

    def _begin(self, *, may_fail: bool) -> None:
        """Recover all partitions and compare them with the model; an open may fail only with faults.

        Raises:
            ViolationError: the result of a recovery is wrong.
            RunEndedError: a power cut.
        """
        for model in self.models:
            model.flaky = may_fail and self.plan.read > 0
            model.no_opening = self.plan.open > 0
        for attempt in range(4):
            self.doing = "during a recovery"
            self.set_faults(on=may_fail and attempt < 3)
            self.logs.clear()
            self.tickets.clear()
            failure = self._open_all()
            if failure is None:
                break
            if self.disk.is_stopped():
                raise RunEndedError
            if not may_fail or attempt == 3:
                raise ViolationError("P15", f"cannot be opened without faults: {failure}")
            self.note(f"open failed: {failure[0]}")
            self.reached.sometimes("an open failed for a fault and succeeded later")
            for log in self.logs.values():
                log.abandon()
            self.store.end()
        self._judge_recovered()
        self.set_faults(on=may_fail)
        self.doing = "nothing"

    def _open_all(self) -> tuple[str, str] | None:
        try:
            self.store = Store(self.disk, self.plan.journal)
        except SimError as error:
            return error.args[0], error.args[1]
        self.note_astray()
        checks.check_journal(self.store, self.models)
        for number, model in enumerate(self.models):
            if model.created and self.streams.checks.maybe(0.1) and not model.weak and not model.damaged:
                checks.check_prefix(self.disk, model, self.streams.checks.random(), self.reached)
            try:
                self._open(number, model)
            except SimError as error:
                return error.args[0], error.args[1]
        return None

    def _open(self, number: int, model: Model) -> None:
        arguments = model.settings.arguments()
        try:
            log, report = self.store.open(model.path, model.incarnation, model.number, **arguments)
        except SimError as error:
            if error.args[0] != "absent" or model.created:
                raise
            self.doing = "during a creation"
            log = self.store.create(model.path, model.incarnation, model.number, **arguments)
            self.reached.sometimes("a creation was cut short and done again", when=self.disk.is_stopped())
            model.created = True
            self.logs[number] = log
            self.doing = "during a recovery"
            self.note(f"created {number}")
            return
        self.logs[number] = log
        _, batches, cut, damaged, clean = report
        self.note_astray()
        self.note(f"opened {number}: {log.ends()} {batches} {cut} {damaged} {clean}")
        self.reached.sometimes("a torn tail was cut", when=cut > 0)
        self.reached.sometimes("a clean log was opened again", when=clean)
        self._check_damage_report(model, damaged)

    def _check_damage_report(self, model: Model, damaged: list[tuple[int, int]]) -> None:
        promised = 0 if model.settings.memory and model.power_cut else model.acked
        for start, last in damaged:
            end = min(last, max(start + 1, promised))
            if model.may_be_damaged(start, end):
                model.harm(start, last)  # unacked records may be lost with it
            if not (model.weak or model.without_checkpoint or model.may_be_damaged(start, end)):
                raise ViolationError(
                    "P12", f"{model.path}: [{start}, {end}) is reported as damaged, but {model.damaged} is damaged"
                )

    def _judge_recovered(self) -> None:
        """Compare all recovered logs with the models, on a disk without faults."""
        self.set_faults(on=False)
        self.note_astray()
        for number, log in self.logs.items():
            model = self.models[number]
            ends = log.ends()
            if not model.created:
                self.reached.sometimes("a creation was cut short and done again")
                model.created = True
            model.check_recovered(ends)
            self._note_recovered(model, ends[1])
            self._checked(number, model, log, ends)

    def _note_recovered(self, model: Model, end: int) -> None:
        say = self.reached.sometimes
        say("the recovery kept more than was acked", when=end > model.acked)
        say("the recovery kept the acked and nothing else", when=end == model.acked < model.end)
        say("a cut tail did not come back in a later life", when=end < model.end)
        say("an empty log survived", when=end == 0)
        say("a kill kept what was never synced", when=not model.power_cut and end > model.acked)
        say("the power went in class memory and records were lost", when=end < model.acked and model.settings.memory)
        say("a misdirected write was survived", when=model.weak)
        say("a second recovery went on after one that was cut short", when=self.cut_short)
        say("after a failed sync a new life began on the same memory", when=self.failed_before and not self.power)

    def _checked(self, number: int, model: Model, log: Log, ends: tuple[int, int, int, int]) -> None:
        start, end, _, _ = ends
        promised = 0 if model.settings.memory and model.power_cut else model.acked
        if model.without_checkpoint and end > promised:
            model.harm(promised, end)  # a torn write in a sealed segment cannot be distinguished from damage
            model.without_checkpoint = False
        model.cut(end)
        model.acked = end
        model.log_start = start
        model.fresh_damage = model.power_cut = model.haunted = False
        if self.disk.is_stopped():
            raise RunEndedError
        log.set_high_watermark(end)
        records = checks.read_all(model, log, (start, end), self.reached, self.disk)
        checks.check_tail(self.disk, model)
        checks.check_epochs(model, log)
        checks.check_producers(model, log, self.now, self.reached)
        if self.streams.checks.maybe(0.5) and not (model.weak or model.flaky or self.disk.is_stopped()):
            checks.check_twice(self.disk, model, (start, end, tuple(records)), self.reached)
        self.note(f"judged {number}: {len(records)} records")

    # The end of a run.

    def _end(self) -> None:
        how = self.streams.crash.pick((("close", 0.3), ("kill", 0.3), ("power", 0.4)))
        if how != "close":
            self._die()
            self.power = how == "power"
            return
        self.doing = "during a close"
        for number in list(self.logs):
            self._close(number)
        self.store.end()
        self.power = self.streams.crash.maybe(0.5)

    def _close(self, number: int) -> None:
        """Close one log; after success everything is durable."""
        model, log = self.models[number], self.logs[number]
        try:
            log.close()
        except SimError as error:
            self.note(f"close refused: {error.args[0]}")
            if self.disk.is_stopped():
                raise RunEndedError from error
            del self.logs[number]
            return
        del self.logs[number]
        model.acked = model.end
        self.note(f"closed {number}")


DOING = {
    "during a close",
    "during a compaction",
    "during a creation",
    "during a maintenance",
    "during a reset",
    "during a step",
    "during a truncation",
    "during an append",
}
