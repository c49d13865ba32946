"""Credentials of the broker for NATS, and the address of its own nats-server."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nats
import pytest
from bascule.server.nats_binary import find_nats_server

from tests.integration.faults.process import Served, run, serving
from tests.integration.server.process import Process, call, end_offset, launch, started

LIMIT_S = 60.0
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
"""A key pair from the public documentation of nkeys."""


@asynccontextmanager
async def nats_server(directory: Path, configuration: str) -> AsyncGenerator[str]:
    """A separate nats-server on a free port of 127.0.0.1. Yields its URL without a scheme."""
    file = directory / "theirs.conf"
    file.write_text(f"host: 127.0.0.1\nport: -1\n{configuration}")
    process = await asyncio.create_subprocess_exec(
        find_nats_server(), "-c", file, "--ports_file_dir", directory, stdout=subprocess.DEVNULL
    )
    ports = directory / f"nats-server_{process.pid}.ports"
    try:
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(OSError, ValueError):
                    document: Any = json.loads(ports.read_bytes())
                    break
                assert process.returncode is None, "nats-server does not start"
                await asyncio.sleep(0.01)
        yield str(document["nats"][0]).rpartition("://")[2]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def publish_until_stored(broker: Process, url: str, **options: Any) -> None:
    """Publish with another client until the broker has stored a message: it may still be subscribing."""
    client = await nats.connect(url, connect_timeout=10, **options)
    try:
        async with broker.channel() as channel, asyncio.timeout(LIMIT_S):
            while await end_offset(channel, "s") == 0:
                await client.publish("s", b"x")
                await client.flush()
                await asyncio.sleep(0.02)
    finally:
        await client.close()


async def stores(tmp_path: Path, url: str, options: dict[str, Any], **settings: Any) -> None:
    """Check that a broker with these settings stores messages published at `url`."""
    async with started(tmp_path, **settings) as broker:
        async with broker.channel() as channel:
            await call(channel, "CreateStream", name="s", subject="s")
        await publish_until_stored(broker, url, **options)


@pytest.mark.parametrize("password", ["1e5", "yes", "a b'c\"d", "pässwort"])
async def test_user_and_password(tmp_path: Path, password: str) -> None:
    users = f"authorization: {{ user: u, password: {json.dumps(password, ensure_ascii=False)} }}"
    async with nats_server(tmp_path, users) as address:
        servers = [f"nats://{address}"]
        options = {"user": "u", "password": password}
        await stores(tmp_path, servers[0], options, nats__servers=servers, nats__user="u", nats__password=password)


async def test_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    async with nats_server(tmp_path, "authorization: { token: s3cret }") as address:
        servers = [f"nats://{address}"]
        token_file = str(tmp_path / "token")
        await stores(tmp_path, servers[0], {"token": "s3cret"}, nats__servers=servers, nats__token_file=token_file)


async def test_an_nkey(tmp_path: Path) -> None:
    (tmp_path / "seed").write_text(f"{SEED}\n")
    users = f"authorization: {{ users: [ {{ nkey: {PUBLIC} }}, {{ user: p, password: p }} ] }}"
    async with nats_server(tmp_path, users) as address:
        servers = [f"nats://{address}"]
        options = {"user": "p", "password": "p"}
        await stores(tmp_path, servers[0], options, nats__servers=servers, nats__nkey_file=str(tmp_path / "seed"))


CERTIFICATES = Path(__file__).parent / "nats_tls"
THEIR_TLS = (
    f'cert_file: "{CERTIFICATES}/server.pem", key_file: "{CERTIFICATES}/server.key", ca_file: "{CERTIFICATES}/ca.pem"'
)


def trusting(*, certificate: bool) -> ssl.SSLContext:
    """Options with which a publisher connects to such a server."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    if certificate:
        context.load_cert_chain(str(CERTIFICATES / "client.pem"), str(CERTIFICATES / "client.key"))
    return context


@pytest.mark.parametrize("first", [False, True], ids=["after INFO", "handshake first"])
async def test_tls(tmp_path: Path, first: bool) -> None:
    more = ", handshake_first: true" if first else ""
    async with nats_server(tmp_path, f"tls {{ {THEIR_TLS}{more} }}") as address:
        settings: dict[str, Any] = {"nats__servers": [f"tls://{address}"]}
        settings |= {"nats__tls__ca_file": str(CERTIFICATES / "ca.pem"), "nats__tls__handshake_first": first}
        options = {"tls": trusting(certificate=False), "tls_handshake_first": first}
        await stores(tmp_path, f"tls://{address}", options, **settings)


async def test_mutual_tls(tmp_path: Path) -> None:
    async with nats_server(tmp_path, f"tls {{ {THEIR_TLS}, verify: true }}") as address:
        settings: dict[str, Any] = {"nats__servers": [f"nats://{address}"], "nats__tls__required": True}
        files = {"ca_file": "ca.pem", "certificate_file": "client.pem", "key_file": "client.key"}
        settings |= {f"nats__tls__{key}": str(CERTIFICATES / name) for key, name in files.items()}
        await stores(tmp_path, f"tls://{address}", {"tls": trusting(certificate=True)}, **settings)


@pytest.mark.parametrize(
    ("configuration", "settings"),
    [
        (f"tls {{ {THEIR_TLS} }}", {"nats__tls__ca_file": str(CERTIFICATES / "other.pem")}),
        (f"tls {{ {THEIR_TLS}, verify: true }}", {"nats__tls__ca_file": str(CERTIFICATES / "ca.pem")}),
        ("", {"nats__tls__required": True}),
    ],
    ids=["another authority", "no certificate of ours", "a server without TLS"],
)
async def test_failed_tls_is_reported_and_nothing_is_sent_in_plain_text(
    tmp_path: Path, configuration: str, settings: dict[str, Any]
) -> None:
    async with (
        nats_server(tmp_path, configuration) as address,
        started(tmp_path, nats__servers=[f"nats://{address}"], **settings) as broker,
    ):
        async with asyncio.timeout(LIMIT_S):
            while "bascule.nats.error" not in broker.log_file.read_text():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        assert "nats.connected" not in broker.log_file.read_text()


async def test_a_key_of_another_certificate_ends_the_start(tmp_path: Path) -> None:
    files = {"certificate_file": "client.pem", "key_file": "server.key"}
    settings = {f"nats__tls__{key}": str(CERTIFICATES / name) for key, name in files.items()}
    life = await launch(tmp_path, nats__servers=["nats://127.0.0.1:1"], **settings)
    assert await asyncio.wait_for(life.process.wait(), LIMIT_S) == 2
    last = life.log_file.read_text().strip().splitlines()[-1]
    assert "nats.tls.certificate_file" in last
    assert "does not belong to its first certificate" in last


async def test_a_server_that_refuses_is_logged_once_and_not_at_every_attempt(tmp_path: Path) -> None:
    async with nats_server(tmp_path, "authorization: { user: u, password: right }") as address:
        settings = {"nats.servers": [f"nats://{address}"], "nats.user": "u", "nats.password": "wrong-one"}
        async with started(tmp_path, **{key.replace(".", "__"): value for key, value in settings.items()}) as broker:
            async with asyncio.timeout(LIMIT_S):
                while "uthoriz" not in broker.log_file.read_text():  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            # Some more attempts of both connections, four a second.
            await asyncio.sleep(2)
            warnings = [line for line in broker.lines() if line["target"] == "bascule.nats.error"]
            assert 1 <= len(warnings) <= 2, warnings
            assert "wrong-one" not in broker.log_file.read_text()


@pytest.mark.parametrize(
    ("setting", "content", "said"),
    [
        ("nats.token_file", None, "No such file or directory; name a file that the broker's user can read"),
        ("nats.token_file", " \n", "it is empty: write the secret into it"),
        ("nats.nkey_file", PUBLIC, "it must contain the seed of a user's nkey"),
        ("nats.credentials_file", SEED, "it must contain a user's JWT and nkey seed"),
        ("nats.tls.ca_file", "no certificate", "it contains no certificate in PEM form"),
    ],
)
async def test_a_file_that_cannot_be_used_ends_the_start_with_setting_file_and_remedy(
    tmp_path: Path, setting: str, content: str | None, said: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    settings = {"nats__servers": ["nats://127.0.0.1:1"], setting.replace(".", "__"): str(file)}
    life = await launch(tmp_path, **settings)
    assert await asyncio.wait_for(life.process.wait(), LIMIT_S) == 2
    last = life.log_file.read_text().strip().splitlines()[-1]
    assert setting in last
    assert str(file) in last
    assert said in last


def listeners(pid: int) -> set[str]:
    """Local addresses on which a process listens, as printed by the kernel."""
    inodes = set[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].rpartition(":")[0])
    return found


LOOPBACK = "0100007F"


@pytest.mark.parametrize("configuration", [None, "max_payload: 65536\n", "cluster { }\nlogtime: true\n"])
async def test_the_default_is_loopback(tmp_path: Path, configuration: str | None) -> None:
    settings: dict[str, Any] = {"nats__standalone": True}
    if configuration is not None:
        (tmp_path / "mine.conf").write_text(configuration)
        settings["nats__config"] = str(tmp_path / "mine.conf")
    async with started(tmp_path, **settings) as broker:
        assert listeners(broker.addresses["nats_pid"]) == {LOOPBACK}
        assert broker.addresses["nats_url"].startswith("nats://127.0.0.1:")


async def test_the_servers_own_file_sets_its_address(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (tmp_path / "mine.conf").write_text(f'listen: "127.0.0.1:{port}"\nauthorization: {{ user: u, password: p }}\n')
    settings = {"nats__standalone": True, "nats__config": str(tmp_path / "mine.conf")}
    url = f"nats://127.0.0.1:{port}"
    async with started(tmp_path, nats__user="u", nats__password="p", **settings) as broker:
        assert broker.addresses["nats_url"] == url
        assert listeners(broker.addresses["nats_pid"]) == {LOOPBACK}
        async with broker.channel() as channel:
            await call(channel, "CreateStream", name="s", subject="s")
        await publish_until_stored(broker, url, user="u", password="p")


@pytest.mark.parametrize("password", ["p", "a b/c@d:e"])
async def test_credentials_in_the_url(tmp_path: Path, password: str) -> None:
    users = f"authorization: {{ user: u, password: {json.dumps(password)} }}"
    async with nats_server(tmp_path, users) as address:
        options = {"user": "u", "password": password}
        servers = [f"nats://u:{quote(password, safe='')}@{address}"]
        await stores(tmp_path, f"nats://{address}", options, nats__servers=servers)
    held = f"u:{quote(password, safe='')}"
    assert not [log for log in await asyncio.to_thread(logs, tmp_path) if held in log]


def logs(directory: Path) -> list[str]:
    found = [file.read_text() for file in directory.glob("*.log")]
    assert any(found)
    return found


def serve_arguments(directory: Path, *arguments: str) -> list[str | Path]:
    return ["--port", "0", "-d", directory / "data", "--http", "127.0.0.1:0", *arguments]


def readyz(served: Served) -> tuple[int, str]:
    """Status and text of `/readyz?verbose`."""
    address = json.loads(served.ready_file.read_text())["http_address"]
    try:
        with urllib.request.urlopen(f"http://{address}/readyz?verbose", timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def test_a_refused_login_is_shown_in_all_places(tmp_path: Path) -> None:
    users = "authorization: { user: u, password: right }"
    async with nats_server(tmp_path, users) as address:
        arguments = serve_arguments(tmp_path, "--nats", f"nats://u:wr0ng@{address}")
        with serving(tmp_path, *arguments) as served:
            await asyncio.to_thread(served.wait_ready)
            assert "every user of this machine can see" in served.log
            status, text = await asyncio.to_thread(readyz, served)
            # A broker without NATS serves publishers and readers: it is ready, and reports the missing connection.
            assert status == 200
            assert "[!] nats: ingest waits for NATS: it refused the login" in text
            url = f"liftbridge://{json.loads(served.ready_file.read_text())['address']}"
            shown = await asyncio.to_thread(run, "status", "--url", url)
            assert shown.returncode == 0
            assert "ready, with warnings" in shown.stdout
            assert "ingest waits for NATS: it refused the login" in shown.stdout
            created = await asyncio.to_thread(run, "stream", "create", "s", "--url", url)
            assert created.returncode == 0, created.stderr
            stream = await asyncio.to_thread(run, "stream", "show", "s", "--url", url)
            assert "ingest waits for NATS: it refused the login" in stream.stdout
            ready = next(line for line in served.log.splitlines() if '"message": "ready"' in line)
            assert "it refused the login" in json.loads(ready)["ingest"]
            assert "wr0ng" not in served.log + text + shown.stdout + stream.stdout


async def test_a_refused_login_ends_a_start_that_requires_nats(tmp_path: Path) -> None:
    async with nats_server(tmp_path, "authorization: { user: u, password: right }") as address:
        url = f"nats://u:wr0ng@{address}"
        async with asyncio.timeout(LIMIT_S):
            process = await launch(tmp_path, nats__servers=[url], nats__required=True)
            assert await process.process.wait() == 5
        log = process.log_file.read_text()
        assert f"there is no connection to nats://{address}; ingest waits for NATS: it refused the login" in log
        assert "wr0ng" not in log
