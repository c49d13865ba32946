"""JSON from people and clients: each name once, and numbers that JSON knows."""

import pytest
from bascule._json import load_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 3}', '"a" is given twice in one object'),
        ('[{"x": {"y": 1, "y": 1}}]', '"y" is given twice in one object'),
        ('{"a": NaN}', "NaN is not a valid JSON number"),
        ("[-Infinity]", "-Infinity is not a valid JSON number"),
        ("{", "Expecting property name"),
    ],
)
def test_what_loses_or_invents_a_value_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_json(text)


def test_everything_else_is_read() -> None:
    assert load_json(b'{"a": [1, 2.5, null], "b": {"a": "\\u00e4"}}') == {"a": [1, 2.5, None], "b": {"a": "\u00e4"}}
