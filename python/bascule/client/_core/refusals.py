"""Errors shared by the client and the command line: one sentence with the value, the bound and the remedy. No I/O."""

from bascule.errors import BrokerError, StateError, error

__all__ = ["beyond_end", "incorrect_offset", "message_too_large_error", "no_partition", "no_stream", "publish_error"]


def no_stream(name: str) -> StateError:
    """The error for a stream that does not exist."""
    text = f'stream "{name}" does not exist: create it, or see bascule stream list'
    return StateError("stream_not_found", text, {"stream": name})


def no_partition(stream: str, number: int, count: int) -> StateError:
    """The error for a partition number that is not below `count`, the stream's number of partitions."""
    text = f'stream "{stream}" has no partition {number}: its partitions are numbered 0 to {count - 1}'
    return StateError("partition_not_found", text, {"stream": stream, "partition": number})


def beyond_end(who: str, stream: str, partition: int, position: int, end: int) -> BrokerError:
    """The error for a remembered position that is beyond the end of the partition.

    Args:
        who: the owner of the position, e.g. `cursor "report"`.
        stream: name of the stream.
        partition: number.
        position: offset of the next record to be read.
        end: the high watermark.
    """
    text = (
        f'{who} is at offset {position} of partition {partition} of stream "{stream}", beyond its end {end}: the '
        "broker lost records, or an older copy of its data was restored; check what is missing, then set the position, "
        'or continue with auto_offset_reset "earliest", "latest" or "new"'
    )
    details = {"stream": stream, "partition": partition, "position": position, "high_watermark": end}
    return error("offset_out_of_range", text, details)


def message_too_large_error(failure: BrokerError) -> BrokerError | None:
    """Describes a message above the broker's size limit; `None` = `failure` has another cause."""
    size, most = failure.details.get("message_bytes"), failure.details.get("limit")
    if size is None or most is None:
        return None
    text = f"a message of {size} bytes is too large: the broker accepts {most} (its setting limits.message_bytes)"
    return error("too_large", text, {**failure.details, "bytes": size, "limit": most})


def publish_error(failure: BrokerError, stream: str, most: int | None) -> BrokerError | None:
    """Describes a record that is too large, or a stream that cannot accept records; `None` = another cause.

    Args:
        failure: the error of a publish.
        stream: name of the stream.
        most: the stream's limit in bytes; `None` = not known.
    """
    details = {**failure.details, "stream": stream}
    match failure.code:
        case "too_large":
            size = details.get("bytes")
            which = "a record" if size is None else f"a record of {size} bytes, envelope included,"
            bound = "" if most is None else f", which accepts {most}"
            details |= {} if most is None else {"limit": most}
            text = f'{which} is too large for stream "{stream}"{bound}: bascule stream edit {stream} '
            return error(failure.code, f"{text}--max-record-bytes raises the limit", details)
        case "not_enough_replicas":
            in_sync, least = details.get("in_sync"), details.get("min_isr")
            known = "" if in_sync is None else f": there are {in_sync}, min ISR is {least}"
            text = f'stream "{stream}" accepts no records, not enough in-sync replicas{known}: '
            return error(failure.code, f"{text}bascule stream edit {stream} --min-isr requires fewer", details)
        case "encryption_key_missing" if "start" not in details:  # for reads the broker names the offset
            text = f'stream "{stream}" accepts no records, because the broker lacks the key to encrypt them: '
            return error(failure.code, f"{text}configure its master key in encryption.keys", details)
        case _:
            return None


def incorrect_offset(stream: str, partition: int, expected: int, following: int | None) -> BrokerError:
    """The error for a record that would get the offset `following` instead of `expected`; `None` = not known."""
    said = "" if following is None else f", which is {following}"
    text = f'expected_offset {expected} is not the next offset of partition {partition} of stream "{stream}"{said}'
    details = {"stream": stream, "partition": partition, "expected_offset": expected, "next_offset": following}
    return error("incorrect_offset", f"{text}: read the records before it, then publish again", details)
