"""A broker's control plane over a data plane in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bascule._seam import Barrier, Committed, Event, Failed, Installed, Request
from bascule.control import (
    Controller,
    Defaults,
    EventPump,
    Groups,
    GroupTimeouts,
    MetadataLog,
    Reconciler,
    StreamRequest,
)
from bascule.control.archives import Archives
from bascule.control.queries import Queries
from bascule.control.sinks import Sinks
from bascule.control.supervisor import Supervisor
from bascule.errors import BrokerError
from bascule.metadata import State, StreamSettings
from bascule.protocols.admin import AdminService, Managed
from bascule.protocols.iggy import IggyAdmin
from bascule.protocols.liftbridge import CreationGuard, LiftbridgeAdmin
from bascule.protocols.router import Handler, Router

from tests.unit.control.fake_plane import Disk, FakePlane


@dataclass
class Rig:
    plane: FakePlane
    log: MetadataLog
    reconciler: Reconciler
    controller: Controller
    groups: Groups
    errors: list[tuple[Event, Exception]]
    admin: dict[str, Handler]
    failures: list[BrokerError]
    iggy: IggyAdmin


@asynccontextmanager
async def running(
    disk: Disk | None = None, broken: dict[int, str] | None = None, timeouts: GroupTimeouts | None = None
) -> AsyncGenerator[Rig]:
    """Replayed, registered as broker `a`, and following."""
    plane = FakePlane(disk)
    plane.broken = broken or {}
    log = MetadataLog(plane)
    reconciler = Reconciler(plane, "a", Defaults(), State())
    controller = Controller(plane, log, reconciler, "a", clock_ns=lambda: 1_000)
    groups = Groups(controller, timeouts or GroupTimeouts())
    admin = LiftbridgeAdmin(controller, groups, StreamSettings()).handlers()
    managed = Managed(Sinks(controller, plane), Queries(controller, plane, (3, 2)), Archives(controller))
    iggy = IggyAdmin(controller, StreamSettings(), CreationGuard(), Path())
    admin |= AdminService(managed, StreamSettings(), iggy=iggy).handlers()
    router = Router(plane, admin | iggy.handlers())
    errors: list[tuple[Event, Exception]] = []
    handlers = {
        Committed: log.on_committed,
        Installed: log.on_installed,
        Failed: log.on_failed,
        Barrier: log.on_barrier,
        Request: router.on_request,
    }
    pump = EventPump(plane, handlers, lambda event, error: errors.append((event, error)))
    failures: list[BrokerError] = []
    supervisor = Supervisor(failures.append, pauses_s=(0.01, 0.01, 0.01))
    supervisor.start("events", pump.run)
    await controller.replay(5.0)
    supervisor.start("reconciler", reconciler.run)
    await controller.register_broker("127.0.0.1", 9292, 5.0)
    await reconciler.wait_applied(log.state.index)
    groups.start()
    try:
        yield Rig(plane, log, reconciler, controller, groups, errors, admin, failures, iggy)
    finally:
        supervisor.begin_stop()
        await groups.stop()
        await reconciler.stop()
        await supervisor.stop()
        pump.finish()


def stream_request(
    name: str = "orders",
    *,
    subject: str = "orders",
    partitions: int = 1,
    replication_factor: int = 1,
    settings: StreamSettings | None = None,
) -> StreamRequest:
    """A request for a stream."""
    return StreamRequest("default", name, subject, "", partitions, replication_factor, settings or StreamSettings())
