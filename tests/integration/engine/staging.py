"""A data plane without a control plane, with one stream, for tests of what is staged."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from bascule.engine import Engine
from pyarrow import flight

STREAM = "orders"
FIRST = 65_536
"""Incarnation of partition 0."""
SINK, GENERATION = 7, 9
TOKEN = "0" * 31 + "1"


class Plane:
    """The engine over a data directory, and a Flight client."""

    def __init__(self, data: Path, *, partitions: int = 2, encrypted: bool = False, **spec: Any) -> None:
        key = data.parent / "master"
        key.write_text(base64.b64encode(bytes(range(32))).decode())
        settings: dict[str, Any] = {
            "data_dir": str(data),
            "cluster_id": "c",
            "broker_id": "b",
            "runtime_threads": 2,
            "namespace": "n",
        }
        if encrypted:
            settings["encryption"] = {"keys": {"m": str(key)}, "environment": {}, "current": "m"}
        self.data = data
        self.engine = Engine(settings)
        self._version = 0
        self._spec = {
            "namespace": "default",
            "stream": STREAM,
            "subject": "",
            "base_subject": "",
            "durability": "memory",
            "codec": "none",
            "max_record_bytes": 1 << 20,
            "batch_records": 1024,
            "batch_bytes": 1 << 20,
            **dict.fromkeys(("retention_age_ms", "retention_bytes", "retention_messages", "segment_age_ms"), 0),
            "cleaner_interval_ms": 300_000,
            "segment_bytes": 1 << 20,
            **spec,
        }
        self.incarnations = list(range(FIRST, FIRST + partitions))
        if encrypted:
            wrapped = data.parent / "wrapped"
            if not wrapped.exists():
                master, text = self.engine.new_data_key(1)
                wrapped.write_text(json.dumps({"number": 1, "master": master, "wrapped": text}))
            self._spec["data_keys"] = [json.loads(wrapped.read_text())]
        self.open_partitions()
        port = self.engine.bind("127.0.0.1", 0)
        self.engine.listen()
        self.engine.set_serving(True)
        self.client = flight.FlightClient(f"grpc://127.0.0.1:{port}")

    def open_partitions(self) -> None:
        specs = [{**self._spec, "number": n, "incarnation": i} for n, i in enumerate(self.incarnations)]
        assert self.engine.open(json.dumps(specs).encode()) == []
        self.engine.lead([(incarnation, 1) for incarnation in self.incarnations])
        self.show()

    def show(self, **place: Any) -> None:
        """Publish the view; `place`: what partition 0 is like."""
        places = [
            {"number": n, "incarnation": i, "leader": "b", "leader_epoch": 1, **(place if n == 0 else {})}
            for n, i in enumerate(self.incarnations)
        ]
        stream = {"namespace": "default", "name": STREAM, "id": 5, "subject": "", "created_ns": 1, "partitions": places}
        self._version += 1
        self.engine.publish_view(self._version, json.dumps({"streams": [stream]}).encode())

    def sinks(self, version: int, **row: Any) -> None:
        """Set the table to this one sink."""
        sink = {
            "id": SINK,
            "name": "default/copy",
            "owner": "",
            "generation": GENERATION,
            "last_epoch": None,
            "producer": (1 << 63) + SINK,
            "quota_bytes": 0,
            "expired": [],
            "link": None,
            **row,
        }
        self.engine.set_sinks(version, {"sinks": [sink], "removed": [], "complete": True})

    def stage(self, *batches: pa.RecordBatch, schema: pa.Schema | None = None, **changes: Any) -> list[dict[str, Any]]:
        """Stage in one call; its results."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command(**changes)).encode())
        answers: list[dict[str, Any]] = []
        writer, reader = self.client.do_put(descriptor, schema or batches[0].schema)
        with writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            while (answer := reader.read()) is not None:
                answers.append(json.loads(answer.to_pybytes()))
        return answers

    def pieces(self) -> list[Path]:
        """Every file in the stage folders, by partition and name."""
        return sorted(path for path in self.data.glob("partitions/*/stage/*") if path.is_file())

    def confirm(self, answers: Sequence[Mapping[str, Any]], winners: Sequence[int]) -> dict[str, Any]:
        """Confirm what calls have answered."""
        targets: dict[int, tuple[int, int]] = {}
        for answer in answers:
            rows, digest = targets.get(answer["incarnation"], (0, 0))
            summed = (digest + int(answer["digest"], 16)) % (1 << 128)
            targets[answer["incarnation"]] = (rows + answer["rows"], summed)
        claims = [{"incarnation": i, "rows": rows, "digest": f"{sum_:032x}"} for i, (rows, sum_) in targets.items()]
        request = {"sink": SINK, "generation": GENERATION, "epoch": 0, "token": TOKEN}
        return self.engine.confirm_stage({**request, "winners": list(winners), "targets": claims})

    def close(self) -> None:
        self.client.close()
        self.engine.close(0)


def command(**changes: Any) -> dict[str, Any]:
    """A put command that stages; keys that it does not know go into `stage`."""
    outer = {key: changes.pop(key) for key in ("partition", "producer", "nats_copy", "stream") if key in changes}
    stage = {"sink": SINK, "generation": GENERATION, "epoch": 0, "token": TOKEN, "task": 0, "attempt": 64}
    return {"stream": STREAM, "stage": {**stage, **changes}, **outer}


def rows(values: Sequence[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def serialized(*batches: pa.RecordBatch) -> bytes:
    """As an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return out.getvalue().to_pybytes()
