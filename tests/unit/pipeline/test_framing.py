"""The frame of values whose schema is in a registry, with bytes written by hand."""

import pytest
from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.framing import split_frame, split_index_path


def test_a_frame_is_a_zero_byte_and_a_big_endian_id() -> None:
    assert split_frame(bytes.fromhex("00 00 00 01 02") + b"rest") == (258, b"rest")
    assert split_frame(bytes.fromhex("00 ff ff ff ff")) == (2**32 - 1, b"")


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\1x", b'{"a":1}'])
def test_what_is_not_framed_is_an_error(value: bytes) -> None:
    with pytest.raises(RecordError) as raised:
        split_frame(value)
    assert raised.value.kind == "NotFramed"


@pytest.mark.parametrize(
    ("written", "path"),
    [("00", (0,)), ("02 00", (0,)), ("02 02", (1,)), ("04 02 00", (1, 0)), ("02 90 03", (200,))],
)
def test_an_index_path_is_counted_zigzag_varints(written: str, path: tuple[int, ...]) -> None:
    assert split_index_path(bytes.fromhex(written) + b"m") == (path, b"m")


@pytest.mark.parametrize("written", ["", "02", "04 02", "02 01", "01", "ff ff ff ff ff ff 01", "80 80 80 80 80", "42"])
def test_an_index_path_that_is_cut_off_or_out_of_range_is_an_error(written: str) -> None:
    with pytest.raises(RecordError) as raised:
        split_index_path(bytes.fromhex(written))
    assert raised.value.kind == "NotFramed"
