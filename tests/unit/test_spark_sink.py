"""The parts of Spark's sink that need neither Spark nor a broker."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from bascule.errors import BrokerError
from bascule.spark.admin_calls import sdk_url
from bascule.spark.checkpoint_copies import offsets_hash
from bascule.spark.sink.calls import OpenedSink, SinkCalls, Target
from bascule.spark.sink.identity import EPOCH, QUERY_ID, RUN_ID, Writer, task_of, writer_of
from bascule.spark.sink.options import parse_sink_options
from bascule.spark.sink.tasks import TaskMessage, write_task
from bascule.spark.sink.writers import merged, publish

QUERY, RUN = "0c6d5f9e-0000-4000-8000-000000000001", "0c6d5f9e-0000-4000-8000-00000000000a"
TOKEN = "a" * 32
WRITER = Writer("stream", "kept", "s", QUERY, RUN, 3)


class Context:
    """Spark's task context."""

    def __init__(self, task: int = 0, **properties: str) -> None:
        self._task = task
        self._properties = properties

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._task

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        return 77

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return {QUERY_ID: "query", EPOCH: "epoch", RUN_ID: "run"}.get(name, "") and self._properties.get(
            {QUERY_ID: "query", EPOCH: "epoch", RUN_ID: "run"}[name]
        )


STREAMING = Context(query=QUERY, epoch="3", run=RUN)


def options(*, is_stream: bool = True, **given: str):
    return parse_sink_options({"stream": "t", **given}, is_stream=is_stream)


def test_a_query_writes_under_its_sink_id_its_name_or_its_id() -> None:
    assert writer_of(options(sinkId="s"), STREAMING, TOKEN, is_stream=True) == WRITER
    named = writer_of(options(queryName="n", checkpointLocation="/c"), STREAMING, TOKEN, is_stream=True)
    assert named == replace(WRITER, name="n")
    unnamed = writer_of(options(), STREAMING, TOKEN, is_stream=True)
    assert unnamed == replace(WRITER, name=QUERY, lifetime="month")


def test_a_write_within_foreach_batch_needs_a_name() -> None:
    with pytest.raises(BrokerError, match="sinkId"):
        writer_of(options(is_stream=False), STREAMING, TOKEN, is_stream=False)
    written = writer_of(options(is_stream=False, sinkId="s"), STREAMING, TOKEN, is_stream=False)
    assert written == replace(WRITER, kind="foreach")


def test_a_sink_id_without_a_query_is_refused_unless_the_ids_are_passed() -> None:
    with pytest.raises(BrokerError, match="no query can be seen"):
        writer_of(options(is_stream=False, sinkId="s"), Context(), TOKEN, is_stream=False)
    passed = options(is_stream=False, sinkId="s", queryId=QUERY, runId=RUN, batchId="3")
    assert writer_of(passed, Context(), TOKEN, is_stream=False) == replace(WRITER, kind="foreach")


@pytest.mark.parametrize("run", [None, "", "my job group"])
def test_a_job_group_that_is_not_a_run_is_refused(run: str | None) -> None:
    context = Context(query=QUERY, epoch="3") if run is None else Context(query=QUERY, epoch="3", run=run)
    with pytest.raises(BrokerError, match="setJobGroup"):
        writer_of(options(), context, TOKEN, is_stream=True)


def test_a_batch_job_is_one_epoch_under_its_key_or_a_name_of_its_own() -> None:
    once = writer_of(options(is_stream=False), Context(), TOKEN, is_stream=False)
    assert (once.kind, once.lifetime, once.name, once.epoch) == ("batch", "hour", f"batch-{TOKEN}", 0)
    keyed = writer_of(options(is_stream=False, idempotencyKey="k"), Context(), TOKEN, is_stream=False)
    assert (keyed.lifetime, keyed.name) == ("month", "k")
    again = writer_of(options(is_stream=False, idempotencyKey="k"), Context(), "b" * 32, is_stream=False)
    assert again.run_id != keyed.run_id


def test_a_sink_is_opened_for_the_streams_that_its_rows_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, ...]] = []

    def fake(_: SinkCalls, writer: Writer, streams: tuple[str, ...]) -> OpenedSink:
        opened.append(streams)
        return OpenedSink(1, 1, writer.epoch, ())

    monkeypatch.setattr(SinkCalls, "open", fake)
    for number, given in enumerate(({"stream": "t"}, {"streams": "t, u"}, {"streams": '["a,b"]'}, {})):
        context = Context(query=QUERY, epoch=str(number), run=RUN)
        found = parse_sink_options({**given, "sinkId": "s"}, is_stream=True)
        write_task(found, TOKEN, iter(()), context, is_stream=True)
    assert opened == [("t",), ("t", "u"), ("a,b",), ()]
    with pytest.raises(BrokerError, match="option streams belongs to delivery exactly_once"):
        parse_sink_options({"streams": "u", "delivery": "at_least_once"}, is_stream=True)


def test_tasks_are_bounded() -> None:
    assert task_of(Context(task=9_999)) == (9_999, 77)
    with pytest.raises(BrokerError, match="10000"):
        task_of(Context(task=10_000))


@pytest.mark.parametrize(
    ("is_stream", "given", "text"),
    [
        (True, {"idempotencyKey": "k"}, "no meaning for a streaming write"),
        (False, {"acceptGap": "3"}, "no meaning for a batch write"),
        (False, {"sinkId": "s", "idempotencyKey": "k"}, "exclude each other"),
        (False, {"queryId": QUERY, "sinkId": "s"}, "together"),
        (False, {"queryId": QUERY, "runId": RUN, "batchId": "3"}, "need sinkId"),
        (True, {"delivery": "at_least_once", "sinkId": "s"}, "belongs to delivery exactly_once"),
        (True, {"streams": "u"}, "exclude each other"),
        (True, {"delivery": "once"}, "exactly_once, at_least_once"),
        (True, {"takeOver": "true"}, "UUID"),
        (True, {"publishTimeoutMs": "601s"}, "600000"),
        (True, {"partitioner": "hash"}, "module:function"),
        (True, {"subscribe": "x"}, "use stream"),
        (True, {"sinkid ": "x"}, "there is no option"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(is_stream: bool, given: dict[str, str], text: str) -> None:
    with pytest.raises(BrokerError, match=text):
        options(is_stream=is_stream, **given)


def message(task: int, *targets: Target, **changes: object) -> TaskMessage:
    made = TaskMessage(WRITER, (5, 6), TOKEN, task, 64 * task, targets, 10, 1 << 127, is_replay=False)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_rows_and_digests_of_tasks_are_added_by_partition() -> None:
    half = f"{1 << 127:032x}"
    found = merged(
        [
            message(0, Target("b", 0, 9, 1, half), Target("a", 1, 8, 2, half)),
            message(1, Target("a", 1, 8, 3, half)),
        ]
    )
    assert found == (Target("a", 1, 8, 5, "0" * 32), Target("b", 0, 9, 1, half))


def test_an_epoch_over_two_incarnations_is_not_published() -> None:
    with pytest.raises(BrokerError, match="purged or created again"):
        merged([message(0, Target("a", 1, 8, 2, "0" * 32)), message(1, Target("a", 1, 9, 2, "0" * 32))])


@pytest.mark.parametrize("changes", [{"sink": (5, 7)}, {"is_replay": True}, {"writer": replace(WRITER, run_id="x")}])
def test_an_epoch_of_two_generations_is_not_published(changes: dict[str, object]) -> None:
    with pytest.raises(BrokerError, match="several generations"):
        publish(options(sinkId="s"), [message(0), message(1, **changes)], "")


def test_an_epoch_whose_sink_was_made_again_is_not_published_and_says_so() -> None:
    with pytest.raises(BrokerError, match="the broker forgot the sink while tasks of the epoch ran") as caught:
        publish(options(sinkId="s"), [message(0), message(1, sink=(8, 9))], "")
    assert caught.value.code == "sink_expired"


@pytest.mark.parametrize("name", ["a#1", "a?b", "a%20b", "a b", "a:b"])
def test_a_checkpoint_is_read_as_hadoop_reads_its_path(tmp_path: Path, name: str) -> None:
    """Spark makes a folder with this very name, also for `file:` (where Hadoop's `Path` escapes nothing)."""
    offsets = tmp_path / name / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").write_bytes(b"v1\n{}")
    for text in (
        f"{tmp_path}/{name}",
        f"file:{tmp_path}/{name}",
        f"file://{tmp_path}/{name}",
        f"FILE:{tmp_path}/{name}",
    ):
        assert offsets_hash(text, 3) == hashlib.sha256(b"v1\n{}").hexdigest(), text


@pytest.mark.parametrize("elsewhere", ["s3a://bucket/c", "hdfs://h:1/c", "dbfs:/c", "file:", ""])
def test_a_checkpoint_elsewhere_has_no_hash(elsewhere: str, caplog: pytest.LogCaptureFixture) -> None:
    assert offsets_hash(elsewhere, 3) == ""
    assert not caplog.records


def test_a_checkpoint_that_cannot_be_read_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for epoch in (3, 4):
        assert offsets_hash(str(tmp_path / "gone"), epoch) == ""
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "offsets of epoch 3 cannot be synced here" in record.getMessage()
    assert "gone/offsets/3" in record.getMessage()


def test_the_hash_of_the_offsets_is_of_a_local_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_bytes(b"v1\n{}")
    expected = hashlib.sha256(b"v1\n{}").hexdigest()
    assert offsets_hash(str(tmp_path), 3) == offsets_hash(tmp_path.as_uri(), 3) == expected
    assert offsets_hash(str(tmp_path), 4) == offsets_hash("s3://bucket/c", 3) == offsets_hash("", 3) == ""


def test_addresses_are_those_of_the_sdk() -> None:
    assert sdk_url("grpc://h:1") == ("bascule://h:1", None)
    url, tls = sdk_url("grpc+tls://h:1?ca=/f&cert=/g&key=/h")
    assert url == "bascules://h:1"
    assert tls is not None
    assert [str(file) for file in (tls.ca, tls.cert, tls.key)] == ["/f", "/g", "/h"]
