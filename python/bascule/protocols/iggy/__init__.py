"""Iggy's commands that are decided here. Commands that move records are decoded and answered natively
(`crates/wire/src/iggy`, `crates/broker/src/iggy`).

* `fields`, `commands`, `permissions`: requests of v1, from payloads to values; `replies`: what v1 answers.
* `service`: all handlers. `authorization`: which right each command needs.
* `logins` (`passwords`), `users`, `tokens`, `streams`, `topics`, `groups`: commands about them; `lookup`, `names`:
  numbers and names; `rights`, `showing`: the state as replies.
* `statuses`: errors as statuses of Iggy; `requests`: what handlers get.
"""

from bascule.protocols.iggy.logins import ROOT
from bascule.protocols.iggy.lookup import user_number
from bascule.protocols.iggy.passwords import MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES
from bascule.protocols.iggy.service import IggyAdmin

__all__ = ["MAX_PASSWORD_BYTES", "MIN_PASSWORD_BYTES", "ROOT", "IggyAdmin", "user_number"]
