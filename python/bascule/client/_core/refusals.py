"""What is refused, in one sentence each: the value, the bound, and what helps. The same whether the client finds it or
the command line does. No I/O.
"""

import re
from typing import Final

from bascule.errors import BrokerError, StateError, error

__all__ = ["beyond_end", "incorrect_offset", "no_partition", "no_stream", "of_record", "of_size"]

_LARGER: Final = re.compile(r"received message larger than max \((\d+) vs\. (\d+)\)")
"""How a broker refuses what is larger than any message may be."""
_APPEND: Final = "failed to append: "
_DECRYPTED: Final = "cannot be decrypted"
"""In what a reader is told, which says everything."""


def no_stream(name: str) -> StateError:
    """There is no such stream."""
    text = f'stream "{name}" does not exist: create it, or see bascule stream list'
    return StateError("stream_not_found", text, {"stream": name})


def no_partition(stream: str, number: int, count: int) -> StateError:
    """The stream has `count` partitions, and that is none of them."""
    text = f'stream "{stream}" has no partition {number}: its partitions are numbered 0 to {count - 1}'
    return StateError("partition_not_found", text, {"stream": stream, "partition": number})


def beyond_end(who: str, stream: str, partition: int, position: int, end: int) -> BrokerError:
    """A remembered position lies beyond the end of the partition.

    Args:
        who: whose position it is, e.g. `cursor "report"`.
        stream: name of the stream.
        partition: number.
        position: offset of the next record to be read.
        end: the high watermark.
    """
    text = (
        f'{who} stands at offset {position} of partition {partition} of stream "{stream}", beyond its end, {end}: the '
        "broker lost records, or an older copy of its data was restored; check what is missing, then set the position, "
        'or read on with auto_offset_reset "earliest", "latest" or "new"'
    )
    details = {"stream": stream, "partition": partition, "position": position, "high_watermark": end}
    return error("offset_out_of_range", text, details)


def of_size(failure: BrokerError) -> BrokerError | None:
    """The refusal of a message that the broker did not read to its end; `None` = it is another one."""
    found = _LARGER.search(str(failure))
    if found is None:
        return None
    size, most = map(int, found.groups())
    text = f"a message of {size} bytes is too large: the broker takes {most}, its setting limits.message_bytes"
    return error("too_large", text, {**failure.details, "bytes": size, "limit": most})


def of_record(failure: BrokerError, stream: str, most: int | None) -> BrokerError | None:
    """The refusal of a record for its size, or for what its stream lacks; `None` = it is another one.

    Args:
        failure: of a publish.
        stream: name of the stream.
        most: bytes of a message that the stream takes; `None` = not told.
    """
    details = {**failure.details, "stream": stream}
    match failure.code:
        case "too_large":
            size = details.get("bytes")
            which = "a record" if size is None else f"a record of {size} bytes, envelope included,"
            bound = "" if most is None else f", which takes {most}"
            details |= {} if most is None else {"limit": most}
            text = f'{which} is too large for stream "{stream}"{bound}: bascule stream edit {stream} '
            return error(failure.code, f"{text}--max-record-bytes lets it take more", details)
        case "not_enough_replicas":
            text = f'stream "{stream}" takes no records, {str(failure).removeprefix(_APPEND)}: '
            return error(failure.code, f"{text}bascule stream edit {stream} --min-isr asks for fewer", details)
        case "encryption_key_missing" if _DECRYPTED not in str(failure):
            text = f'stream "{stream}" takes no records, for the broker lacks the key to encrypt them: '
            return error(failure.code, f"{text}configure its master key in encryption.keys", details)
        case _:
            return None


def incorrect_offset(stream: str, partition: int, expected: int, following: int | None) -> BrokerError:
    """The record would get another offset than `expected`: `following`, if that is known."""
    said = "" if following is None else f", which is {following}"
    text = f'expected_offset {expected} is not the next offset of partition {partition} of stream "{stream}"{said}'
    details = {"stream": stream, "partition": partition, "expected_offset": expected, "next_offset": following}
    return error("incorrect_offset", f"{text}: look at what came before it, then publish again", details)
