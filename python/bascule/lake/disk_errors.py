"""Failures of a local disk or an object store, as errors with a code and a sentence."""

import errno
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from bascule.errors import BrokerError, error

_CODES: Final[Mapping[int, tuple[str, str]]] = {
    errno.ENOSPC: ("disk_full", "free space on the disk, then start the query again"),
    errno.EDQUOT: ("disk_full", "raise the quota or free space, then start the query again"),
    errno.EACCES: ("failed_precondition", "let the user of the query write there, or choose another folder"),
    errno.EPERM: ("failed_precondition", "let the user of the query write there, or choose another folder"),
    errno.EROFS: ("failed_precondition", "choose a folder that can be written"),
    errno.ENOENT: ("failed_precondition", "choose a folder that can be made and written"),
    errno.ENOTDIR: ("failed_precondition", "choose a folder: a part of the path is a file"),
}
"""Code and remedy by number of the operating system. Others are not known to pass or not, and remain as they are."""

_REMOTE_REMEDY: Final = "check endpoint, region, bucket and credentials (AWS_… or the option {}) on every host"
_METADATA_SERVICE: Final = "169.254.169.254"
"""Where the machine's own credentials are asked for when there are no others."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def disk_errors(table: str) -> Generator[None]:
    """For code that writes a table.

    Args:
        table: path of the table, for the sentence.

    Raises:
        BrokerError: `disk_full` or `failed_precondition`: the disk refused a write for a reason that people can remove;
            `unavailable`: the object store refused it or did not answer.
        OSError: of the code within, for another reason.
    """
    try:
        yield
    except OSError as failure:
        known = _CODES.get(failure.errno or 0)
        if isinstance(failure, BrokerError):
            raise
        if "://" in table and failure.errno is None:  # of the library for object stores, which gives no number
            raise _remote(table, "written", failure, "credentials") from failure
        if known is None:
            raise
        code, remedy = known
        where = f" ({failure.filename})" if failure.filename else ""
        message = f"the table {table} cannot be written: {failure.strerror}{where}; {remedy}"
        raise error(code, message, {"table": table}) from failure


@contextmanager
def read_errors(table: str) -> Generator[None]:
    """For code that reads a table as an archive of a source.

    Args:
        table: path of the table, for the sentence.

    Raises:
        BrokerError: `unavailable`: the object store refused it or did not answer.
        OSError: of the code within, for another reason.
    """
    try:
        yield
    except OSError as failure:
        if isinstance(failure, BrokerError) or "://" not in table or failure.errno is not None:
            raise
        raise _remote(table, "read", failure, "archiveCredentials") from failure


def _remote(table: str, done: str, failure: OSError, option: str) -> BrokerError:
    """The error of an object store, by the first line of its library's text."""
    text = _COLOUR.sub("", str(failure))
    reason = text.partition("\n")[0].rstrip(".")
    if _METADATA_SERVICE in text:
        reason = "no credentials were given, and this machine has none of its own"
    message = f"the table {table} cannot be {done}: {reason}; {_REMOTE_REMEDY.format(option)}"
    return error("unavailable", message, {"table": table})
