"""Write the first inputs of every fuzz target into `fuzz/corpus/<target>/seed-*`, from the golden vectors.

The fuzzer finds the rest. Run once more after a format gains a field: `.venv/bin/python fuzz/seeds.py`.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from bascule._admin_pb import message as admin_message
from bascule._methods import METHODS
from bascule.metadata import Placement, State, StreamSettings, apply, commands, initial_state
from bascule.metadata.commands import encode_command
from bascule.metadata.snapshot import encode_snapshot

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"
PREFIX_BYTES = 8

MESSAGES = (
    "Ack SubscribeRequest PublishRequest PublishResponse PublishToSubjectRequest SetCursorRequest FetchCursorRequest"
    " FetchCursorResponse Message"
).split()
"""In the order of `DECODERS` in `crates/fuzz/src/protobuf.rs`."""

JSON_SEEDS = {
    "flight_documents": [
        (0, {"stream": "s", "partitions": [0, 1], "columns": ["value"], "subject": "a.*", "start": {"last": 5}}),
        (1, {"stream": "s", "partition": 1, "producer": {"id": 7, "epoch": 1, "base_sequence": 0}}),
        (2, {"stream": "s", "times": [{"partition": 0, "time_ns": 5}], "wait_ms": 1, "beyond": {"0": 7}}),
        (3, {"stream": "s", "partition": 0, "start": {"time_ns": -5}, "end": 9, "wait_ms": 5, "max_rows": 3}),
        (3, {"stream": "s", "partition": 0, "start": "latest", "follow": True, "max_bytes": 1, "incarnation": 7}),
    ],
    "seam_documents": [
        (
            0,
            {
                "data_dir": "d",
                "cluster_id": "c",
                "broker_id": "b",
                "runtime_threads": 1,
                "namespace": "n",
                "limits": {"queue_bytes": 65536, "connections": 5},
            },
        ),
        (
            1,
            {
                "streams": [
                    {
                        "namespace": "n",
                        "name": "s",
                        "id": 1,
                        "subject": "s",
                        "created_ns": 1,
                        "partitions": [{"number": 0, "incarnation": 1, "leader": "b", "leader_epoch": 1}],
                    }
                ],
                "removed": [["n", "t"]],
            },
        ),
        (2, {"servers": ["nats://127.0.0.1:4222"], "user": "u", "password": "p", "tls": {"ca": "x"}}),
        (
            3,
            [
                {
                    "namespace": "n",
                    "stream": "s",
                    "number": 0,
                    "incarnation": 1,
                    "subject": "s",
                    "base_subject": "s",
                    "durability": "disk",
                    "codec": "lz4",
                    "nats_copy": "value",
                    "max_record_bytes": 1,
                    "batch_records": 1,
                    "batch_bytes": 1,
                    "retention_age_ms": 1,
                    "retention_bytes": 1,
                    "retention_messages": 1,
                    "cleaner_interval_ms": 0,
                    "segment_bytes": 1,
                    "segment_age_ms": 1,
                }
            ],
        ),
    ],
}


def write(target: str, name: str, data: bytes) -> None:
    """Keep one input."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data)


def hex_lines(name: str) -> list[str]:
    """Lines of a vector file, without comments."""
    text = (ROOT / "specs/vectors/wire" / name).read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def batches() -> None:
    """Record batches."""
    whole = b""
    for path in sorted((ROOT / "specs/vectors/batch").glob("*.json")):
        data = bytes.fromhex(json.loads(path.read_text())["bytes"])
        write("batch", path.stem, data)
        write("batch_rewrite", path.stem, struct.pack("<QB", 0x5555_5555_5555_5555, 0) + data)
        whole += data
        if path.stem in {"lz4", "zstd"}:
            header = data[:128]
            codec, columns = header[5] - 1, struct.unpack_from("<H", header, 20)[0]
            count, raw = struct.unpack_from("<I", header, 44)[0], struct.unpack_from("<I", header, 84)[0]
            write("batch_codec", path.stem, struct.pack("<BIBH", codec, raw, count, columns) + data[128:])
    write("batches", "all", whole)
    for at in (0, 40, 70, 84, 88, 92, 120, 130):
        write("batch_encrypted", str(at), struct.pack("<HB", at, 1) + b"\x01" + b"value " * 5)
    record = b"\x18\x03key\x05\x00value\x04name\x05other\x03a.b\x01\x00\x00\x00"
    for codec in range(3):
        write("batch_build", str(codec), struct.pack("<BQII", codec, 7, 1, 0) + b"\x03own" + bytes(8) + record * 9)


def wire() -> None:
    """Envelopes, messages, frames, subjects."""
    for name in ("publish", "publish_checksum", "ack"):
        data = bytes.fromhex("".join(hex_lines(f"{name}.hex")).replace(" ", ""))
        write("envelope", name, data)
    envelope = bytes.fromhex("".join(hex_lines("publish.hex")).replace(" ", ""))
    for kind in range(15):
        write("envelope", f"type-{kind}", envelope[:7] + bytes([kind]) + envelope[8:])
    frames = b""
    for line in hex_lines("messages.hex"):
        name, _, digits = line.partition(" ")
        data = bytes.fromhex(digits)
        if name in MESSAGES:
            write("liftbridge_messages", name, bytes([MESSAGES.index(name)]) + data)
        if name in {"PublishRequest", "PublishResponse", "PublishToSubjectRequest", "Message"}:
            write("liftbridge_hot", name, data)
            frames += b"\x00" + struct.pack(">I", len(data)) + data
    write("grpc_frames", "some", b"\x07" + frames)
    write("nats_headers", "copy", b"NATS/1.0\r\nBascule-Origin: c1/7/0/3\r\nNats-Msg-Id: id-1\r\n\r\n")
    odd = b"NATS/1.0 503 No\r\nA: ol\xe9\r\nA:b\nc\r\n: x\r\nno colon\r\n\xff: \r\n\r\nrest"
    write("nats_headers", "odd", odd)
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    message = b"HMSG a.b 12 _INBOX.x %d %d\r\n%sabc\r\n" % (len(block), len(block) + 3, block)
    info = b'INFO {"server_id":"x","max_payload":1048576,"headers":true}\r\n'
    write("nats_operations", "session", info + b"PONG\r\n" + message + b"MSG a 1 0\r\n\r\nPING\r\n+OK\r\n")
    refusal = b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n"
    write("nats_operations", "error", refusal + b"MSG a 1 r 2\r\nab\r\n")
    write("nats_operations", "cut", b"MSG \xff\x00 1 99\r\nabc")
    for i, text in enumerate(("a.*.b\na.x.b", "a.>\na.b.c", "*\na", ">\na.b", "a.b\na.b")):
        write("subjects", str(i), text.encode())


def iggy() -> None:
    """Recorded frames."""
    vectors = json.loads((ROOT / "specs/vectors/iggy/v1.json").read_text())
    for i, frame in enumerate(vectors["captures"] + vectors["constructed"]):
        write("iggy_v1", f"{i}-{frame['command'].lower()}", bytes.fromhex(frame["request_hex"]))
    vectors = json.loads((ROOT / "specs/vectors/iggy/v1b.json").read_text())
    generations = {"0.7.0": 1, "0.8.0": 2, "0.9.0": 3, "0.10.0": 3}
    for frame in vectors["captures"]:
        seed = bytes([generations[frame["sdk"]]]) + bytes.fromhex(frame["request_hex"])
        write("iggy_v1b", frame["id"].removeprefix("v1b-"), seed)
    vectors = json.loads((ROOT / "specs/vectors/iggy/v2.json").read_text())
    for frame in vectors["captures"]:
        if not frame.get("is_body"):
            write("iggy_v2", frame["id"].removeprefix("v2-tcp-"), bytes.fromhex(frame["request_hex"]))


def peer() -> None:
    """Frames between brokers."""
    for frame in json.loads((ROOT / "specs/vectors/peer/frames.json").read_text()):
        write("peer_frames", frame["name"], bytes.fromhex(frame["frame"]))


def arrow() -> None:
    """Messages of DoPut: heads and bodies, each behind two bytes of length."""
    columns = {
        "value": pa.array([b"one", None, b"three"], pa.binary()),
        "key": pa.array(["k", None, ""], pa.string()),
        "headers": pa.array([[("a", b"x")], None, []], pa.map_(pa.string(), pa.binary())),
        "timestamp": pa.array([1, None, 3], pa.timestamp("us")),
        "subject": pa.array(["s", "t", None], pa.large_string()),
        "view": pa.array([b"v" * 20, None, b""], pa.binary_view()),
    }
    for name in ("value", "key", "headers", "timestamp", "subject", "view", "all"):
        used = columns if name == "all" else {"value": columns["value"], name: columns[name]}
        used = {("value" if key == "view" else key): column for key, column in used.items() if key != "view"} or used
        batch = pa.record_batch(used)
        for compression in (None, "lz4", "zstd"):
            options = pa.ipc.IpcWriteOptions(compression=compression)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch)
            out = b""
            for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
                head = message.metadata.to_pybytes()
                body = message.body.to_pybytes() if message.body is not None else b""
                out += struct.pack("<H", len(head)) + head + struct.pack("<H", len(body)) + body
            write("flight_put", f"{name}-{compression or 'none'}", out)


def files() -> None:
    """Files of a log; the targets recompute their checksums."""
    identity = struct.pack("<QI", 7, 2)
    index = b"BSCI" + struct.pack("<I", 1) + identity + struct.pack("<IQQQQqqQII", 9, 0, 5, 300, 5, 1, 9, 1, 1, 0)
    write("log_index", "one", index + struct.pack("<IIQ", 0, 64, 0) + bytes(4))
    slot = b"BSCC" + struct.pack("<IQ", 1, 3) + identity + struct.pack("<IQQQI", 1, 5, 0, 5, 0) + bytes(4)
    write("log_checkpoint", "clean", slot)
    reach = struct.pack("<QII", 9, 500, 7)
    head = b"BSCH" + struct.pack("<IQ", 1, 3) + reach + struct.pack("<QII", 8, 1, 0) + struct.pack("<QII", 5, 600, 8)
    write("log_journal", "head", head.ljust(508, b"\0") + bytes(4))
    write("log_journal", "preamble", b"BSCJ" + struct.pack("<IQQQ", 3, 10, 8, 7) + reach + bytes(16))
    write("log_epochs", "two", b"".join(struct.pack("<QQII", epoch, epoch * 5, 7, 0) for epoch in (1, 2)))
    preamble = b"BSCS" + struct.pack("<I", 1) + identity + struct.pack("<IQqqQI", 0, 0, 1, 1, 1, 0) + bytes(4)
    write("log_preamble", "first", preamble)
    producer = struct.pack("<QII", 5, 1, 2) + struct.pack("<IIQq", 0, 1, 3, 9) * 2
    write(
        "log_producers",
        "one",
        b"BSCP" + struct.pack("<I", 1) + identity + struct.pack("<IQ", 1, 9) + producer + bytes(4),
    )
    for name, link, ids in (("none", 2**64 - 1, []), ("some", 9, [b"a", b"order-17", b"\xff" * 40])):
        entries = b"".join(struct.pack("<QqI", i * 3, i, len(text)) + text for i, text in enumerate(ids))
        head = b"BSMI" + struct.pack("<I", 1) + identity + struct.pack("<QQQ", 100, link, len(ids))
        write("message_ids", name, head + entries + bytes(4))
    for which in range(8):
        for kind in range(6):
            write(
                "log_recover",
                f"{which}-{kind}",
                bytes([which, kind]) + struct.pack("<H", 64 + 128 * kind) + b"\x04abcd",
            )
    state = b'{"a": 1}'
    head = b"BSMS" + struct.pack("<IQQII", 1, 5, len(state), 0, 0)
    write("metadata_snapshot", "small", head + state)


def documents() -> None:
    """JSON documents behind the byte that chooses their kind."""
    for target, seeds in JSON_SEEDS.items():
        for i, (kind, document) in enumerate(seeds):
            write(target, str(i), bytes([kind]) + json.dumps(document).encode())


ADMIN_REQUESTS: dict[str, dict[str, Any]] = {
    "TrimPartition": {"name": "s", "partition": 0, "before": 1, "dry_run": True},
    "PurgeStream": {"name": "s", "now": True, "dry_run": True},
    "EditStream": {
        "name": "s",
        "changes": {"codec": "lz4", "min_isr": 1},
        "reset": ["retention_bytes"],
        "dry_run": True,
    },
    "ResumeStream": {"name": "s", "partitions": [0, 1], "dry_run": True},
    "CheckCreateStream": {"create": {"name": "s", "subject": "a.*", "minIsr": {"value": 1}}},
    "FetchStreamDetails": {"name": "s"},
    "FetchStreams": {"namespace": "n"},
    "FetchGroupDetails": {"groups": ["g", "h"]},
    "OpenSink": {"name": "s", "kind": "batch", "lifetime": "hour", "run_id": f"{0:032x}", "streams": ["s", "t"]},
    "PublishSink": {
        "name": "s",
        "id": 3,
        "generation": 3,
        "token": "a" * 32,
        "winners": [64, 192],
        "targets": [{"stream": "s", "incarnation": 1 << 17, "rows": 1, "digest": "d" * 32}],
        "input_rows": 1,
        "accept_gap": 0,
        "timeout_ms": 1,
    },
    "AbortSink": {"name": "s", "id": 3, "generation": 3, "token": "a" * 32},
    "RenewSink": {"name": "s", "id": 3, "generation": 3, "token": "a" * 32},
    "FetchSinkStreams": {"streams": ["s", "t"]},
    "FetchSinks": {"names": ["s", "t"]},
    "DeleteSink": {"name": "s", "dry_run": True},
    "SkipSink": {"name": "s", "stream": "s", "partition": 0, "dry_run": True},
    "SetSinkQuota": {"name": "s", "quota_bytes": 1 << 33},
    "SetSinkOwner": {"name": "s", "owner": "ada", "dry_run": True},
    "FetchUsers": {"name": "iggy"},
    "CreateUser": {
        "name": "ada",
        "password": "secret",
        "grants": [{"rights": ["read_streams"]}, {"stream": "s", "topic": "t", "rights": ["poll_messages"]}],
        "dry_run": True,
    },
    "DeleteUser": {"name": "ada", "dry_run": True},
    "SetUserPassword": {"name": "ada", "password": "secret", "dry_run": True},
    "SetUserStatus": {"name": "ada", "is_active": True, "dry_run": True},
    "SetUserRights": {"name": "ada", "grants": [{"stream": "n", "rights": ["send_messages"]}], "dry_run": True},
    "CreateUserToken": {"user": "ada", "name": "dev", "expires_in_ms": 1000, "dry_run": True},
    "DeleteUserToken": {"user": "ada", "name": "dev", "dry_run": True},
}


def admin_requests() -> None:
    """Requests that the control plane answers, after the place of their method."""
    in_control = [name for name, method in METHODS.items() if method.in_control]
    ours = sorted(name for name in in_control if METHODS[name].service == "bascule.admin.v1.Admin")
    places = [*ours, *sorted(set(in_control) - set(ours))]
    for name, fields in ADMIN_REQUESTS.items():
        body = admin_message(f"{name}Request")(**fields).SerializeToString()
        write("python_admin_requests", name, bytes([places.index(name)]) + body)
    requests = ("CreateStreamRequest", "DeleteStreamRequest", "FetchMetadataRequest", "FetchPartitionMetadataRequest")
    for line in hex_lines("messages.hex"):
        name, _, digits = line.partition(" ")
        if name in requests:
            for method in range(len(ours), len(places)):
                write("python_admin_requests", f"{places[method]}-{name}", bytes([method]) + bytes.fromhex(digits))


def python() -> None:
    """What the Python targets read."""
    samples = {
        "config_yaml": [
            "data_dir: /x\nbroker:\n  port: 9293\n  host: 0.0.0.0\nlimits.queue_bytes: 64MiB\n",
            "streams: {retention_max_age_ms: 7d, codec: lz4}\nnats: {servers: ['nats://a:1', 'tls://b']}\n",
            "log:\n  level: debug\nlimits: &l {connections: 5}\nnats:\n  standalone: true\n",
        ],
        "liftbridge_yaml": [
            "listen: localhost:9293\ndata.dir: /tmp/x\nstreams:\n  retention.max:\n    age: 7d\n    bytes: 5\n",
            "nats:\n  embedded: true\n  embedded.config: a.conf\nlogging.level: debug\nhost: a\nport: 1\n",
            "clustering:\n  server.id: a\n  namespace: n\n  raft.bootstrap.seed: true\nbatch.max.messages: 3\n",
        ],
        "positions": [
            "earliest", "latest", "-17", '{"s": {"0": 5, "1": -2}, "t": "latest"}', "2026-01-02T03:04:05+02:00",
            "1700000000000", '{"s": "2026-01-02"}', "liftbridge://a:1,[::1]:2,b", "1h30m", "64MiB", "1.5GB",
        ],
    }  # fmt: skip
    for target, texts in samples.items():
        for i, text in enumerate(texts):
            write(f"python_{target}", str(i), text.encode())
    admin_requests()
    entries, state = metadata()
    for i, entry in enumerate(entries):
        write("python_metadata_entries", str(i), encode_command(entry))
    write("python_metadata_snapshot", "state", encode_snapshot(state))


def metadata() -> tuple[list[Any], State]:
    """A few entries, and the state they lead to."""
    entries = [
        commands.RegisterBroker("a", "127.0.0.1", 9292, 5),
        commands.CreateStream(
            "default",
            "s",
            "s",
            "",
            5,
            StreamSettings(),
            (Placement(("a",), "a"), Placement(("a",), "a")),
        ),
        commands.DeleteStream("default", "s", 7),
    ]
    state = initial_state()
    for index, entry in enumerate(entries[:2], 1):
        state, _ = apply(state, index, entry)
    return entries, state


if __name__ == "__main__":
    batches()
    wire()
    iggy()
    peer()
    arrow()
    files()
    documents()
    python()
