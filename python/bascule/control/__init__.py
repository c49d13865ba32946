"""The controller: decisions, and the loop that carries them out.

* `decide`, `specs`, `reconcile` are pure: state and event in, commands and documents out.
* `MetadataLog` orders commands; `Reconciler` makes the data plane equal to the state; `EventPump` feeds both.
* `Controller` is what protocol handlers call.
"""

from bascule._seam import Event
from bascule.control.controller import Controller
from bascule.control.dataplane import DataPlane, PartitionStatus
from bascule.control.decide import StreamRequest, Target, Trim
from bascule.control.groups import Groups, GroupTimeouts
from bascule.control.metadata_log import MetadataLog
from bascule.control.pump import EventPump
from bascule.control.reconciler import Reconciler
from bascule.control.scrub import Scrubber, incarnations
from bascule.control.specs import Defaults
from bascule.control.supervisor import Supervisor

__all__ = [
    "Controller",
    "DataPlane",
    "Defaults",
    "Event",
    "EventPump",
    "GroupTimeouts",
    "Groups",
    "MetadataLog",
    "PartitionStatus",
    "Reconciler",
    "Scrubber",
    "StreamRequest",
    "Supervisor",
    "Target",
    "Trim",
    "incarnations",
]
