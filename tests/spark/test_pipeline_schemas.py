"""A schema id that the registry learns between two attempts at an epoch, on real Spark: each record has one place."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import InternalError
from bascule.pipeline import parse_job, run
from bascule.pipeline.unknown_schemas import FOLDER
from harness import Streams

from tests.failpoints import Points
from tests.schema_registry import schema_registry

pytestmark = pytest.mark.spark

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}%s]}'
LATER = ', {"name": "note", "type": "string", "default": ""}'


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def offsets(folder: Path, name: str) -> list[int]:
    delta: Any = import_module("deltalake")
    return sorted(delta.DeltaTable(str(folder / name)).to_pyarrow_table()["offset"].to_pylist())


def test_an_id_that_becomes_known_between_two_attempts_stays_unknown_for_the_epoch(
    spark: Any, streams: Streams, points: Points, tmp_path: Path
) -> None:
    streams.create("s")
    with schema_registry() as registry:
        first = registry.register("s-value", SCHEMA % "")
        second = first + 1
        streams.put("s", [framed(first, b"\x02"), framed(second, b"\x04\x00"), b"?", framed(second, b"\x06\x00")])
        document: dict[str, Any] = {
            "name": "orders",
            "source": {"stream": "s", "address": streams.address, "longPollMs": 100},
            "decode": {
                "value": {"format": "avro", "schema": {"registry": {"url": registry.url, "version": 1}}},
                "onDecodeError": "dlq",
            },
            "sql": "SELECT stream, partition, offset, value.id AS id FROM source",
            "targets": [{"format": "delta", "path": "good"}],
            "deadLetters": {"format": "delta", "path": "dead"},
            "mode": "availableNow",
            "checkpoint": "checkpoint",
            "restarts": {"most": 0},
        }
        points.arm("job.target_written", "fail")
        with pytest.raises(InternalError, match=r"job\.target_written"):
            run(parse_job(document, base=tmp_path), spark=spark)
        assert offsets(tmp_path, "good") == [0]
        assert registry.register("s-value", SCHEMA % LATER) == second
        # the workers remember for a while what a registry does not know, by its address
        document["decode"]["value"]["schema"]["registry"]["url"] = registry.url.replace("127.0.0.1", "localhost")
        run(parse_job(document, base=tmp_path), spark=spark)
        assert (offsets(tmp_path, "good"), offsets(tmp_path, "dead")) == ([0], [1, 2, 3])
        assert [path.name for path in (tmp_path / "checkpoint" / FOLDER).iterdir()] == ["0.json"]
        streams.put("s", [framed(second, b"\x08\x00")])
        run(parse_job(document, base=tmp_path), spark=spark)
        assert (offsets(tmp_path, "good"), offsets(tmp_path, "dead")) == ([0, 4], [1, 2, 3])
