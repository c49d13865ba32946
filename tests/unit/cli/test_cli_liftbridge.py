"""The `liftbridge` command: flags, keys and addresses of Liftbridge, translated."""

import re
from pathlib import Path

import pytest
from bascule.cli.liftbridge import command
from bascule.cli.liftbridge.command import parse
from bascule.cli.liftbridge.config import translate
from bascule.cli.liftbridge.keys import KEYS
from bascule.cli.liftbridge.values import address, boolean, duration_ms, integer, names
from bascule.config import Settings, known_keys
from bascule.errors import UsageError

SPECIFIED = """
listen host port data.dir metadata.cache.max.age logging.level logging.recovery logging.raft logging.nats
batch.max.messages batch.max.time tls.key tls.cert tls.client.auth.enabled tls.client.auth.ca tls.client.authz.enabled
tls.client.authz.model tls.client.authz.policy nats.servers nats.user nats.password nats.tls.cert nats.tls.key
nats.tls.ca nats.embedded nats.embedded.config streams.retention.max.bytes streams.retention.max.messages
streams.retention.max.age streams.cleaner.interval streams.segment.max.bytes streams.segment.max.age
streams.compact.enabled streams.compact.max.goroutines streams.auto.pause.time
streams.auto.pause.disable.if.subscribers streams.concurrency.control streams.encryption clustering.server.id
clustering.namespace clustering.raft.snapshot.retain clustering.raft.snapshot.threshold clustering.raft.cache.size
clustering.raft.bootstrap.seed clustering.raft.bootstrap.peers clustering.raft.max.quorum.size
clustering.replica.max.lag.time clustering.replica.max.leader.timeout clustering.replica.max.idle.wait
clustering.replica.fetch.timeout clustering.min.insync.replicas clustering.replication.max.bytes
activity.stream.enabled activity.stream.publish.timeout activity.stream.publish.ack.policy cursors.stream.partitions
cursors.stream.replication.factor cursors.stream.auto.pause.time groups.consumer.timeout groups.coordinator.timeout
telemetry.enabled telemetry.interval.seconds
"""


def settings(tmp_path: Path, text: str = "", **environment: str) -> Settings:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(text)
    return translate(file, environment, {}).settings


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(UsageError) as raised:
        settings(tmp_path, text)
    assert raised.value.code == "configuration_invalid"
    return str(raised.value).replace(str(tmp_path), "")


def test_every_key_of_liftbridge_is_known_and_every_target_is_ours() -> None:
    assert list(KEYS) == SPECIFIED.split()
    assert {key.setting for key in KEYS.values() if key.setting} <= set(known_keys())


def test_every_key_has_an_effect_or_a_reason() -> None:
    silent = {name for name, key in KEYS.items() if not (key.setting or key.reason or key.idle)}
    resolved_together = {"listen", "host", "port"}
    true_anyway = {"clustering.raft.bootstrap.seed", "telemetry.enabled", "telemetry.interval.seconds"}
    assert silent == resolved_together | true_anyway


@pytest.mark.parametrize(
    ("text", "bind", "shown"),
    [
        ("", ("0.0.0.0", 9292), ("localhost", 9292)),
        ("port: 7", ("0.0.0.0", 7), ("localhost", 7)),
        ("host: h", ("h", 9292), ("h", 9292)),
        ("host: h\nport: 7", ("h", 7), ("h", 7)),
        ("listen: l:1", ("l", 1), ("l", 1)),
        ("listen: l:1\nhost: h\nport: 7", ("l", 1), ("h", 7)),
        ("listen: l:1\nport: 7", ("l", 1), ("l", 1)),
        ("listen: '[::1]:1'", ("::1", 1), ("::1", 1)),
        ("listen: l:0\nhost: h\nport: 0", ("l", 0), ("h", 0)),
    ],
)
def test_addresses(tmp_path: Path, text: str, bind: tuple[str, int], shown: tuple[str, int]) -> None:
    broker = settings(tmp_path, text).broker
    assert (broker.host, broker.port) == bind
    assert (broker.advertised_host, broker.advertised_port) == shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("listen: 0.0.0.0:19292\nhost: b.example", ("b.example:9292", "port 19292 (listen, ", "set port to 19292")),
        ("listen: 0.0.0.0:19292\nhost: b.example\nport: 19292", ()),
        ("listen: 0.0.0.0:9292\nhost: b.example", ()),
        ("listen: 0.0.0.0:19292", ()),
        ("host: b.example", ()),
    ],
)
def test_an_address_where_nobody_listens_is_reported_with_both_ports(
    tmp_path: Path, given: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(given)
    notes = [note for note in translate(file, {}, {}).notes if "without port" in note]
    assert len(notes) == bool(words)
    assert all(word in notes[0] for word in words)


@pytest.mark.parametrize(
    "text",
    [
        "streams: {retention.max: {bytes: 1024}}",
        "streams.retention.max.bytes: 1024",
        "streams: {retention: {max: {bytes: '1024'}}}",
        "STREAMS: {Retention.Max: {BYTES: 1024}}",
    ],
)
def test_dots_nesting_and_case_are_the_same(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text).streams.retention_max_bytes == 1024


def test_a_whole_configuration(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """
        data.dir: /var/lib/lb
        logging.level: warn
        batch.max.messages: 100
        nats: {embedded: true, embedded.config: /etc/nats.conf, user: u, password: p}
        streams: {retention.max.age: 24h, cleaner.interval: 1m, segment.max: {bytes: 65536, age: 1h}}
        clustering: {server.id: a, namespace: ns, raft.bootstrap.seed: true, replication.max.bytes: 2048}
        streams.auto.pause: {time: 1m, disable.if.subscribers: true}
        streams.concurrency.control: true
        activity.stream: {enabled: true, publish: {timeout: 2s, ack.policy: leader}}
        cursors.stream: {partitions: 3, replication.factor: 2, auto.pause.time: 0}
        groups: {consumer.timeout: 10s, coordinator.timeout: 20s}
        telemetry: {enabled: true, interval.seconds: 5}
        """,
    )
    assert (found.streams.auto_pause_time_ms, found.streams.auto_pause_disable_if_subscribers) == (60_000, True)
    assert found.streams.concurrency_control
    assert (found.activity.enabled, found.activity.publish_timeout_ms) == (True, 2_000)
    assert (found.cursors.partitions, found.cursors.auto_pause_time_ms) == (3, 0)
    assert (found.groups.consumer_timeout_ms, found.groups.coordinator_timeout_ms) == (10_000, 20_000)
    assert (str(found.data_dir), found.log.level) == ("/var/lib/lb", "warning")
    assert (found.nats.standalone, str(found.nats.config), found.nats.user) == (True, "/etc/nats.conf", "u")
    assert found.nats.password is not None
    assert found.nats.password.get_secret_value() == "p"
    streams = found.streams
    assert (streams.retention_max_age_ms, streams.cleaner_interval_ms) == (86_400_000, 60_000)
    assert (streams.segment_max_bytes, streams.segment_max_age_ms) == (65536, 3_600_000)
    assert (streams.batch_max_messages, streams.max_record_bytes) == (100, 2048)
    assert (found.broker.broker_id, found.broker.namespace) == ("a", "ns")


def test_defaults_are_those_of_liftbridge(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert str(found.data_dir) == "/tmp/liftbridge/liftbridge-default"
    assert found.nats.servers == ("nats://127.0.0.1:4222",)
    assert found.streams.retention_max_age_ms == 168 * 3_600_000
    assert found.streams.segment_max_bytes == 268_435_456
    assert str(settings(tmp_path, "clustering.namespace: n").data_dir) == "/tmp/liftbridge/n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lisen: a:1", 'Unknown configuration setting "lisen" (/liftbridge.yaml); did you mean "listen"?'),
        ("nats: {server: x}", 'Unknown configuration setting "nats.server" (/liftbridge.yaml); did you mean'),
        ("logging.level: loud", 'Invalid logging.level setting "loud" (/liftbridge.yaml): expected debug, info'),
        ("listen: 9292", 'Invalid listen setting "9292" (/liftbridge.yaml): expected host:port'),
        ("listen: ':9292'", "it has no host"),
        ("listen: a:b", 'Invalid listen setting "a:b"'),
        ("port: 70000", 'Invalid port setting "70000"'),
        ("nats.embedded: maybe", "expected true or false"),
        ("streams.retention.max.age: week", "expected a duration"),
        ("streams.segment.max.age: 10ms", "expected at least 1s"),
        ("tls.key: k", "tls.key (/liftbridge.yaml): tls.cert is not set"),
        ("tls.cert: c", "tls.cert (/liftbridge.yaml): tls.key is not set"),
        ("tls: {cert: c, key: k, client.authz.enabled: true}", "tls.client.authz.policy is not set"),
        ("tls: {cert: c, key: k, client.authz: {enabled: true, policy: p}}", "set tls.client.auth.enabled to true"),
        ("tls.client.auth.enabled: true", "tls.client.auth.enabled is true without TLS"),
        ("clustering.raft.bootstrap.peers: [a, b]", "is rejected: clusters are not supported yet"),
        ("nats.tls.cert: /c.pem", "nats.tls.cert and nats.tls.key go together"),
        ("streams.retention.max.bytes: 0x", "expected a whole number"),
        ("activity.stream.publish.ack.policy: some", "expected none, leader or all"),
        ("clustering.namespace: a b", "(clustering.namespace, /liftbridge.yaml): it is part of NATS subjects"),
        ("clustering.namespace: 'a.>'", "(clustering.namespace, /liftbridge.yaml): it is part of NATS subjects"),
        ("clustering.namespace: ../../etc", "(clustering.namespace, /liftbridge.yaml): it is part of NATS subjects"),
        ("clustering.server.id: '*'", "(clustering.server.id, /liftbridge.yaml): it is part of NATS subjects"),
        ("nats.password: [hunter2]", 'Invalid nats.password setting "…"'),
        ("- 1", "Failed to load configuration file: "),
    ],
)
def test_invalid_and_unsupported_keys_are_reported(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "streams.compact.enabled: false", "streams.encryption: 'false'", "streams.auto.pause.time: 0",
        "clustering.min.insync.replicas: 1", "tls.client.auth.enabled: false", "batch.max.time: 10ms",
        "activity.stream.enabled: false", "cursors.stream.partitions: 0",
    ],
)  # fmt: skip
def test_disabling_a_feature_that_is_already_off_is_accepted(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text) == settings(tmp_path)


SECURE = """
tls:
  cert: c.pem
  key: c.key
  client.auth: {enabled: true, ca: ca.pem}
  client.authz: {enabled: true, model: model.conf, policy: policy.csv}
"""


def test_tls_and_authorization_mean_what_they_say(tmp_path: Path) -> None:
    found = settings(tmp_path, SECURE)
    assert (found.tls.certificate_file, found.tls.key_file) == (Path("c.pem"), Path("c.key"))
    assert (found.tls.client_auth, found.tls.client_ca_file) == ("required", Path("ca.pem"))
    assert (found.access.policy_file, found.access.model_file) == (Path("policy.csv"), Path("model.conf"))
    assert found.tls.min_version == "1.2", "as Liftbridge"


def test_authorization_has_its_own_switch_and_unused_keys_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(SECURE.replace("authz: {enabled: true", "authz: {enabled: false"))
    translated = translate(file, {}, {})
    assert translated.settings.tls.client_auth == "required"
    assert translated.settings.access.policy_file is None
    assert [note.split(" ")[0] for note in translated.notes] == ["tls.client.authz.policy", "tls.client.authz.model"]
    assert all("has no effect: tls.client.authz.enabled is not true" in note for note in translated.notes)


@pytest.mark.parametrize("secret", ["1e5", "yes", "0123", "null", "2026-11-22", "1_000", "a: b", "[x]", " x "])
def test_a_variable_is_text_as_it_is(secret: str) -> None:
    found = translate(None, {"LIFTBRIDGE_NATS_USER": secret, "LIFTBRIDGE_NATS_PASSWORD": secret}, {}).settings.nats
    assert found.password is not None
    assert (found.user, found.password.get_secret_value()) == (secret, secret)


@pytest.mark.parametrize("secret", ["1e5", "yes", "0123", "2026-11-22", "1_000", "0x10", "1:30"])
def test_text_in_a_file_needs_no_quotes(tmp_path: Path, secret: str) -> None:
    found = settings(tmp_path, f"nats.user: u\nnats.password: {secret}\n").nats
    assert found.password is not None
    assert found.password.get_secret_value() == secret


def test_what_is_empty_is_not_set(tmp_path: Path) -> None:
    assert settings(tmp_path, "host:\nnats.user: ~\n", LIFTBRIDGE_LISTEN="") == settings(tmp_path)


def said_of(key: str, value: str) -> str:
    """The result of a key as a variable: the notes, or the error."""
    try:
        return " ".join(translate(None, {f"LIFTBRIDGE_{key.upper().replace('.', '_')}": value}, {}).notes)
    except UsageError as refusal:
        return str(refusal)


def test_every_key_can_be_a_variable() -> None:
    values = {"streams.segment.max.age": "1s", "batch.max.time": "0", "listen": "h:1", "nats.servers": "nats://h:1"}
    for key in KEYS:
        said = said_of(key, values.get(key, "1"))
        assert "is not a known setting" not in said
        named = [key, *filter(None, [KEYS[key].setting]), "go together"]
        assert not said or any(name in said for name in named), said


@pytest.mark.parametrize(
    ("text", "standalone", "port", "first_port"),
    [
        ("nats.embedded: true", True, 0, 4222),
        ("nats: {embedded: true, servers: ['nats://127.0.0.1:4333']}", True, 4333, 0),
        ("nats: {embedded: true, servers: [localhost]}", True, 4222, 0),
        ("nats: {embedded: true, embedded.config: /n.conf}", True, 0, 0),
        ("nats.embedded: false", False, 0, 0),
    ],
)
def test_the_embedded_server_listens_where_the_broker_connects(
    tmp_path: Path, text: str, standalone: bool, port: int, first_port: int
) -> None:
    nats = settings(tmp_path, text).nats
    assert nats.standalone is standalone
    assert (nats.host, nats.port, nats.first_port) == ("127.0.0.1", port, first_port)


def test_tls_towards_nats(tmp_path: Path) -> None:
    tls = settings(tmp_path, "nats.tls: {cert: /c.pem, key: /k.pem, ca: /a.pem}").nats.tls
    assert (str(tls.certificate_file), str(tls.key_file), str(tls.ca_file)) == ("/c.pem", "/k.pem", "/a.pem")
    assert tls.required
    assert not settings(tmp_path, "nats.tls.ca: /a.pem").nats.tls.required


def test_min_insync_replicas_are_those_of_streams_without_their_own(tmp_path: Path) -> None:
    assert settings(tmp_path, "clustering.min.insync.replicas: 2").streams.min_isr == 2


def test_keys_without_effect_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("clustering.replica.max.lag.time: 20s\n")
    notes = translate(file, {"LIFTBRIDGE_SERVICE_HOST": "10.0.0.1"}, {}).notes
    assert notes == [
        f"clustering.replica.max.lag.time ({file}) has no effect: a broker that runs alone does not need it",
        "environment variable LIFTBRIDGE_SERVICE_HOST is not a known setting and was ignored",
    ]


def test_a_configuration_of_the_embedded_server_switches_it_on(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("nats: {embedded: false, embedded.config: /n.conf}\n")
    found = translate(file, {}, {})
    assert found.settings.nats.standalone
    assert not found.notes
    (note,) = found.overruled
    assert f"nats.embedded ({file}) is false and has no effect: nats.embedded.config ({file}) wins" in note


FILE_SAYS = "nats: {embedded: false, embedded.config: /n.conf}\n"
FILE_CONFIGURES = "nats.embedded.config: /n.conf\n"
SWITCHED_OFF = {"LIFTBRIDGE_NATS_EMBEDDED": "false"}
CONFIGURED = {"LIFTBRIDGE_NATS_EMBEDDED_CONFIG": "/n.conf"}


@pytest.mark.parametrize(
    ("text", "variables", "flags", "standalone"),
    [
        (FILE_CONFIGURES, {}, [], True),
        (FILE_CONFIGURES, {}, ["--embedded-nats=false"], False),
        (FILE_CONFIGURES, SWITCHED_OFF, [], False),
        (FILE_CONFIGURES, SWITCHED_OFF, ["-e"], True),
        ("", CONFIGURED, ["-e=false"], False),
        ("", {**CONFIGURED, **SWITCHED_OFF}, [], True),
        ("nats.embedded: false\n", CONFIGURED, [], True),
        ("nats.embedded: false\n", {}, ["--nc", "/n.conf"], True),
        (FILE_SAYS, SWITCHED_OFF, ["--nc", "/n.conf"], True),
        (FILE_SAYS, {}, ["--embedded-nats=false", "--nc", "/n.conf"], True),
    ],
)
def test_of_the_embedded_server_and_its_configuration_the_higher_source_wins(
    tmp_path: Path, text: str, variables: dict[str, str], flags: list[str], standalone: bool
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    found = translate(file, variables, parse(flags)[1])
    nats = found.settings.nats
    assert (nats.standalone, nats.config) == (standalone, Path("/n.conf") if standalone else None)
    loser = {True: "nats.embedded", False: "nats.embedded.config"}[standalone]
    assert [note.split(" ")[0] for note in found.overruled] in ([], [loser])
    assert standalone or len(found.overruled) == 1, "a key without effect is reported"


def test_the_port_of_a_kubernetes_service_is_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("port: 1234\n")
    found = translate(file, {"LIFTBRIDGE_PORT": "tcp://10.0.0.1:9292"}, {})
    assert found.settings.broker.port == 1234
    assert found.notes == [
        "environment variable LIFTBRIDGE_PORT=tcp://10.0.0.1:9292 belongs to a Kubernetes service and was ignored"
    ]


@pytest.mark.parametrize(
    ("flags", "embedded"),
    [
        (["-e"], True),
        (["-embedded-nats"], True),
        (["--embedded-nats=true"], True),
        (["-e=true"], True),
        (["--embedded-nats=false"], False),
        (["-embedded-nats=0", "-raft-bootstrap-seed=true"], False),
        (["-raft-bootstrap-seed", "-d", "x"], False),
    ],
)
def test_switches_take_a_value_behind_an_equals_sign(flags: list[str], embedded: bool) -> None:
    _, given = parse(flags)
    assert translate(None, {}, given).settings.nats.standalone is embedded


def test_a_switch_takes_no_other_value() -> None:
    _, given = parse(["--embedded-nats=perhaps"])
    with pytest.raises(UsageError, match=r'Invalid nats\.embedded setting "perhaps"'):
        translate(None, {}, given)


def test_a_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("logging.level: error\nport: 1\nclustering.server.id: file\n")
    environment = {"LIFTBRIDGE_LOGGING_LEVEL": "warn", "LIFTBRIDGE_PORT": "2", "HOME": "/"}
    found = translate(file, environment, {"port": "3"}).settings
    assert (found.broker.port, found.log.level, found.broker.broker_id) == (3, "warning", "file")


def test_a_missing_file_is_fatal() -> None:
    with pytest.raises(UsageError, match=r"^Failed to load configuration file: .*/nowhere: No such file"):
        translate(Path("/nowhere"), {}, {})


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ("-d dir -p 1 -e -l debug", {"data.dir": "dir", "port": "1", "nats.embedded": True, "logging.level": "debug"}),
        ("--data-dir dir --port=1", {"data.dir": "dir", "port": "1"}),
        ("-data-dir dir -port 1 -embedded-nats", {"data.dir": "dir", "port": "1", "nats.embedded": True}),
        ("-n a,b -n c", {"nats.servers": ["a,b", "c"]}),
        ("-nats-servers a", {"nats.servers": ["a"]}),
        ("--nc f", {"nats.embedded.config": "f"}),
        ("--id i --ns n", {"clustering.server.id": "i", "clustering.namespace": "n"}),
        ("-raft-bootstrap-seed", {"clustering.raft.bootstrap.seed": True}),
        ("--raft-bootstrap-peers a --raft-bootstrap-peers b", {"clustering.raft.bootstrap.peers": ["a", "b"]}),
    ],
)
def test_flags_and_their_spellings(arguments: str, flags: dict[str, object]) -> None:
    assert command.parse(arguments.split()) == (None, flags)


@pytest.mark.parametrize("flag", ["-c", "--config", "-config"])
def test_the_file_is_named_by_a_flag(flag: str) -> None:
    assert command.parse([flag, "x.yaml"]) == (Path("x.yaml"), {})


def test_servers_come_as_lists_and_with_commas(tmp_path: Path) -> None:
    found = translate(None, {}, {"nats.servers": ["nats://a:1, nats://b:2", "nats://c:3"]}).settings
    assert found.nats.servers == ("nats://a:1", "nats://b:2", "nats://c:3")
    assert settings(tmp_path, "nats.servers: [nats://a:1]").nats.servers == ("nats://a:1",)


def test_an_embedded_configuration_implies_embedded() -> None:
    assert translate(None, {}, {"nats.embedded.config": "f"}).settings.nats.standalone


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--bogus"], 2, "liftbridge: unrecognized arguments: --bogus\n"),
        (["-p"], 2, "liftbridge: argument --port/-p/-port: expected one argument\n"),
        (["-c", "/nowhere"], 2, "liftbridge: Failed to load configuration file: .*\n"),
        (["-raft-bootstrap-peers", "b"], 2, "liftbridge: clustering.raft.bootstrap.peers \\(flag\\) is rejected: .*\n"),
        (["--version"], 0, ""),
        (["-help"], 0, ""),
    ],
)
def test_ends_of_the_command(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIFTBRIDGE_PORT", raising=False)
    assert command.main(arguments) == code
    captured = capsys.readouterr()
    assert re.fullmatch(said, captured.err)
    assert bool(captured.out) == (code == 0)


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [("500ms", 500), ("15s", 15_000), ("1h30m", 5_400_000), ("1.5s", 1500), (2_000_000, 2), ("2000000", 2), (0, 0),
     (1, 1), ("100us", 1)],
)  # fmt: skip
def test_durations(value: object, milliseconds: int) -> None:
    assert duration_ms(value) == milliseconds


@pytest.mark.parametrize(
    ("parse", "value"),
    [(duration_ms, "-1s"), (duration_ms, True), (duration_ms, "1 s"), (integer, "1.5"), (integer, True), (boolean, 2),
     (names, ""), (names, []), (address, "a:99999"), (address, "::1:5")],
)  # fmt: skip
def test_invalid_values_are_rejected(parse: object, value: object) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"expected|has no host"):
        parse(value)
