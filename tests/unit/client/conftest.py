"""Retries without pauses: these tests check what is retried, not when."""

import pytest


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bascule.client._core.connection_pool._FIRST_PAUSE", 0.0)
    monkeypatch.setattr("bascule.client._core.consumer_core._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("bascule.client._core.membership._JOIN_PAUSE", 0.01)
