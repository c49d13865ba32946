"""The command line without a broker: errors, help and arguments."""

import json
import re
from pathlib import Path
from typing import Any, NoReturn

import bascule
import pytest
import typer
from bascule import config, errors
from bascule.cli import main
from bascule.cli.app import app, end_with
from bascule.cli.commands.serve import write_ready_file
from bascule.server import Broker

from tests.certificates import Authority
from tests.unit.cli.commands import COMMANDS


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.delenv("BASCULE_URL", raising=False)


@pytest.mark.parametrize(
    "code",
    [
        "internal", "invalid_argument", "stream_not_found", "permission_denied", "unavailable", "stream_exists",
        "outcome_unknown",
    ],
)  # fmt: skip
def test_an_error_is_one_line_with_its_exit_code(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> NoReturn:
        raise errors.error(code, "something\nis wrong")

    assert end_with(fail, "bascule", with_codes=True) == errors.error(code).exit_code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"bascule: something is wrong ({code})\n")
    end_with(fail, "liftbridge")
    assert capsys.readouterr().err == "liftbridge: something is wrong\n"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (typer.Abort(), 1, "bascule: nothing was done\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "bascule: /x: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "bascule: No space left on device\n"),
    ],
)
def test_other_ends(raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> NoReturn:
        raise raised

    assert end_with(fail, "bascule") == code
    assert capsys.readouterr().err == said


def test_a_defect_is_not_hidden() -> None:
    def fail() -> NoReturn:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        end_with(fail, "bascule")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bogus"], "No such command 'bogus'."),
        (["stream", "list", "-o", "bogus"], "Invalid value for '--output' / '-o': 'bogus' is not one of 'table'"),
        (["stream", "create"], "Missing argument 'name'."),
        (["serve", "--log-level", "loud"], "log.level = 'loud' (flag): input should be"),
        (["serve", "--config", "/nowhere.yaml"], "cannot read the configuration file /nowhere.yaml"),
        (["stream", "list", "--url", "http://x"], '"http://x" is not the URL of a broker'),
        (["stream", "create", "x", "--retention-max-age", "soon"], "--retention-max-age: 'soon' is not a duration"),
        (["stream", "create", "x", "--segment-max-bytes", "big"], "--segment-max-bytes: 'big' is not a size"),
        (["consume", "x", "--start", "sometime"], '--start "sometime" is not one of: earliest, latest, new, an offset'),
        (["consume", "x", "--stop", "sometime"], '--stop "sometime" is not one of: latest, an offset'),
        (["produce", "x", "v", "--header", "nope"], '--header "nope" is not NAME=VALUE'),
        (["produce", "x", "v", "--partition", "1", "--partition-by", "key"], "--partition, --partition-by and --keep"),
        (["produce", "x", "v", "--format", "raw", "--key-separator", ":"], "--key-separator works with --format"),
        (["consume", "x", "--subject", "a", "--subject", "b"], "--subject is given 2 times: it takes one value"),
        (["consume", "x", "-n", "1", "--count", "2"], "--count is given 2 times"),
        (["produce", "x", "v", "--keep", "time"], "--keep works with --format csv, json, ndjson, not with text"),
        (
            ["produce", "x", "v", "--rate", "0"],
            "--rate 0 is below 0.001. See bascule produce --help (invalid_argument)",
        ),
        (["consume", "x", "--partition", "0", "--all-partitions"], "--partition and --all-partitions cannot be"),
        (["consume", "x", "--cursor", "c", "--reverse"], "--cursor and --reverse cannot be combined"),
        (["consume", "x", "--for", "soon"], "--for: 'soon' is not a duration"),
        (["consume", "x", "--idle", "0s"], '--idle "0s" must be above 0'),
        (["stream", "edit", "x"], "there is nothing to change: use one of --retention-max-age"),
        (["stream", "edit", "x", "--reset", "codec"], '--reset "codec" is not one of auto-pause-'),
        (
            ["stream", "edit", "x", "--codec", "gzip"],
            "'gzip' is not one of 'none', 'lz4', 'zstd'. See bascule stream edit --help",
        ),
        (["stream", "edit", "x", "--min-isr", "2", "--reset", "min-isr"], "--min-isr and --reset min-isr cannot be"),
        (["stream", "create", "x", "--segment-max-age", "9" * 30], "is too long for a duration"),
        (["group", "reset", "g", "--to", "new"], '--to "new" is not a position'),
        (["group", "reset", "g", "--to", "x"], '--start "x" is not one of'),
        (["cursor", "set", "c", "x", "many"], 'offset "many" is not a whole number'),
        (["stream", "list", "--url", "liftbridge://a", "--context", "b"], "--url and --context cannot be combined"),
        (["completion", "tcsh"], "tcsh"),
        (["produce", "x", "v", "--key", "k", "--key-separator", ":"], "--key and --key-separator cannot be combined"),
        (["stream", "create", "x", "--partitions", "0"], "--partitions 0 is below 1"),
        (["serve", "--port", "70000"], "--port 70000 is above 65535"),
        (["consume", "x", "--rate", "fast"], '--rate "fast" is not a number'),
        (["stream", "crate"], "'create'? See bascule stream --help (invalid_argument)"),
        (["produce", "x", "--file", "/nowhere"], "file '/nowhere' does not exist."),
        (["config", "check", "/nowhere.yaml"], "cannot read the configuration file"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.startswith("bascule: ")
    assert captured.err.count("\n") == 1


def commands_of(group: typer.Typer) -> list[list[str]]:
    found = [[command.name or getattr(command.callback, "__name__", "")] for command in group.registered_commands]
    for part in group.registered_groups:
        assert part.typer_instance is not None
        found += [[str(part.name), *name] for name in commands_of(part.typer_instance)]
    return found


def test_every_command_is_known() -> None:
    assert sorted(commands_of(app)) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_two_examples_that_parse(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    examples = re.findall(rf"bascule {' '.join(command)}\b", text.split("Examples:")[1].split("\n\n")[0])
    assert len(examples) == 2


GROUPS = [[], *([name] for name in sorted({command[0] for command in COMMANDS if len(command) > 1}))]


@pytest.mark.parametrize("command", [*COMMANDS, *GROUPS])
def test_help_is_not_cut_at_80_columns(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found: Any = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    words = set(re.split(r"[\s,]+", text))
    names = {name for item in found.params if item.param_type_name == "option" for name in item.opts}
    names |= {name for item in found.params for name in item.secondary_opts}
    assert names | set(getattr(found, "commands", {})) <= words
    assert "..." not in re.sub(r"(\[ARGS\]|\[values\]|values)\.{3}", "", text)
    assert text.count("…") == "".join(item.help or "" for item in found.params).count("…")
    about = text.split("Examples:")
    examples = about[1].split("\n\n")[0].splitlines() if about[1:] else []
    assert all(len(line) <= 80 for line in text.splitlines() if line not in examples)


@pytest.mark.parametrize("arguments", [[], ["stream"], ["config"]])
def test_without_a_command_the_help_is_shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "Commands" in captured.out + captured.err
    assert "bascule: " not in captured.err


def test_config_show_says_where_values_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("broker.port: 7\nnats.password: hunter2\n")
    monkeypatch.setenv("BASCULE_BROKER__DRAIN_MS", "8")
    assert main(["config", "show", "-c", str(file), "--origin", "-o", "json"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(text)}
    assert rows["broker.port"] == (7, str(file))
    assert rows["broker.drain_ms"] == (8, "environment variable BASCULE_BROKER__DRAIN_MS")
    assert rows["log.level"] == ("info", "default")


@pytest.mark.parametrize("form", ["table", "json", "yaml", "csv"])
@pytest.mark.parametrize("more", [[], ["--origin"]])
def test_config_show_shows_no_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, more: list[str]
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("nats: {servers: ['nats://hunter2:s3cr3t@one:4222', 'nats://tok3n@two', 'nats://three:1']}\n")
    assert main(["config", "show", "-c", str(file), "-o", form, *more]) == 0
    shown = capsys.readouterr().out
    assert not [secret for secret in ("hunter2", "s3cr3t", "tok3n") if secret in shown]
    assert "nats://**********@one:4222" in shown
    assert "nats://three:1" in shown


@pytest.mark.parametrize("settings", ["{}", "nats: {standalone: true, port: 4333}"])
def test_what_config_show_prints_as_yaml_is_a_configuration(
    settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(settings)
    assert main(["config", "show", "-c", str(file), "-o", "yaml"]) == 0
    file.write_text(capsys.readouterr().out)
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", [["serve", "--config"], ["config", "show", "-c"], ["config", "check"]])
@pytest.mark.parametrize(
    "text",
    ["listen: 127.0.0.1:9292", "nats.embedded: true\nlogging: {level: debug}", "Port: 1\nhost: h\nbroker.drain_ms: 5"],
)
def test_a_liftbridge_configuration_is_recognized(
    command: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(text)
    assert main([*command, str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file} is a configuration of Liftbridge: start it with liftbridge -c {file}" in said
    assert f"bascule config import {file} (unknown setting" in said


@pytest.mark.parametrize(
    "text", ["broker.prot: 1", "broker: {drain_ms: 5}\nport: 1", "nats: {servers: [], x: 1}", "- 1"]
)
def test_an_error_in_a_bascule_configuration_is_not_taken_for_liftbridge(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(text)
    assert main(["config", "check", str(file)]) == 2
    assert "Liftbridge" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "content", "said"),
    [
        ("tls: {certificate_file: FILE, key_file: FILE}", None, "cannot read tls.certificate_file FILE: No such file"),
        ("tls: {certificate_file: FILE, key_file: FILE}", "x", "tls.certificate_file FILE cannot be used: it and tls."),
        ("nats: {tls: {ca_file: FILE}}", "x", "nats.tls.ca_file FILE cannot be used: it contains no certificate"),
        ("nats: {token_file: FILE}", "", "nats.token_file FILE cannot be used: it is empty"),
        ("nats: {standalone: true, config: FILE}", None, "cannot read nats.config FILE"),
        (
            "encryption: {keys: {a: FILE}}",
            "eA==",
            "encryption.keys.a FILE cannot be used: it must contain 16 or 32 bytes",
        ),
    ],
)
def test_config_check_reads_the_files_that_settings_name(
    setting: str, content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named, file = tmp_path / "named.txt", tmp_path / "b.yaml"
    if content is not None:
        named.write_text(content)
    file.write_text(setting.replace("FILE", str(named)))
    assert main(["config", "check", str(file)]) == 2
    captured = capsys.readouterr()
    assert said.replace("FILE", str(named)) in captured.err
    assert captured.out == ""


def test_config_check_reads_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("broker")
    policy, file = tmp_path / "policy.yaml", tmp_path / "b.yaml"
    file.write_text(
        f"tls: {{certificate_file: {pair.cert}, key_file: {pair.key}, client_auth: required, client_ca_file:"
        f" {authority.ca}}}\naccess: {{policy_file: {policy}}}\n"
    )
    policy.write_text("rules: [{clients: a, allow: Publish, resource: orders}]\n")
    assert main(["config", "check", str(file)]) == 2
    said = f'the policy {policy} cannot be used: rules.0: unknown key "resource"; did you mean "resources"?'
    assert said in capsys.readouterr().err
    policy.write_text("rules: [{clients: a, allow: Publish, resources: orders}]\n")
    assert main(["config", "check", str(file)]) == 0


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bascule {bascule.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", bascule.__version__)


def test_the_ready_file_is_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ready.json"
    broker = Broker(config.load(None, {}, {}))
    broker.address, broker.nats_url, broker.http_address = "127.0.0.1:1", "nats://127.0.0.1:2", "127.0.0.1:3"
    broker.iggy_address, broker.iggy_http_address, broker.ready_seconds = "127.0.0.1:4", "127.0.0.1:5", 0.12345
    broker.iggy_quic_address = "127.0.0.1:6"
    write_ready_file(path, broker)
    write_ready_file(path, broker)
    document = json.loads(path.read_text())
    assert document.pop("pid") > 0
    addresses = {"address": "127.0.0.1:1", "nats_url": "nats://127.0.0.1:2", "http_address": "127.0.0.1:3"}
    addresses |= {"iggy_address": "127.0.0.1:4", "iggy_http_address": "127.0.0.1:5", "iggy_quic_address": "127.0.0.1:6"}
    assert document == {**addresses, "ready_seconds": 0.123}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "command",
    [["serve", "-d", ""], ["serve", "--ready-file", ""], ["log", "verify", ""], ["config", "check", " "]],
)
def test_an_empty_path_is_not_the_current_directory(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    assert 'empty path; write "." for the current directory' in capsys.readouterr().err


def test_a_tilde_that_no_shell_expanded_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "broker.yaml").write_text("data_dir: ~/data\n")
    assert main(["config", "check", "~/broker.yaml", "--output", "json"]) == 0
    assert str(tmp_path / "broker.yaml") in capsys.readouterr().out
