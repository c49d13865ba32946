"""A model of one partition on three brokers: logs as lists, a leader that counts, and the real state machine beside it.

Brokers apply the state late, entries in flight are delivered late, again, or never, recovery cuts what was synced, and
directories are lost. The model has no clock: a broker whose fence or new run is an entry has stopped before, as leases
see to; an ended leader stops when it applies its end.
"""

from dataclasses import dataclass, field
from random import Random

from bascule.metadata import Applied, Command, Partition, apply
from bascule.metadata.replica_commands import (
    ChangeIsr,
    ConfirmBroker,
    EndLeader,
    FenceBroker,
    IsrChange,
    ReplicaReport,
    ReportReplicas,
    Resign,
    Resigned,
    StoppedLeading,
    Verified,
)
from bascule.metadata.replicas import Position

from tests.unit.metadata.cluster_rig import ABC, Cluster, register_command

Record = tuple[int, int]
"""Leader epoch and a number that no other record has."""


@dataclass
class Role:
    """What a leader knows in one leader epoch."""

    epoch: int
    start: int
    proposed: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    counted: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    most: dict[str, int] = field(default_factory=dict[str, int])
    hw: int = 0
    resigned_at: int = 0


@dataclass
class Replica:
    """A broker with its log, the partition as it has applied it, and its role if it leads."""

    log: list[Record]
    seen: Partition
    alive: bool = True
    boot: int = 0
    role: Role | None = None
    directory: int = 0


class Model:
    """Random steps; `check` after each."""

    def __init__(self, seed: int, *, with_lost_directories: bool = True) -> None:
        self.random = Random(seed)
        self.cluster = Cluster()
        self.flight: list[Command] = []
        self.committed: list[Record] = []
        self.losses = 0
        self.named = 0
        self.records = 0
        self.nonce = 1_000
        self.with_lost_directories = with_lost_directories
        self.replicas = {name: Replica([], self.partition, boot=self.cluster.boot(name)) for name in ABC}
        for name in ABC:
            self.apply_state(name)

    @property
    def partition(self) -> Partition:
        """As the last entry left it."""
        return self.cluster.partitions[0]

    def step(self) -> None:
        """One random step."""
        name = self.random.choice(ABC)
        steps = (
            (self.append, 20),
            (self.fetch, 40),
            (self.advance, 25),
            (self.apply_state, 25),
            (self.propose, 12),
            (self.deliver, 25),
            (self.report, 10),
            (self.resign, 2),
            (self.end, 1),
            (self.stopped, 6),
            (self.fence, 1),
            (self.restart, 6),
        )
        (chosen,) = self.random.choices([item for item, _ in steps], [weight for _, weight in steps])
        chosen(name)

    def do(self, command: Command) -> bool:
        """Apply an entry, and look at whom it names; whether it was accepted."""
        accepted = self.do_unseen(command)
        self.check(command)
        return accepted

    def check(self, command: Command) -> None:
        """Every eligible member without a flag holds what was committed, and the state is well formed."""
        partition = self.partition
        flagged = {*partition.unclean, *partition.cut}
        for name in set(partition.eligible) - flagged:
            assert self.replicas[name].log[: len(self.committed)] == self.committed, f"{command} leaves {name} eligible"
        assert not set(partition.isr) & set(partition.unclean)
        assert not partition.leader or partition.leader in partition.isr
        if len(partition.isr) >= partition.min_isr:
            assert partition.eligible == partition.isr

    def leading(self, name: str) -> Role | None:
        """The role of a broker that leads as far as it knows."""
        replica = self.replicas[name]
        return replica.role if replica.alive and replica.role and not replica.role.resigned_at else None

    def append(self, name: str) -> None:
        if role := self.leading(name):
            self.records += 1
            self.replicas[name].log.append((role.epoch, self.records))

    def fetch(self, name: str) -> None:
        """The broker fetches from its leader, which counts it."""
        replica = self.replicas[name]
        leader = replica.seen.leader
        role = self.leading(leader) if leader and leader != name else None
        state = self.cluster.state
        if not replica.alive or role is None or role.epoch != replica.seen.leader_epoch:
            return
        if state.brokers[name].run != "confirmed":
            return
        source = self.replicas[leader]
        is_member = name in source.seen.isr or name in source.seen.eligible
        if len(replica.log) < role.most.get(name, 0) or (is_member and len(replica.log) < role.hw):
            report = ReplicaReport(source.seen.incarnation, ("unclean",), None, role.epoch, name, replica.boot)
            self.flight.append(ReportReplicas(leader, source.boot, (report,)))
            role.most[name] = 0
            role.counted.pop(name, None)
            if is_member:
                return
        replica.log = common(replica.log, source.log)
        replica.log += source.log[len(replica.log) :][: self.random.randint(0, 3)]
        role.counted[name] = (replica.boot, len(replica.log))
        role.most[name] = max(role.most.get(name, 0), len(replica.log))

    def advance(self, name: str) -> None:
        """The high watermark of a leader moves to what its maximal ISR has."""
        role, replica = self.leading(name), self.replicas[name]
        if role is None or len(replica.seen.isr) < replica.seen.min_isr:
            return
        members = {*replica.seen.isr, *(item for isr in role.proposed for item in isr)} - {name}
        ends = [role.counted[item][1] if item in role.counted else 0 for item in members]
        end = min([len(replica.log), *ends])
        if end > role.hw:
            role.hw = end
            known = min(len(self.committed), end)
            assert replica.log[:known] == self.committed[:known], "two histories were committed"
            self.committed = replica.log[: max(end, known)] if end > len(self.committed) else self.committed

    def propose(self, name: str) -> None:
        """A leader proposes an ISR: some members leave, and some that have caught up join."""
        role, replica = self.leading(name), self.replicas[name]
        if role is None:
            return
        floor = max(role.hw, role.start)
        ready = {
            item: boot
            for item, (boot, end) in role.counted.items()
            if end >= floor and boot == self.replicas[item].boot and self.replicas[item].alive
        }
        isr = {name} | {item for item in ABC if item in replica.seen.isr and self.random.random() < 0.7}
        isr |= {item for item in ready if self.random.random() < 0.7}
        if role.proposed and self.random.random() < 0.7:
            return
        asked = tuple(item for item in ABC if item in isr)
        verified = tuple(Verified(item, boot) for item, boot in sorted(ready.items()) if item in isr)
        role.proposed.append(asked)
        change = IsrChange(replica.seen.incarnation, role.epoch, replica.seen.epoch, asked, verified)
        self.flight.append(ChangeIsr(name, replica.boot, (change,)))

    def deliver(self, _: str) -> None:
        """An entry in flight is applied; a copy may stay for later."""
        if not self.flight:
            return
        place = self.random.randrange(len(self.flight))
        command = self.flight[place]
        if self.random.random() < 0.7:
            del self.flight[place]
        del self.flight[:-30]
        self.do(command)

    def apply_state(self, name: str) -> None:
        """The broker applies what the state has by now."""
        replica, partition = self.replicas[name], self.partition
        if not replica.alive:
            return
        if replica.seen.epoch != partition.epoch and replica.role:
            replica.role.proposed = []
            replica.role.resigned_at = 0
        replica.seen = partition
        is_leader = partition.leader == name
        if is_leader and (replica.role is None or replica.role.epoch != partition.leader_epoch):
            replica.role = Role(partition.leader_epoch, len(replica.log))
        elif not is_leader:
            replica.role = None

    def report(self, name: str) -> None:
        """Where there is no leader, the replicas report their positions."""
        replica = self.replicas[name]
        is_confirmed = self.cluster.state.brokers[name].run == "confirmed"
        if replica.alive and is_confirmed and not replica.seen.leader:
            report = ReplicaReport(replica.seen.incarnation, (), self.position(name), replica.seen.leader_epoch)
            self.flight.append(ReportReplicas(name, replica.boot, (report,)))

    def resign(self, name: str) -> None:
        role, replica = self.leading(name), self.replicas[name]
        if role is None:
            return
        role.resigned_at = replica.seen.epoch
        reason = self.random.choice(["standstill", "transfer", "failed", "disk_full"])
        item = Resigned(replica.seen.incarnation, role.epoch, replica.seen.epoch, self.random.random() < 0.5)
        self.flight.append(Resign(name, replica.boot, (item,), reason, self.random.choice(["", *ABC])))  # type: ignore[arg-type]  # one of its reasons

    def end(self, _: str) -> None:
        self.flight.append(EndLeader(self.partition.incarnation, self.partition.epoch))

    def stopped(self, name: str) -> None:
        """A broker that has applied its end says so."""
        replica, ending = self.replicas[name], self.partition.ending
        if ending and ending.broker == name and replica.alive and replica.seen.ending == ending:
            self.do(StoppedLeading(name, replica.boot, ending.index))

    def fence(self, name: str) -> None:
        replica = self.replicas[name]
        if self.cluster.state.brokers[name].run != "fenced":
            replica.alive, replica.role = False, None
            live = tuple(item for item in ABC if item != name and self.replicas[item].alive)
            self.do(FenceBroker(name, replica.boot, live))

    def restart(self, name: str) -> None:
        """A new run: recovery may cut synced records, and the directory may be another one."""
        replica = self.replicas[name]
        if replica.alive and self.random.random() < 0.9:
            return
        flags: tuple[str, ...] = ()
        if self.with_lost_directories and self.random.random() < 0.05:
            replica.directory += 1
            replica.log = []
        elif replica.log and self.random.random() < 0.3:
            del replica.log[-self.random.randint(1, 3) :]
            flags = ("cut",)
        replica.alive, replica.role = False, None
        self.nonce += 1
        directory = f"dir-{name}-{replica.directory}" if replica.directory else f"dir-{name}"
        stored = 0 if replica.directory and not replica.log else self.cluster.boot(name)
        self.do_unseen(register_command(name, self.nonce, stored=stored, directory_id=directory))
        replica.boot = self.cluster.boot(name)
        report = ReplicaReport(self.partition.incarnation, flags, self.position(name))  # type: ignore[arg-type]  # flags
        self.do(ConfirmBroker(name, replica.boot, (report,)))
        replica.alive = True
        self.apply_state(name)

    def do_unseen(self, command: Command) -> bool:
        """As `do`, without a look at who is eligible: after a registration the confirmation has yet to bring flags."""
        before = self.partition
        state, result = apply(self.cluster.state, self.cluster.state.index + 1, command)
        self.cluster.state = state
        after = self.partition
        if after.leader and after.leader_epoch != before.leader_epoch:
            self.named += 1
            log = self.replicas[after.leader].log
            if after.losses != before.losses:
                self.losses += 1
                self.committed = common(self.committed, log)
            assert log[: len(self.committed)] == self.committed, f"{command} names a leader without committed records"
        return isinstance(result, Applied)

    def position(self, name: str) -> Position:
        log = self.replicas[name].log
        return Position(log[-1][0] if log else 0, len(log), 0)


def common(left: list[Record], right: list[Record]) -> list[Record]:
    """The longest common beginning."""
    length = next((place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    return left[: min(len(left), len(right)) if length is None else length]
