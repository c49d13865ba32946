"""Three brokers at level 2 and one stream `o`, built by entries, for tests of replication."""

from dataclasses import replace

from bascule.metadata import (
    Command,
    CreateStream,
    Partition,
    Placement,
    RegisterBroker,
    Rejection,
    State,
    StreamKey,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.replica_commands import Addresses, ConfirmBroker, Finalize, JoinBroker, Register
from bascule.metadata.replicas import Versions

HERE = Addresses("h", 1, "p", 2)
LEVELS = Versions(1, 2)
ABC = ("a", "b", "c")


def register_command(broker: str, nonce: int, **changes: object) -> Register:
    """The registration of a run of the broker in its own directory, with these changes."""
    command = Register(broker, nonce, f"dir-{broker}", 0, "k", "m", HERE, LEVELS)
    return replace(command, **changes)  # type: ignore[arg-type]  # names of fields, as the caller wrote them


class Cluster:
    """A state that entries change; every one of them has to be accepted."""

    def __init__(
        self,
        partitions: int = 1,
        replicas: tuple[str, ...] = ABC,
        leaders: tuple[str, ...] = (),
        settings: StreamSettings | None = None,
    ) -> None:
        """Brokers a, b, c, confirmed; partitions led as `leaders` says, by default by the first replica."""
        self.state: State = initial_state()
        self._nonce = 100
        self.do(RegisterBroker("a", "h", 1, 1))
        self.do(Finalize(2, "cluster"))
        for name in ABC:
            if name != "a":
                self.do(JoinBroker(name, f"dir-{name}", HERE, LEVELS, "", 1))
            self.restart(name)
        placements = tuple(Placement(replicas, item) for item in leaders or (replicas[0],) * partitions)
        self.do(CreateStream("default", "o", "", "", 1, settings or StreamSettings(), placements))

    def do(self, command: Command) -> int:
        """Apply the command, which is accepted; its index."""
        self.state, result = apply(self.state, self.state.index + 1, command)
        assert not isinstance(result, Rejection), result
        return self.state.index

    def restart(self, broker: str) -> None:
        """A new run of the broker, with the directory of the last one."""
        self._nonce += 1
        self.do(register_command(broker, self._nonce, stored=self.boot(broker)))
        self.do(ConfirmBroker(broker, self.boot(broker)))

    def boot(self, broker: str) -> int:
        """Boot epoch of the last run of the broker."""
        return self.state.brokers[broker].boot_epoch

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Those of the stream."""
        return self.state.streams[StreamKey("default", "o")].partitions
