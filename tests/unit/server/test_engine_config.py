"""Settings converted into documents for the parts of a broker."""

import asyncio
import json
from pathlib import Path

import pytest
from bascule import config
from bascule._seam import LogLine, NatsChange, PartitionChange
from bascule._text import without_credentials
from bascule.errors import StateError, UsageError
from bascule.server import Broker, engine_config, nats_access, reports


def load(**flags: object) -> config.Settings:
    return config.load(None, {key.replace("__", "."): value for key, value in flags.items()}, {})


def test_the_advertised_address_defaults_to_the_bound_one() -> None:
    assert engine_config.advertised(load(broker__host="127.0.0.1"), 5) == ("127.0.0.1", 5)
    assert engine_config.advertised(load(broker__host="0.0.0.0"), 5) == ("localhost", 5)
    given = load(broker__host="0.0.0.0", broker__advertised_host="b.example", broker__advertised_port=7)
    assert engine_config.advertised(given, 5) == ("b.example", 7)


def test_the_broker_id_is_the_configured_one_else_the_one_of_the_directory_else_a_new_one(tmp_path: Path) -> None:
    assert engine_config.broker_id(load(data_dir=tmp_path, broker__broker_id="b")) == "b"
    first, second = engine_config.broker_id(load(data_dir=tmp_path)), engine_config.broker_id(load(data_dir=tmp_path))
    assert first != second
    assert len(first) == 22
    assert first.isalnum()
    (tmp_path / "bascule.json").write_text(json.dumps({"broker_id": "kept"}))
    assert engine_config.broker_id(load(data_dir=tmp_path)) == "kept"


@pytest.mark.parametrize("damage", ["", "[]", "{}", "\0"])
def test_an_unreadable_manifest_is_left_for_the_data_plane_to_refuse(tmp_path: Path, damage: str) -> None:
    (tmp_path / "bascule.json").write_text(damage)
    assert len(engine_config.broker_id(load(data_dir=tmp_path))) == 22


def test_the_directory_of_a_liftbridge_server_is_rejected_and_not_changed(tmp_path: Path) -> None:
    for name in ("raft/snapshots", "streams/orders/0"):
        (tmp_path / name).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        StateError, match=r"contains files of a Liftbridge server .*: name an empty directory"
    ) as refused:
        asyncio.run(Broker(load(data_dir=tmp_path, nats__standalone=True)).start())
    assert refused.value.code == "data_directory_unusable"
    assert str(tmp_path) in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before
    # a directory with a manifest of Bascule is accepted, whatever other files it has
    (tmp_path / "bascule.json").write_text("{}")
    engine_config.refuse_foreign_files(load(data_dir=tmp_path))


def test_secrets_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    nats = load(nats__user="u", nats__password_file=tmp_path / "password").nats
    assert nats_access.nats_settings(nats, ["nats://h"], 9, is_own=False) == {
        "servers": ["nats://h"], "pending_bytes": 9, "jetstream_ack_prefixes": ["_INBOX."], "user": "u",
        "password": "hunter2",
    }  # fmt: skip
    assert without_credentials("nats://u:p@s@host:4222") == "nats://host:4222"
    assert without_credentials("host:4222") == "host:4222"
    assert without_credentials("nats://u:a://b@host:4222", "…") == "nats://…@host:4222"


def test_the_data_plane_gets_the_allowed_ack_inboxes() -> None:
    nats = load(nats__ack_inbox_prefixes=["_INBOX.", "acks."]).nats
    assert nats_access.nats_settings(nats, [], 9, is_own=False)["ack_inbox_prefixes"] == ["_INBOX.", "acks."]


@pytest.mark.parametrize("prefix", ["", "$JS.ACK.", "$SYS."])
def test_acks_of_jetstream_publishers_do_not_reach_the_subjects_of_nats(prefix: str) -> None:
    with pytest.raises(UsageError, match="is not allowed: an ack must not reach"):
        load(nats__jetstream_ack_prefixes=["_INBOX.", prefix])


def test_messages_may_stay_longer_in_the_brokers_own_server() -> None:
    assert nats_access.nats_settings(load().nats, [], 9, is_own=True)["pause_ms"] == nats_access.OWN_PAUSE_MS
    theirs = load(nats__config=Path("mine.conf")).nats
    assert "pause_ms" not in nats_access.nats_settings(theirs, [], 9, is_own=True)


def test_a_secret_that_cannot_be_read_names_the_setting_and_the_file(tmp_path: Path) -> None:
    nats = load(nats__token_file=tmp_path / "none").nats
    with pytest.raises(UsageError, match=r"nats\.token_file .*none"):
        nats_access.nats_settings(nats, [], 0, is_own=False)


def test_reports_do_not_overwrite_fields_of_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(10, "bascule"):
        reports.on_log(LogLine(30, "log.recovery", "cut", b'{"message": "x", "stream": "s"}'))
        reports.on_partition(PartitionChange(7, 2, "failed", "writes are refused", b""))
        reports.on_nats(NatsChange("connected", "connected", b"not json", 1))
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert fields == [
        {"message_": "x", "stream": "s"},
        {"incarnation": 7, "partition": 2},
        {"count": 1, "detail": "not json"},
    ]
    assert [record.levelno for record in caplog.records] == [30, 40, 20]
