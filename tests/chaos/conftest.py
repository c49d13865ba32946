"""Options of the chaos tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--kills N`: how often the broker is killed."""
    parser.addoption("--kills", type=int, default=20, help="kill -9 cycles of the broker under load (default 20)")
    parser.addoption("--seed", type=int, default=1, help="seed of the moments of the kills (default 1)")
