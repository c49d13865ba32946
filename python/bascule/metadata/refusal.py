"""How the parts of `apply` say that a command cannot be done."""

from bascule.metadata.model import SETTING_BOUNDS
from bascule.metadata.results import RefusedCode

MAX_NAME_BYTES = 255


class RefusalError(Exception):
    """Carries a refusal to `apply`, which is the only one to catch it."""

    def __init__(self, code: RefusedCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RefusalError:
    """The refusal of a command that no state would allow."""
    return RefusalError(RefusedCode.INVALID_COMMAND, message)


def check_name(what: str, name: str) -> None:
    """Names are 1 to `MAX_NAME_BYTES` bytes long."""
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise invalid(f"{what} is not between 1 and {MAX_NAME_BYTES} bytes long")


def wrong_setting(setting: str, value: int, shown: str = "") -> str | None:
    """Why a stream's setting cannot be `value`; None when it can. `shown` is what the asker calls it."""
    least, most = SETTING_BOUNDS[setting]
    return None if least <= value <= most else f"{shown or setting} is {value}, not between {least} and {most}"
