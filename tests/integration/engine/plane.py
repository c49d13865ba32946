"""A data plane without a control plane, with one stream that sinks write to."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from bascule._seam import PartitionChange
from bascule.engine import Engine
from pyarrow import flight

STREAM: Final = "s"
TOKEN: Final = "0f" * 16
WAIT_S: Final = 60.0
"""A machine that is busy with other tests takes long for little."""
FIRST_INCARNATION: Final = 70


def spec(number: int, **changes: Any) -> dict[str, Any]:
    """A partition as the data plane opens it."""
    return {
        "namespace": "default",
        "stream": STREAM,
        "number": number,
        "incarnation": FIRST_INCARNATION + number,
        "subject": f"{STREAM}.{number}" if number else STREAM,
        "base_subject": STREAM,
        "durability": "disk",
        "codec": "none",
        "nats_copy": "none",
        "max_record_bytes": 1 << 20,
        "batch_records": 1024,
        "batch_bytes": 1 << 20,
        "retention_age_ms": 0,
        "retention_bytes": 0,
        "retention_messages": 0,
        "cleaner_interval_ms": 0,
        "segment_bytes": 1 << 20,
        "segment_age_ms": 0,
        **changes,
    }


def values(first: int, count: int, size: int = 0) -> list[bytes]:
    """Rows that tell one another apart, of at least `size` bytes."""
    return [(b"%d" % number).ljust(size, b".") for number in range(first, first + count)]


def sink(number: int = 1, link: Mapping[str, Any] | None = None, epoch: int | None = None) -> dict[str, Any]:
    """A row of the sink table."""
    return {
        "id": number,
        "name": f"default/sink-{number}",
        "owner": "",
        "generation": number,
        "last_epoch": epoch,
        "producer": (1 << 63) + number,
        "quota_bytes": 0,
        "expired": [],
        "link": link,
    }


class Plane:
    """An engine, its partitions and its events.

    Attributes:
        engine: the data plane.
        events: changes of partitions so far.
    """

    def __init__(self, data: Path, *sinks: Mapping[str, Any], partitions: int = 1, **changes: Any) -> None:
        """Open everything; `sinks` are in the first table, `changes` to the partitions."""
        base = {"data_dir": str(data), "cluster_id": "c", "broker_id": "b", "runtime_threads": 2, "namespace": "n"}
        self.engine = Engine(base)
        self.events: list[PartitionChange] = []
        self._specs = {FIRST_INCARNATION + number: spec(number, **changes) for number in range(partitions)}
        self._version = 0
        self._table = 0
        self._address = ""
        self._sinks = sinks

    def __enter__(self) -> Self:
        """Serve."""
        port = self.engine.bind("127.0.0.1", 0)
        self._address = f"grpc://127.0.0.1:{port}"
        self.set_sinks(*self._sinks, complete=True)
        self.open(*self._specs)
        self.engine.listen()
        self.engine.set_serving(True)
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.engine.close(0)

    def open(self, *incarnations: int, **changes: Any) -> None:
        """Open, or change, partitions and lead them."""
        for incarnation in incarnations:
            self._specs[incarnation].update(changes)
        specs = [self._specs[incarnation] for incarnation in incarnations]
        assert self.engine.open(json.dumps(specs).encode()) == []
        self.engine.lead([(incarnation, 1) for incarnation in incarnations])
        self._show()

    def _show(self) -> None:
        self._version += 1
        partitions = [
            {
                "number": item["number"],
                "incarnation": item["incarnation"],
                "leader": "b",
                "leader_epoch": 1,
                "isr": ["b"],
                "readonly": item.get("readonly", False),
                "paused": False,
            }
            for item in self._specs.values()
        ]
        stream = {
            "namespace": "default",
            "name": STREAM,
            "id": 1,
            "subject": STREAM,
            "created_ns": 0,
            "partitions": partitions,
        }
        self.engine.publish_view(self._version, json.dumps({"streams": [stream]}).encode())

    # -- sinks
    def set_sinks(self, *sinks: Mapping[str, Any], complete: bool = False) -> None:
        """Change the sink table."""
        self._table += 10
        changes: dict[str, Any] = {"sinks": list(sinks), "removed": []}
        self.engine.set_sinks(self._table, changes | ({"complete": True} if complete else {}))

    def stage(
        self, rows: Iterable[list[bytes]], *, sink: int = 1, epoch: int = 0, task: int = 0
    ) -> list[dict[str, Any]]:
        """Stage record batches of one task; one answer for each piece."""
        staged = {"sink": sink, "generation": sink, "epoch": epoch, "token": TOKEN, "task": task, "attempt": 0}
        command = {"stream": STREAM, "stage": staged}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        schema = pa.schema([("value", pa.binary())])
        answers: list[dict[str, Any]] = []
        with flight.FlightClient(self._address) as client:
            writer, reader = client.do_put(descriptor, schema)
            with writer:
                for batch in rows:
                    writer.write_batch(pa.RecordBatch.from_pydict({"value": pa.array(batch, pa.binary())}))
                writer.done_writing()
                while (answer := reader.read()) is not None:
                    answers.append(json.loads(answer.to_pybytes()))
        return answers

    def decided(
        self, pieces: Iterable[Mapping[str, Any]], *, epoch: int = 0, ordinal: int = 1, sink: int = 1, tasks: int = 1
    ) -> dict[str, Any]:
        """What a publish of these pieces makes of the table, after it was confirmed."""
        claims: dict[int, dict[str, Any]] = {}
        for piece in pieces:
            claim = claims.setdefault(
                piece["incarnation"], {"incarnation": piece["incarnation"], "rows": 0, "digest": 0}
            )
            claim["rows"] += piece["rows"]
            claim["digest"] = (claim["digest"] + int(piece["digest"], 16)) % (1 << 128)
        targets = [{**claim, "digest": f"{claim['digest']:032x}"} for claim in claims.values()]
        attempt = {"generation": sink, "epoch": epoch, "token": TOKEN, "winners": [0] * tasks}
        answer = self.engine.confirm_stage({"sink": sink, **attempt, "targets": targets})
        assert answer["missing"] == []
        ends = answer["from_offsets"]
        targets = [{**target, "from_offset": ends[str(target["incarnation"])]} for target in targets]
        return {**attempt, "ordinal": ordinal, "targets": targets}

    # -- what became of it
    def changes(self, change: str) -> list[PartitionChange]:
        """All events of this kind so far."""
        self.events += [event for event in self.engine.poll(1000) if isinstance(event, PartitionChange)]
        return [event for event in self.events if event.change == change]

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait."""
        limit = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < limit, f"{what}; {self.events}"
            time.sleep(0.01)  # the engine's descriptor belongs to loops

    def linked(self, *incarnations: int, ordinal: int = 1, sink: int = 1) -> list[int]:
        """Wait for the reports; the offset of the first row in each partition."""
        offsets: dict[int, int] = {}

        def is_reported() -> bool:
            for event in self.changes("linked"):
                fields = json.loads(event.fields)
                if (fields["sink"], fields["ordinal"]) == (sink, ordinal):
                    offsets[event.incarnation] = fields["base_offset"]
            return offsets.keys() >= set(incarnations)

        self.until(f"publish {ordinal} of sink {sink} is linked to {incarnations}", is_reported)
        return [offsets[incarnation] for incarnation in incarnations]

    def publish(self, *rows: bytes, number: int = 0) -> None:
        """Rows of somebody else."""
        self.engine.append(FIRST_INCARNATION + number, rows, 10_000)

    def rows(self, number: int = 0) -> list[bytes]:
        """All values of a partition, in order."""
        ticket = flight.Ticket(json.dumps({"stream": STREAM, "partition": number, "columns": ["value"]}).encode())
        with flight.FlightClient(self._address) as client:
            return client.do_get(ticket).read_all().column("value").to_pylist()
