"""A nats-server in operator mode: the broker is a user of an account, by its credentials file."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.server.nats_jwt import Operator
from tests.integration.server.process import started
from tests.integration.server.test_nats_access import LIMIT_S, nats_server, stores


async def test_a_user_with_a_credentials_file_ingests(tmp_path: Path) -> None:
    operator = Operator()
    async with nats_server(tmp_path, operator.configuration()) as address:
        credentials = operator.user().write(tmp_path / "broker.creds")
        settings = {"nats__servers": [f"nats://{address}"], "nats__credentials_file": str(credentials)}
        await stores(tmp_path, f"nats://{address}", operator.user().options(), **settings)


@pytest.mark.parametrize("case", ["of another operator", "expired"])
async def test_a_rejected_user_is_reported_without_secrets(tmp_path: Path, case: str) -> None:
    operator = Operator()
    other = Operator().user() if case == "of another operator" else operator.user(expires_in_s=-60)
    credentials = str(other.write(tmp_path / "broker.creds"))
    async with (
        nats_server(tmp_path, operator.configuration()) as address,
        started(tmp_path, nats__servers=[f"nats://{address}"], nats__credentials_file=credentials) as broker,
    ):
        async with asyncio.timeout(LIMIT_S):
            while "bascule.nats.error" not in broker.log_file.read_text():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        said = broker.log_file.read_text()
        assert "uthoriz" in said
        assert "nats.connected" not in said
        assert other.key.seed not in said
        assert other.jwt not in said
