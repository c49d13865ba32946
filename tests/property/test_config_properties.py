"""Settings for all inputs: parsers fail only with their own errors."""

import contextlib

from bascule import config
from bascule._units import parse_bytes, parse_duration_ms
from bascule.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(config.known_keys()) | st.text(max_size=12)


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = parse_duration_ms(text)
        assert isinstance(found, int)
        assert found >= 0


@given(st.text())
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = parse_bytes(text)
        assert isinstance(found, int)
        assert found >= 0


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_durations_add_up(number: int, unit: str) -> None:
    once = parse_duration_ms(f"{number}{unit}")
    assert isinstance(once, int)
    assert parse_duration_ms(f"{number}{unit}{number}{unit}") == 2 * once


@given(st.dictionaries(keys, yaml_values, max_size=4))
def test_any_document_is_settings_or_one_usage_error(document: dict[str, object]) -> None:
    with contextlib.suppress(UsageError):
        config.combine([config.Layer("anything", document)])


@given(st.text(min_size=1), st.text())
def test_any_variable_is_settings_or_one_usage_error(name: str, value: str) -> None:
    with contextlib.suppress(UsageError):
        config.load(environment={f"BASCULE_{name}": value})
