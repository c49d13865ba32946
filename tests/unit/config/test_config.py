"""Settings: sources, precedence, units, errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bascule import config
from bascule._units import parse_bytes, parse_duration_ms
from bascule.errors import UsageError
from pydantic import ValidationError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(UsageError) as raised:
        config.load(write(tmp_path, text), environment={})
    assert raised.value.code == "configuration_invalid"
    return str(raised.value)


def test_defaults_bind_to_loopback() -> None:
    settings = config.load(environment={})
    assert settings.broker.host == "127.0.0.1"
    assert settings.nats.host == "127.0.0.1"
    assert settings.streams.durability == "disk"


def test_a_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, "broker: {port: 1, drain_ms: 1, runtime_threads: 1}\n")
    environment = {"BASCULE_BROKER__PORT": "2", "BASCULE_BROKER__DRAIN_MS": "2", "HOME": "/"}
    resolved = config.resolve(file, {"broker.port": 3, "broker.host": None}, environment)
    broker = resolved.settings.broker
    assert (broker.port, broker.drain_ms, broker.runtime_threads, broker.host) == (3, 2, 1, "127.0.0.1")
    assert resolved.origins["broker.port"] == "flag"
    assert resolved.origins["broker.drain_ms"] == "environment variable BASCULE_BROKER__DRAIN_MS"
    assert resolved.origins["broker.runtime_threads"] == str(file)
    assert "broker.host" not in resolved.origins


def test_dots_and_nesting_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, "streams: {segment_max_bytes: 1MiB}\nstreams.codec: zstd\nbroker.port: 7\n")
    settings = config.load(file, environment={})
    assert (settings.streams.segment_max_bytes, settings.streams.codec, settings.broker.port) == (1 << 20, "zstd", 7)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30s", 30_000), ("1h30m", 5_400_000), ("250ms", 250), ("7d", 604_800_000), ("1.5s", 1500), ("42", 42)],
)
def test_durations_have_human_units(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-1s", "1h later"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("64MiB", 64 << 20),
        ("1GB", 10**9),
        ("512", 512),
        ("1.5 KiB", 1536),
        ("10b", 10),
        ("10G", 10 << 30),
        ("2k", 2048),
        ("3Mi", 3 << 20),
        ("1TB", 10**12),
    ],
)
def test_sizes_have_human_units(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "5 MoB", "-1", "1e3"])
def test_an_invalid_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    assert re.fullmatch(
        r'unknown setting "broker\.prot" \(.*broker\.yaml\); did you mean "broker\.port"\?',
        refusal(tmp_path, "broker: {prot: 1}\n"),
    )


def test_an_unknown_section_is_refused_with_where_it_came_from(tmp_path: Path) -> None:
    said = refusal(tmp_path, "streams: {retention: {max: {bytes: 5}}}\n")
    assert re.match(r'unknown setting "streams\.retention" \(.*broker\.yaml\)', said)
    with pytest.raises(UsageError, match=r'"cursor" \(environment variable BASCULE_CURSOR__PARTITIONS\)'):
        config.load(environment={"BASCULE_CURSOR__PARTITIONS": "1"})


def test_an_unknown_variable_is_refused_too() -> None:
    with pytest.raises(UsageError, match=r'unknown setting "data_dri" \(environment variable BASCULE_DATA_DRI\)'):
        config.load(environment={"BASCULE_DATA_DRI": "x"})


def test_variables_of_clients_are_not_settings() -> None:
    assert config.load(environment={"BASCULE_URL": "liftbridge://x"}) == config.load(environment={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broker: {port: 70000}\n", r"broker\.port = 70000 \(.*yaml\): input should be less than or equal to 65535"),
        ("streams: {durability: paper}\n", r"streams\.durability = 'paper' \(.*\): input should be 'disk' or 'memory'"),
        ("limits: {grace_ms: soon}\n", r"limits\.grace_ms = 'soon' \(.*\): 'soon' is not a duration: write a number.*"),
        ("- 1\n", r".*yaml must contain a mapping of settings, not list"),
        ("a: [\n", r".*yaml is not valid YAML: .*"),
        ("broker.port: 1\nbroker.port.deep: 2\n", r'"broker\.port\.deep" is both a value and a section'),
        ("nats: {servers: []}\n", r"nats.servers is empty and nats.standalone is false: .*"),
    ],
)
def test_an_invalid_setting_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert re.fullmatch(message, refusal(tmp_path, text).replace("nats = {'servers': []} (default): ", "")), message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tls: {key_file: a}\nlog: {}\ntls: {min_version: '1.2'}\n",
            r'.*yaml is not valid YAML: key "tls" is given twice, first in line 1; again in line 3, column 1',
        ),
        ("nats:\n  user: a\n  user: b\n", r'.*key "user" is given twice, first in line 2; again in line 3, column 3'),
        ("tls.min_version: '1.3'\ntls: {min_version: '1.2'}\n", r'"min_version" is given twice, dotted and .*'),
        ("tls: {min_version: '1.3'}\ntls.min_version: '1.2'\n", r'"tls.min_version" is given twice, dotted and .*'),
        ("log: {level: info}\nlog.level: debug\n", r'"log.level" is given twice, dotted and as a section.*'),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_lines(tmp_path: Path, text: str, message: str) -> None:
    assert re.fullmatch(message, refusal(tmp_path, text)), refusal(tmp_path, text)


def test_merge_keys_may_be_overridden(tmp_path: Path) -> None:
    text = "streams: &base {codec: lz4, durability: disk}\nstreams.codec: zstd\n"
    assert "given twice" in refusal(tmp_path, text)
    merged = "broker: {<<: {host: h, port: 1}, port: 2}\n"
    settings = config.load(write(tmp_path, merged), environment={})
    assert (settings.broker.host, settings.broker.port) == ("h", 2)


@pytest.mark.parametrize(
    "text",
    [
        "streams: {retention_max_age_ms: 12:30:00}\n",
        "broker: {port: 2:30}\n",
        "streams: {retention_max_messages: 1:0}\n",
    ],
)
def test_text_with_colons_is_not_a_number(tmp_path: Path, text: str) -> None:
    value = text.partition(": ")[2].partition(": ")[2].rstrip("}\n")
    assert f"= '{value}' (" in refusal(tmp_path, text)


def test_numbers_with_a_leading_zero_are_decimal(tmp_path: Path) -> None:
    settings = config.load(write(tmp_path, "broker: {port: 0x10}\nlimits: {calls: 1_000}\n"), environment={})
    assert (settings.broker.port, settings.limits.calls) == (16, 1000)
    # `010` means ten, not eight.
    assert config.load(write(tmp_path, "broker: {port: 010}\n"), environment={}).broker.port == 10


def test_a_path_that_is_empty_is_refused_and_a_tilde_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "data_dir = '' (" in refusal(tmp_path, "data_dir: ''\n")
    assert 'empty path; write "." for the current directory' in refusal(tmp_path, "data_dir: ''\n")
    assert "no such user" in refusal(tmp_path, "data_dir: ~nobody-of-that-name/data\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = config.load(write(tmp_path, "data_dir: ~/data\nencryption: {keys: {a: ~/key}}\n"), environment={})
    assert settings.data_dir == tmp_path / "data"
    assert settings.encryption.keys == {"a": tmp_path / "key"}
    assert config.load(environment={"BASCULE_DATA_DIR": "~/x"}).data_dir == tmp_path / "x"
    assert config.load(environment={}, flags={"data_dir": Path()}).data_dir == Path()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot read the configuration file /nowhere/x.yaml: No such file"):
        config.load(Path("/nowhere/x.yaml"), environment={})


def test_a_secret_never_shows(tmp_path: Path) -> None:
    assert "hunter2" not in refusal(tmp_path, "nats: {password: [hunter2]}\n")
    settings = config.load(write(tmp_path, "nats: {password: hunter2}\n"), environment={})
    assert "hunter2" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "text",
    [
        'nats: {password: "hunter2\n',
        "nats: {password: *hunter2}\n",
        "nats: {password: !hunter2 x}\n",
        "nats: {password: !hunter2!x y}\n",
        "nats:\n  password: hunter2: x\n",
        "nats: {password: @hunter2}\n",
        "password: hunter2\x00\n",
        "password: hunter2\nport: 0x_\n",
        "password: hunter2\nsince: 2001-99-99\n",
    ],
)
def test_errors_do_not_quote_an_invalid_file(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in refusal(tmp_path, text)


def test_errors_name_the_position_in_an_invalid_file(tmp_path: Path) -> None:
    said = refusal(tmp_path, "nats:\n  password: a: b\n")
    assert said.endswith("is not valid YAML: mapping values are not allowed here in line 2, column 14")


def test_settings_cannot_be_changed() -> None:
    settings = config.load(environment={})
    with pytest.raises(ValidationError, match="frozen"):
        settings.broker.port = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("secret", ["1e5", "yes", "0123", "null", "[x]", "2026-11-22"])
def test_a_variable_of_a_text_setting_is_text_as_it_is(secret: str) -> None:
    environment = {"BASCULE_NATS__PASSWORD": secret, "BASCULE_NATS__USER": secret, "BASCULE_DATA_DIR": secret}
    found = config.load(None, {}, environment)
    assert found.nats.password is not None
    assert (found.nats.password.get_secret_value(), found.nats.user, str(found.data_dir)) == (secret, secret, secret)


def test_a_broker_has_one_identity_and_no_secret_is_shown() -> None:
    flags = {"nats.user": "u", "nats.password": "hunter2", "nats.token_file": "/t"}
    with pytest.raises(UsageError, match=r"nats\.user and nats\.token_file are set: .* keep one") as raised:
        config.load(None, flags, {})
    assert "hunter2" not in str(raised.value)


def test_every_setting_is_described_or_obvious() -> None:
    schema = config.Settings.model_json_schema()
    for name, section in schema["$defs"].items():
        for key, field in section["properties"].items():
            assert field.get("description"), f"{name}.{key} has no description"


def test_known_keys_are_the_leaves() -> None:
    keys = config.known_keys()
    assert keys[0] == "data_dir"
    assert {"broker.port", "nats.servers", "limits.queue_bytes", "log.format"} <= set(keys)
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "url",
    ["nats://h", "nats://h:4222", "tls://nats.example.org:4443", "h:4222", "h", "nats://u:p@h:1", "nats://[::1]:1"],
)
def test_addresses_of_nats_servers(url: str) -> None:
    assert config.load(None, {"nats.servers": [url]}, {}).nats.servers == (url,)


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "nats://", "nats://:4222", "nats://h:x", "nats://h:70000", "a b", "h:0"]
)
def test_an_invalid_address_of_a_nats_server_is_rejected(url: str) -> None:
    with pytest.raises(UsageError, match=r"nats\.servers.*not the URL of a NATS server"):
        config.load(None, {"nats.servers": [url]}, {})


@pytest.mark.parametrize(
    ("flags", "current"),
    [
        ({}, "liftbridge"),
        ({"encryption.keys": {"a": "/a"}}, "a"),
        ({"encryption.keys": {"a": "/a", "b": "/b"}, "encryption.current": "b"}, "b"),
        ({"encryption.keys": {"a": "/a"}, "encryption.current": "liftbridge"}, "liftbridge"),
    ],
)
def test_the_master_key_for_new_data_is_the_named_one_else_the_only_one(flags: dict[str, object], current: str) -> None:
    assert config.load(None, flags, {}).encryption.current_key == current


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encryption: {keys: {a: /a, b: /b}}", "there are several keys"),
        ("encryption: {keys: {a: /a}, current: c}", 'names "c", which is not one of: a, liftbridge'),
        ("encryption: {keys: {liftbridge: /a}}", "stands for the variable LIFTBRIDGE_ENCRYPTION_KEY"),
    ],
)
def test_master_keys_that_contradict_each_other_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_the_page_of_settings_is_up_to_date() -> None:
    root = Path(__file__).resolve().parents[3]
    checked = subprocess.run(
        [sys.executable, root / "specs/generate_settings.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    page = (root / "docs/reference/configuration.md").read_text()
    assert not [key for key in config.known_keys() if f"`{key}`" not in page]
