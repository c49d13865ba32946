"""What streams and topics may be called."""

from bascule.control import Controller
from bascule.engine import name_flaw
from bascule.metadata.rejection import MAX_NAME_BYTES
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["check_name", "check_renames"]


def check_name(name: str, status: IggyStatus) -> None:
    """Names have 1 to 255 bytes, and show what they are. A slash divides a stream's name from its topic's elsewhere.

    Raises:
        IggyError: `status`.
    """
    shown = repr(name[:80])
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise IggyError(status, f"name {shown} is not between 1 and {MAX_NAME_BYTES} bytes long")
    if flaw := name_flaw(name):
        raise IggyError(status, f"name {flaw}")
    if "/" in name or name in {".", ".."}:
        raise IggyError(status, f"name {shown} is a path: give one without /, that is neither . nor ..")


def check_renames(controller: Controller) -> None:
    """Brokers of a cluster do not open their replicas under another name yet.

    Raises:
        IggyError: 5: the broker is one of several.
    """
    if controller.rules is not None:
        text = "names of streams and topics stay as they are with several brokers: create another one"
        raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)
