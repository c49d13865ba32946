"""Job files: what is accepted, and the one sentence for what is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.pipeline.files import from_file, job_schema, parse_job
from bascule.pipeline.model.decoders import Avro
from bascule.pipeline.model.targets import Table
from bascule.pipeline.targets.streams import JobSink

LEAST: dict[str, Any] = {
    "name": "orders",
    "source": {"stream": "orders"},
    "targets": [{"format": "delta", "path": "lake/orders"}],
    "checkpoint": "lake/checkpoint",
}


def test_paths_start_from_the_directory_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        """
name: orders
source:
  stream: [orders, more]
  startingOffsets: {orders: {"0": 5}}
  maxOffsetsPerTrigger: 100
decode:
  key: string
  value: {format: avro, schema: {file: order.avsc}}
  onDecodeError: dlq
expectations:
  expect_or_dlq: {positive: value.amount > 0}
targets:
  - {format: delta, path: lake, partitionBy: date}
  - {format: parquet, path: "s3://bucket/copy", name: copy}
deadLetters: {format: delta, path: dead}
checkpoint: checkpoint
"""
    )
    job = from_file(file)
    assert job.checkpoint == str(tmp_path / "checkpoint")
    assert [each.place for each in job.targets] == [str(tmp_path / "lake"), "s3://bucket/copy"]
    assert isinstance(job.targets[0], Table)
    assert job.targets[0].partition_by == ("date",)
    assert isinstance(job.decode.value, Avro)
    assert job.decode.value.schema_.file == tmp_path / "order.avsc"
    assert job.dead_letters is not None
    assert job.dead_letters.name == "dead-letters"
    assert job.source_keys.options() == {
        "stream": '["orders", "more"]',
        "startingOffsets": '{"orders": {"0": 5}}',
        "maxOffsetsPerTrigger": "100",
        "columns": "stream,incarnation,partition,offset,timestamp,subject,key,value,headers",
    }
    assert job.stream is None


def test_the_least_job_has_safe_defaults() -> None:
    job = parse_job(LEAST)
    assert job.mode == "continuous"
    assert job.decode.on_decode_error == "fail"
    assert job.decode.value.format == "raw"
    assert job.restarts.most == 10
    assert job.stream == "orders"


def changed(path: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(LEAST))
    *above, last = path.split(".")
    level: Any = document
    for key in above:
        level = level[int(key)] if key.isdigit() else level.setdefault(key, {})
    level[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("sauce", {}, 'unknown key "sauce"; did you mean "source"?'),
        ("source.strem", "x", 'unknown key "source.strem"; did you mean "source.stream"?'),
        ("decode.onDecodeErr", "dlq", 'unknown key "decode.onDecodeErr"; did you mean "decode.onDecodeError"?'),
        ("targets.0.pth", "x", 'unknown key "targets.0.pth"; did you mean "targets.0.path"?'),
        (
            "decode.value",
            {"format": "json", "schemas": {}},
            'unknown key "decode.value.schemas"; did you mean "decode.value.schema"?',
        ),
        ("decode.value", {"format": "jsn"}, "decode.value"),
        ("decode.value", "json", 'the key "decode.value.schema" is missing'),
        ("decode.value", {"format": "avro", "schema": {}}, "exactly one of file, inline, registry must be given"),
        ("decode.onDecodeError", "dlq", "decode.onDecodeError: dlq needs deadLetters"),
        ("expectations.expect_or_dlq", {"a": "x > 1"}, "expectations.expect_or_dlq needs deadLetters"),
        ("expectations.expect", {"a": " "}, 'the condition "a" is empty'),
        ("deadLetters", {"format": "delta", "path": "dead"}, "deadLetters is never written"),
        ("mode", "batch", "a batch run has no checkpoint"),
        ("mode", "stream", "mode = 'stream'"),
        ("checkpoint", None, "the mode continuous needs a checkpoint"),
        ("checkpoint", "lake/orders/checkpoint", "take its files for the table's: choose one beside it"),
        ("interval", "ten", "'ten' is not a duration"),
        ("targets", [], "targets is empty: name at least one"),
        ("targets", None, "targets must be a list, and it is empty"),
        ("targets", {"format": "delta"}, "targets must be a list, not a mapping"),
        ("targets", [{"path": "lake"}], 'the key "targets.0.format" is missing'),
        ("source", "orders", "source must be a mapping (with keys such as columns, address, namespace, stream), not"),
        (
            "decode.value",
            {"format": "json", "schema": "id BIGINT"},
            "(with keys such as file, inline), not 'id BIGINT'",
        ),
        ("expectations.expect", ["id > 0"], "expectations.expect must be a mapping, not a list"),
        ("name", 5, "name must be text, not 5"),
        ("report", "maybe", "report must be true or false, not 'maybe'"),
        ("targets.0.onSchemaChange", "dlq", "onSchemaChange: dlq of table needs deadLetters"),
        ("targets.0.format", "orc", "targets.0.format"),
        ("targets.0.format", "iceberg", "an Iceberg table is named namespace.table"),
        ("targets.0.fileBytes", "1B", "fileBytes is 1: it must be from 1048576"),
        (
            "source",
            {"stream": "a", "streamPattern": "b"},
            "exactly one of the options stream, streamPattern and assign",
        ),
        ("source.startingOffsets", "soonest", "startingOffsets"),
        ("spark.config", {"spark.master": "x"}, '"spark.master" is set by the job'),
        ("decode.key", {"format": "variant", "envelope": "debezium"}, "key: an envelope is for values"),
        (
            "source",
            {"subscribe": "orders"},
            'unknown key "source.subscribe": it is one of Kafka\'s connector, use stream',
        ),
        ("source.failOnDataLoss", False, "use onDataLoss, which is fail (as true) or skip (as false)"),
        ("source.view", "table", "source.view is for the mode batch: remove it"),
        ("source.columns", ["offset", "vaule"], "there is no column 'vaule' (did you mean value?)"),
        ("name", "", "a name must have 1 to 200 printable characters"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_key_and_the_remedy(path: str, value: object, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_job(changed(path, value))
    assert raised.value.code == "configuration_invalid"
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_limits_of_an_epoch_are_refused_in_a_batch_run_and_left_out_when_a_run_chooses_it(tmp_path: Path) -> None:
    source = {"stream": "orders", "maxOffsetsPerTrigger": 5, "endingOffsets": {"orders": {"0": 9}}}
    document = {**LEAST, "source": source, "mode": "batch", "checkpoint": None}
    with pytest.raises(UsageError, match=r"source\.maxOffsetsPerTrigger is for the modes continuous and availableNow"):
        parse_job(document)
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({**LEAST, "source": source, "interval": "5s"}))
    job = from_file(file, {"mode": "batch"})
    assert "maxOffsetsPerTrigger" not in job.source_keys.options()
    assert job.source_keys.options()["endingOffsets"] == '{"orders": {"0": 9}}'
    assert from_file(file, {"name": "other"}).source_keys.options()["maxOffsetsPerTrigger"] == "5"


def test_two_targets_need_two_names() -> None:
    target = {"format": "delta", "path": "lake/other"}
    with pytest.raises(UsageError, match='two targets have the name "table"'):
        parse_job({**LEAST, "targets": [*LEAST["targets"], target]})
    parse_job({**LEAST, "targets": [*LEAST["targets"], {**target, "name": "other"}]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"format": "delta", "path": "lake/a"}, {"format": "parquet", "path": "lake/../lake/a/"}),
        ({"format": "delta", "path": "s3://lake/a"}, {"format": "delta", "path": "s3://lake/a/"}),
        ({"format": "iceberg", "path": "sales.a"}, {"format": "iceberg", "path": "sales.a", "catalog": "default"}),
    ],
)
def test_a_table_is_written_by_one_target(one: dict[str, Any], other: dict[str, Any]) -> None:
    document = {**LEAST, "decode": {"onDecodeError": "dlq"}, "targets": [one], "deadLetters": other}
    refused = r'the targets "table" and "dead-letters" are the same table, .*a table of its own'
    with pytest.raises(UsageError, match=refused):
        parse_job(document)
    parse_job({**document, "deadLetters": {**other, "path": f"{other['path'].rstrip('/')}b"}})


def test_a_registry_has_its_login_by_reference_only() -> None:
    def with_registry(**keys: object) -> dict[str, Any]:
        return changed("decode.value", {"format": "avro", "schema": {"registry": {"url": "http://r:8081", **keys}}})

    parse_job(with_registry(username="a", passwordVariable="P"))
    for keys, sentence in (
        ({"url": "http://u:p@r:8081"}, "it has a login in it"),
        ({"url": "ftp://r"}, "it must be a URL"),
        ({"username": "a"}, "username goes together with"),
        ({"username": "a", "passwordVariable": "P", "tokenVariable": "T"}, "not several"),
        ({"password": "x"}, 'unknown key "decode.value.schema.registry.password"'),
    ):
        with pytest.raises(UsageError, match=sentence):
            parse_job(with_registry(**keys))


def test_a_name_of_an_expectation_is_used_once() -> None:
    document = changed("expectations", {"expect": {"a": "x"}, "expect_or_drop": {"a": "y"}})
    with pytest.raises(UsageError, match='the name "a" is in expect and in expect_or_drop'):
        parse_job(document)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a", "must be a mapping with the keys of a job, not a list"),
        ("", "must be a mapping with the keys of a job, and it is empty"),
        ("orders", "must be a mapping with the keys of a job, not 'orders'"),
        ("a: [", "is not valid YAML"),
        ("name: a\nname: b", 'key "name" is given twice'),
    ],
)
def test_what_is_not_a_job_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        from_file(file)
    with pytest.raises(UsageError, match="cannot read the job file"):
        from_file(tmp_path / "missing.yaml")


def test_the_json_schema_has_every_key_as_files_have_it() -> None:
    schema = job_schema()
    assert {"name", "source", "decode", "expectations", "sql", "targets", "deadLetters", "checkpoint"} <= set(
        schema["properties"]
    )
    assert schema["additionalProperties"] is False
    source = schema["$defs"]["Source"]["properties"]
    assert "maxOffsetsPerTrigger" in source
    assert source["stream"]["description"].startswith("one stream")
    assert source["maxBytesPerTrigger"]["description"].endswith(
        "default: 512MiB; with maxOffsetsPerTrigger no limit; not in the mode batch"
    )
    assert source["tableKey"]["description"].endswith("default: key; only in the mode batch")
    kinds = schema["$defs"]["Table"]["properties"]["format"]["enum"]
    assert kinds == ["delta", "parquet", "iceberg"]


STREAM: dict[str, Any] = {"format": "bascule", "stream": "large"}


def test_streams_are_targets_of_one_sink() -> None:
    letters = {**STREAM, "stream": "dead"}
    job = parse_job({**changed("targets", [STREAM]), "deadLetters": letters, "decode": {"onDecodeError": "dlq"}})
    assert [each.stream for each in job.streams] == ["large", "dead"]
    assert [each.name for each in job.every_target] == ["stream", "dead-letters"]
    sink = JobSink.of(parse_job({**changed("targets", [STREAM]), "sink": {"onOversize": "drop", "namespace": "n"}}))
    options = sink.parsed(stream="large")
    assert (options.sink_id, options.namespace, options.on_oversize, options.on_invalid) == (
        "orders",
        "n",
        "drop",
        "fail",
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (changed("targets", [{**STREAM, "stream": "orders"}]), "the job would read what it writes"),
        (changed("targets", [STREAM, {**STREAM, "name": "b"}]), 'two targets are the stream "large"'),
        (changed("sink", {"onInvalid": "drop"}), "sink is for streams, and no target is one: remove it"),
        ({**changed("targets", [STREAM]), "sink": {"onInvalid": "dlq"}}, "sink.onInvalid"),
        (changed("targets", [{**STREAM, "path": "x"}]), 'unknown key "targets.0.path"'),
        (changed("targets", [{"format": "bascule"}]), 'the key "targets.0.stream" is missing'),
        (changed("targets", [{**STREAM, "partitions": 0}]), "targets.0.partitions"),
        (changed("targets.0.format", "parquett"), "it must be one of delta, parquet, iceberg, bascule"),
    ],
)
def test_a_stream_that_cannot_be_a_target_is_refused(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_job(document)
    assert sentence in str(raised.value)


def test_a_job_holds_records_under_its_name_and_not_without_reports() -> None:
    document = changed("source.retentionHold", True)
    options = parse_job(document).source_keys.parsed()
    assert (options.hold, options.consumer_group) == (True, None)
    with pytest.raises(UsageError, match=r"source\.retentionHold needs reports: remove report: false"):
        parse_job({**document, "report": False})
    with pytest.raises(UsageError, match="retentionHold"):
        parse_job({**{key: value for key, value in document.items() if key != "checkpoint"}, "mode": "batch"})


def test_null_without_quotes_is_the_word() -> None:
    """YAML reads it as no value."""
    assert parse_job(changed("decode.onDecodeError", None)).decode.on_decode_error == "null"
    assert parse_job(changed("decode.onDecodeError", "null")).decode.on_decode_error == "null"
