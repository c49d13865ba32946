"""Requests about sinks of `bascule.admin.v1`. No I/O."""

from collections.abc import Sequence
from typing import Final

from bascule._admin_pb import message
from bascule.client._core.requests.bounds import INT64_MAX, check_partition
from bascule.errors import UsageError

__all__ = ["delete_sink", "fetch_sinks", "set_sink_owner", "set_sink_quota", "skip_sink"]

MAX_NAMES: Final = 1000
"""Most names of one request."""


def fetch_sinks(names: Sequence[str], namespace: str) -> bytes:
    """A FetchSinksRequest; no names = all.

    Raises:
        UsageError: code `invalid_argument`: more than 1,000 names.
    """
    if isinstance(names, str):
        raise UsageError("invalid_argument", f"names is the text {names[:80]!r}: give a sequence of names")
    if len(names) > MAX_NAMES:
        text = f"names has {len(names)} entries, at most {MAX_NAMES} are accepted: name fewer sinks at once"
        raise UsageError("invalid_argument", text)
    return message("FetchSinksRequest")(namespace=namespace, names=names).SerializeToString()


def delete_sink(name: str, namespace: str, *, dry_run: bool) -> bytes:
    """A DeleteSinkRequest."""
    return message("DeleteSinkRequest")(name=name, namespace=namespace, dry_run=dry_run).SerializeToString()


def skip_sink(name: str, namespace: str, stream: str, partition: int, *, dry_run: bool) -> bytes:
    """A SkipSinkRequest.

    Raises:
        UsageError: code `invalid_argument`: the partition is not from 0 to 2³¹ − 1.
    """
    request = message("SkipSinkRequest")(
        name=name, namespace=namespace, stream=stream, partition=check_partition(partition), dry_run=dry_run
    )
    return request.SerializeToString()


def set_sink_owner(name: str, namespace: str, owner: str, *, dry_run: bool) -> bytes:
    """A SetSinkOwnerRequest."""
    request = message("SetSinkOwnerRequest")(name=name, namespace=namespace, owner=owner, dry_run=dry_run)
    return request.SerializeToString()


def set_sink_quota(name: str, namespace: str, quota_bytes: int) -> bytes:
    """A SetSinkQuotaRequest.

    Raises:
        UsageError: code `invalid_argument`: the quota is not from 0 to 2⁶³ − 1.
    """
    if not 0 <= quota_bytes <= INT64_MAX:
        raise UsageError("invalid_argument", f"quota_bytes is {quota_bytes}: it must be from 0 to {INT64_MAX}")
    return message("SetSinkQuotaRequest")(name=name, namespace=namespace, quota_bytes=quota_bytes).SerializeToString()
