"""A data plane without a control plane: tests create streams directly, and so control incarnations and retention."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bascule.engine import Engine

pa: Any = import_module("pyarrow")
fl: Any = import_module("pyarrow.flight")

BROKER = "b1"


class Streams:
    """The engine of one broker, with streams that tests create."""

    def __init__(self, data_dir: Path, **limits: int) -> None:
        self.data_dir = data_dir
        self._limits = limits
        self.engine = self._open()
        self.port = self.engine.bind("127.0.0.1", 0)
        self.engine.listen()
        self._metrics_port = self.engine.serve_http("127.0.0.1", 0, {"partitions": False, "groups": False})
        self.engine.set_serving(True)
        self.address = f"127.0.0.1:{self.port}"
        self._version = 0
        self._incarnation = 0
        self._specs: dict[str, list[dict[str, Any]]] = {}

    def _open(self) -> Engine:
        engine = Engine(
            {
                "data_dir": str(self.data_dir),
                "cluster_id": "tests",
                "broker_id": BROKER,
                "runtime_threads": 2,
                "namespace": "tests",
                "limits": self._limits,
            }
        )
        # Before that nothing is removed by retention.
        engine.set_sinks(1, {"sinks": [], "removed": [], "complete": True})
        return engine

    def close(self) -> None:
        self.engine.close(0)

    def save(self, copy: Path) -> None:
        """Copy the data directory while the engine is closed."""
        self._restart(lambda: shutil.copytree(self.data_dir, copy))

    def put_back(self, copy: Path) -> None:
        """Replace the data directory by a copy of `save`, like restoring a backup."""

        def replace() -> None:
            shutil.rmtree(self.data_dir)
            shutil.copytree(copy, self.data_dir)

        self._restart(replace)

    def _restart(self, meanwhile: Callable[[], object]) -> None:
        self.engine.close(0)
        meanwhile()
        self.engine = self._open()
        for specs in self._specs.values():
            assert self.engine.open(json.dumps(specs).encode()) == []
            self.engine.lead([(spec["incarnation"], 1) for spec in specs])
        self._version = 0
        for name in self._specs:
            self._publish(name)
        self.port = self.engine.bind("127.0.0.1", self.port)
        self.engine.listen()
        self._metrics_port = self.engine.serve_http("127.0.0.1", 0, {"partitions": False, "groups": False})
        self.engine.set_serving(True)

    def create(self, name: str, partitions: int = 1, **settings: Any) -> None:
        """Create a stream, or add partitions to one."""
        specs = self._specs.setdefault(name, [])
        added = [self._spec(name, number, settings) for number in range(len(specs), partitions)]
        specs.extend(added)
        assert self.engine.open(json.dumps(added).encode()) == []
        self.engine.lead([(spec["incarnation"], 1) for spec in added])
        self._publish(name)

    def delete(self, name: str) -> None:
        specs = self._specs.pop(name)
        self._version += 1
        self.engine.publish_view(self._version, json.dumps({"streams": [], "removed": [["default", name]]}).encode())
        self.engine.delete_partitions([spec["incarnation"] for spec in specs])

    def set(self, name: str, **settings: Any) -> None:
        """Change settings of an open stream, for example its retention."""
        for spec in self._specs[name]:
            spec.update(settings)
        assert self.engine.open(json.dumps(self._specs[name]).encode()) == []

    def put(self, name: str, values: list[bytes], partition: int = 0, **columns: list[Any]) -> int:
        """Append records; returns the offset of the first."""
        arrays = {"value": pa.array(values, pa.binary()), **{key: pa.array(column) for key, column in columns.items()}}
        batch = pa.RecordBatch.from_pydict(arrays)
        command = {"stream": name, "partition": partition}
        return put_batches(self.address, command, [batch])[0]["base_offset"]

    def calls(self) -> dict[str, int]:
        """Calls that clients made so far and that have ended, by method, as the broker's metrics count them."""
        with urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r'^bascule_calls_total\{[^}]*method="(\w+)"[^}]*\} (\d+)', text, re.MULTILINE)
        counts: Counter[str] = Counter()
        for method, count in found:
            counts[method] += int(count)
        return dict(counts)

    def position(self, name: str, partition: int = 0) -> tuple[int, int]:
        """Log start and high watermark."""
        status = self.engine.status([self._specs[name][partition]["incarnation"]])[0]
        return status[1], status[2]

    def _spec(self, name: str, number: int, settings: dict[str, Any]) -> dict[str, Any]:
        self._incarnation += 1
        return {
            "namespace": "default",
            "stream": name,
            "number": number,
            "incarnation": self._incarnation,
            "subject": name if number == 0 else f"{name}.{number}",
            "base_subject": name,
            "queue_group": "",
            "durability": "memory",
            "codec": "none",
            "nats_copy": "none",
            "max_record_bytes": 1 << 20,
            "batch_records": 1024,
            "batch_bytes": 1 << 20,
            "retention_age_ms": 0,
            "retention_bytes": 0,
            "retention_messages": 0,
            "cleaner_interval_ms": 100,
            "segment_bytes": 1 << 26,
            "segment_age_ms": 0,
            "concurrency_control": False,
            **settings,
        }

    def _publish(self, name: str) -> None:
        self._version += 1
        specs = self._specs[name]
        stream = {
            "namespace": "default",
            "name": name,
            "id": specs[0]["incarnation"],
            "subject": name,
            "created_ns": 1,
            "partition_by_subject": False,
            "concurrency_control": False,
            "partitions": [
                {
                    "number": spec["number"],
                    "incarnation": spec["incarnation"],
                    "leader": BROKER,
                    "leader_epoch": 1,
                    "readonly": False,
                    "paused": False,
                }
                for spec in specs
            ],
        }
        self.engine.publish_view(self._version, json.dumps({"streams": [stream], "removed": []}).encode())


def put_batches(address: str, command: dict[str, Any], batches: list[Any]) -> list[dict[str, Any]]:
    """Append record batches in one call; returns the results."""
    client = fl.FlightClient(f"grpc://{address}")
    descriptor = fl.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, reader = client.do_put(descriptor, batches[0].schema)
    for batch in batches:
        writer.write_batch(batch)
    writer.done_writing()
    results: list[dict[str, Any]] = []
    while (result := reader.read()) is not None:
        results.append(json.loads(result.to_pybytes()))
    writer.close()
    client.close()
    return results
