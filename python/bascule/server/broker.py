"""One broker in this process: the data plane, the control plane, and the nats-server of a standalone broker.

Order of starting: lock the data directory, bind the port (connections are refused), start nats-server, replay the
metadata, connect to NATS, open all partitions, register, serve, listen. Stopping is the reverse. NATS is not required:
the broker serves without it, logs that, and connects when NATS is available.

Background tasks are supervised: a task that fails too often ends the broker, and a broker whose control plane has ended
does not serve.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from bascule._seam import (
    Barrier,
    Committed,
    Expired,
    Failed,
    Installed,
    LogLine,
    NatsChange,
    Office,
    PartitionChange,
    Request,
    Stopped,
)
from bascule._text import host_port, without_credentials
from bascule.config import Settings, contradictions
from bascule.config.listening import parse_address
from bascule.control import (
    Controller,
    EventPump,
    Groups,
    MetadataLog,
    Reconciler,
    Scrubber,
    Supervisor,
    cursors,
    incarnations,
)
from bascule.control.activity import ActivityWriter
from bascule.control.archives import ARCHIVE_VOID, Archives
from bascule.control.autopause import AutoPause
from bascule.control.cluster import Membership
from bascule.control.queries import Queries
from bascule.control.sinks import SINK_REPORTS, Sinks
from bascule.engine import Engine
from bascule.errors import BrokerError, error
from bascule.logs import emit, style_of
from bascule.metadata import State
from bascule.protocols.admin import AdminService, Managed
from bascule.protocols.iggy import IggyAdmin
from bascule.protocols.liftbridge import CreationGuard, LiftbridgeAdmin, reserved_streams
from bascule.protocols.liftbridge.activity import CODEC
from bascule.protocols.router import Handler, Router
from bascule.server import engine_config, iggy, reports
from bascule.server.cluster import FOREVER_S, Cluster, refuse_unsafe
from bascule.server.nats_access import nats_settings
from bascule.server.nats_child import NatsChild
from bascule.server.security import Security
from bascule.server.watch import BEAT_S, LIMIT_S, ProcessWatch

REPLAY_S = 600.0
REGISTER_S = 30.0
CONNECT_OWN_S, CONNECT_OTHERS_S = 5.0, 0.3
"""Seconds for which a start waits for NATS: longer for the broker's own nats-server, which is expected to come."""

ADMIN_DRAIN_S = 1.0
EVENTS = "events"
"""The task that pulls events from the data plane; it runs until the data plane is closed."""
BEAT = "beat"
"""The task that shows the data plane that the event loop runs; it runs until the data plane is closed."""


class Broker:
    """A broker. For the event loop that starts it; can be started once.

    Attributes:
        settings: the settings of the broker.
        address: advertised `host:port`; empty before the port is bound.
        http_address: `host:port` of probes and metrics; empty = none.
        iggy_address: `host:port` of the listener for Iggy's clients; empty = none.
        iggy_http_address: the same of those that speak HTTP.
        iggy_quic_address: the same of those that speak QUIC.
        show_password: called with the generated password of Iggy's first user.
        nats_problem: why NATS was not connected when the broker was ready; empty = it was.
        nats_url: URL of its own nats-server, else of the first configured server, without credentials.
        ready_seconds: duration of `start`; 0 before it.
    """

    def __init__(self, settings: Settings, watch: ProcessWatch | None = None) -> None:
        """Starts nothing yet.

        Args:
            settings: the settings of the broker.
            watch: the watch of the process, if the process only runs this broker and this is its main thread.
        """
        self.settings = settings
        self._watch = watch
        self.address = ""
        self.http_address = ""
        self.iggy_address = ""
        self.iggy_http_address = ""
        self.iggy_quic_address = ""
        self.show_password: Callable[[str], None] = iggy.print_password
        self.nats_problem = ""
        self.nats_url = "" if settings.nats.standalone else without_credentials(settings.nats.servers[0])
        self.ready_seconds = 0.0
        self._engine: Engine | None = None
        self._nats: NatsChild | None = None
        self._pump: EventPump | None = None
        self._log: MetadataLog | None = None
        self._controller: Controller | None = None
        self._reconciler: Reconciler | None = None
        self._router: Router | None = None
        self._groups: Groups | None = None
        self._security: Security | None = None
        self._sinks: Sinks | None = None
        self._archives: Archives | None = None
        self._iggy: IggyAdmin | None = None
        self._cluster: Cluster | None = None
        self._membership: Membership | None = None
        self._failed: asyncio.Future[BrokerError] | None = None
        self._supervisor = Supervisor(self._fail)

    @property
    def nats_pid(self) -> int | None:
        """Process id of its own nats-server; `None` = it does not run."""
        return self._nats.pid if self._nats is not None else None

    async def start(self) -> None:
        """Start the broker; returns when it serves. After an error nothing is left running.

        Raises:
            StateError: `data_directory_locked`, `…_foreign`, `…_newer`, `…_unusable`, `address_in_use`,
                `nats_server_missing`, `nats_server_failed`.
            UsageError: `address_unusable`, `configuration_invalid`.
            CorruptionError: `metadata_damaged`.
            UnavailableError: `metadata_stopped`: an entry of the metadata log cannot be applied; `nats_unavailable`:
                `nats.required` is set and there is no connection.
        """
        began = time.monotonic()
        self._failed = failed = asyncio.get_running_loop().create_future()
        starting = asyncio.create_task(self._start())
        try:
            await asyncio.wait({starting, failed}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            self._raise_failure()
        except BaseException:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self.stop()
            raise
        self.ready_seconds = time.monotonic() - began
        seconds = round(self.ready_seconds, 3)
        nats = self.nats_problem or "connected"
        emit(20, "server", "ready", address=self.address, nats=self.nats_url, ingest=nats, seconds=seconds)

    async def wait_failed(self) -> BrokerError:
        """Wait until the broker fails; returns the reason."""
        if self._failed is None:
            raise error("internal", "the broker has not been started")
        return await asyncio.shield(self._failed)

    async def reload(self) -> bool:
        """Reload certificates and policy. False = one could not be used; then the previous version stays in use."""
        if self._security is None or self._engine is None:
            return False
        return await asyncio.to_thread(self._security.reload)

    async def stop(self) -> None:
        """Reject new calls, wait up to `broker.drain_ms` for open ones, close everything. Idempotent."""
        engine, self._engine = self._engine, None
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.leave()
        if engine is not None:
            engine.set_serving(False)
        await self._stop_control_plane()
        if engine is not None:
            if self._controller is not None:
                await self._controller.save_last_snapshot()
            await asyncio.to_thread(engine.close, self.settings.broker.drain_ms)
        if self._watch is not None:
            self._watch.detach()
        await self._supervisor.stop()
        if self._pump is not None:
            self._pump.finish()
        nats, self._nats = self._nats, None
        if nats is not None:
            await asyncio.to_thread(nats.stop)

    async def _stop_control_plane(self) -> None:
        """Stop all tasks except those that serve the data plane: the beat of the event loop and the event pump."""
        self._supervisor.begin_stop()
        if self._router is not None:
            await self._router.stop(ADMIN_DRAIN_S)
        if self._groups is not None:
            await self._groups.stop()
        if self._reconciler is not None:
            await self._reconciler.stop()
        await self._supervisor.stop(keep={EVENTS, BEAT})
        if self._log is not None:
            self._log.close()

    # -- inside -----------------------------------------------------------------------------------------------------
    async def _start(self) -> None:
        settings = self.settings
        for sentence in contradictions(settings):
            emit(30, "config", sentence)
        engine_config.refuse_foreign_files(settings)
        identity = engine_config.broker_id(settings)
        engine = await self._lock(identity)
        self._start_watch(engine)
        port = await asyncio.to_thread(engine.bind, settings.broker.host, settings.broker.port)
        self.address = host_port(*engine_config.advertised(settings, port))
        self._serve_http(engine)
        engine.set_stage("reading certificates and policy")
        self._security = security = Security(settings, engine)
        await asyncio.to_thread(security.load)
        if settings.nats.standalone:
            self._nats = NatsChild(settings.data_dir.absolute() / "nats", settings.nats)
            self._nats.start()
        self._log = log = MetadataLog(engine)
        log.failed.add_done_callback(lambda done: self._fail(done.result()))
        self._reconciler = reconciler = Reconciler(engine, identity, engine_config.defaults(settings), State())
        self._controller = controller = Controller(engine, log, reconciler, identity)
        self._groups = groups = Groups(controller, engine_config.group_timeouts(settings))
        self._sinks = sinks = Sinks(controller, engine, most_of_owner=settings.limits.sinks_per_client)
        self._archives = archives = Archives(controller)
        queries = Queries(controller, engine, engine_config.query_bounds(settings))
        handlers = self._handlers(controller, groups, Managed(sinks, queries, archives), security)
        if settings.cluster.peers:
            self._cluster = Cluster(settings, engine, identity)
            controller.rules = self._cluster.rules
            handlers = refuse_unsafe(handlers)
        self._router = router = Router(engine, handlers)
        self._start_pump(engine, log, router)
        engine.set_stage("waiting for a majority of the brokers" if self._cluster else "replaying the metadata log")
        await controller.replay(FOREVER_S if self._cluster else REPLAY_S)
        sinks.start()
        engine.set_stage("connecting to NATS")
        await self._connect_nats(engine)
        engine.set_stage("opening partitions")
        if self._cluster is None:
            await self._begin_alone(controller, reconciler, engine, port)
            self._supervisor.start("queries", queries.run)
            self._supervisor.start("archives", archives.run)
            self._supervisor.start("sinks", sinks.run)
            self._supervisor.start("links", sinks.keep_linking)
        else:
            await self._enter(self._cluster, controller, reconciler)
            self._start_office(self._cluster, controller, log, sinks)
        self._supervisor.start("snapshots", lambda: controller.keep_snapshots(settings.cluster.snapshot_entries))
        self._start_scrub(engine, log)
        self._supervisor.start("auto-pause", AutoPause(controller, engine_config.auto_pause(settings)).run)
        groups.start()
        await self._listen(engine)

    async def _listen(self, engine: Engine) -> None:
        """Take calls."""
        # Before clients can connect, so that no call is rejected because the broker is starting.
        engine.set_serving(True)
        await asyncio.to_thread(engine.listen)
        await self._serve_iggy(engine)

    async def _begin_alone(self, controller: Controller, reconciler: Reconciler, engine: Engine, bound: int) -> None:
        """Begin to serve as a broker without a cluster."""
        self._supervisor.start("reconciler", reconciler.run)
        host, port = engine_config.advertised(self.settings, bound)
        await controller.register_broker(host, port, REGISTER_S)
        await controller.rotate_data_keys(self.settings.encryption.current_key, REGISTER_S)
        await controller.settle()
        await self._prepare(controller, engine)

    async def _enter(self, cluster: Cluster, controller: Controller, reconciler: Reconciler) -> None:
        """Become a broker of the cluster: what it led in an earlier run is open before it is led again."""
        host, port = parse_address(self.address)
        cluster.follow(controller)
        self._membership = membership = cluster.membership(controller, host, port)
        controller.follow(membership.on_state)

        async def carried_out() -> None:
            await reconciler.wait_applied(controller.state.index)

        await membership.register()
        cluster.begin_roles(controller, reconciler)
        self._supervisor.start("reconciler", reconciler.run)
        await controller.settle()
        await membership.enter(carried_out)
        await carried_out()
        self._supervisor.start("membership", lambda: membership.keep(carried_out))

    def _handlers(
        self, controller: Controller, groups: Groups, managed: Managed, security: Security
    ) -> dict[str, Handler]:
        """The handlers of all methods that the control plane answers."""
        creation_guard = CreationGuard(self.settings.broker.namespace, engine_config.bounds(self.settings))
        creating = engine_config.stream_settings(self.settings)
        liftbridge = LiftbridgeAdmin(controller, groups, creating, security.access, creation_guard)
        if self.settings.iggy.address is not None:
            self._iggy = IggyAdmin(
                controller,
                creating,
                creation_guard,
                self.settings.data_dir,
                security.access,
                tokens_per_user=self.settings.iggy.tokens_per_user,
            )
        admin = AdminService(managed, creating, security.access, creation_guard, self._iggy)
        iggys = self._iggy.handlers() if self._iggy is not None else {}
        return {**liftbridge.handlers(), **admin.handlers(), **iggys}

    async def _prepare(self, controller: Controller, engine: Engine) -> None:
        """Create the internal streams of the broker."""
        settings, namespace = self.settings, self.settings.broker.namespace
        for stream in reserved_streams(controller.state, namespace):
            message = (
                f"a stream is under {namespace}., which is reserved for the broker: move its records to another stream"
            )
            emit(30, "server", message, stream=stream.name, subject=stream.subject)
        timeout_s = settings.activity.publish_timeout_ms / 1000
        encrypted = settings.streams.encryption
        activity = ActivityWriter(controller, engine, CODEC, timeout_s)
        subject = f"{namespace}.activity"
        await activity.prepare(subject, REGISTER_S, on=settings.activity.enabled, encrypted=encrypted)
        if settings.activity.enabled:
            self._supervisor.start("activity", activity.run)
        partitions = settings.cursors.partitions
        await cursors.prepare(controller, f"{namespace}.cursors", partitions, REGISTER_S, encrypted=encrypted)

    def _start_office(self, cluster: Cluster, controller: Controller, log: MetadataLog, sinks: Sinks) -> None:
        """Do the duties of the controller while this broker is it."""
        duties = (sinks.run, sinks.keep_linking, lambda: self._keep_cursors(controller))
        self._supervisor.start("office", cluster.office(controller, log, *duties).run)

    async def _keep_cursors(self, controller: Controller) -> None:
        """Create the stream of cursors of a cluster, if it is missing."""
        settings, subject = self.settings, f"{self.settings.broker.namespace}.cursors"
        peers = len(settings.cluster.peers)
        await cursors.prepare_replicated(controller, subject, settings.cursors.partitions, peers)

    async def _lock(self, identity: str) -> Engine:
        """Open the data plane, which locks the data directory. Kept even if cancelled, so that `stop` closes it."""
        document = engine_config.engine_settings(self.settings, identity)
        making = asyncio.create_task(asyncio.to_thread(Engine, document))
        try:
            await asyncio.shield(making)
        finally:
            with contextlib.suppress(BrokerError):
                self._engine = await making
        return making.result()

    def _serve_http(self, engine: Engine) -> None:
        """Serve probes and metrics. A failure is only logged: two brokers on one machine have the same default."""
        address = self.settings.http.address
        if address is None:
            return
        host, port = address
        try:
            metrics = self.settings.metrics
            port = engine.serve_http(host, port, {"partitions": metrics.partitions, "groups": metrics.groups})
        except BrokerError as failure:
            message = f"probes and metrics are not served: {failure}; set http.listen to another address, or to off"
            emit(30, "http", message, listen=self.settings.http.listen, code=failure.code)
            return
        self.http_address = host_port(host, port)
        emit(20, "http", "probes and metrics are served", address=self.http_address)

    async def _serve_iggy(self, engine: Engine) -> None:
        """Serve Iggy's clients, if they are to be. A failure ends the start: their owner has asked for it."""
        if self._iggy is not None:
            password = await asyncio.to_thread(iggy.root_password, self.settings)
            self.iggy_address = await iggy.serve(self.settings, engine, self._iggy, password, self.show_password)
            self.iggy_http_address = await asyncio.to_thread(iggy.serve_http, self.settings, engine)
            self.iggy_quic_address = await asyncio.to_thread(iggy.serve_quic, self.settings, engine, self._iggy)

    def _start_scrub(self, engine: Engine, log: MetadataLog) -> None:
        """Scrub regularly, unless that is off."""
        scrub = self.settings.scrub
        if scrub.period_ms and scrub.rate_bytes:
            scrubber = Scrubber(
                engine, lambda: incarnations(log.state), period_ms=scrub.period_ms, bytes_per_second=scrub.rate_bytes
            )
            self._supervisor.start("scrub", scrubber.run)

    def _start_watch(self, engine: Engine) -> None:
        """Start the watchdog of the data plane, which detects a blocked event loop."""
        settings = {
            "limit_ms": int(LIMIT_S * 1000),
            "log": style_of(self.settings.log.format) if self._watch is not None else None,
            "owns_process": self._watch is not None,
            "drain_ms": self.settings.broker.drain_ms,
        }
        descriptors = engine.watch(settings)
        if self._watch is not None:
            self._watch.attach(*descriptors)

        async def beat() -> None:
            clock, lag_s = asyncio.get_running_loop().time, 0.0
            while True:
                engine.beat()
                engine.report(reports.figures(self._log, lag_s))
                due_s = clock() + BEAT_S
                await asyncio.sleep(BEAT_S)
                lag_s = max(0.0, clock() - due_s)

        self._supervisor.start(BEAT, beat)

    def _start_pump(self, engine: Engine, log: MetadataLog, router: Router) -> None:
        handlers = {
            Request: router.on_request,
            Committed: log.on_committed,
            Installed: log.on_installed,
            Failed: log.on_failed,
            Barrier: log.on_barrier,
            Office: self._on_office,
            Expired: self._on_watched,
            Stopped: self._on_watched,
            PartitionChange: self._on_partition,
            NatsChange: reports.on_nats,
            LogLine: reports.on_log,
        }
        self._pump = EventPump(engine, handlers, reports.on_error)
        self._supervisor.start(EVENTS, self._pump.run)

    def _on_office(self, event: Office) -> None:
        if self._cluster is not None:
            self._cluster.on_office(event)

    def _on_watched(self, event: Expired | Stopped) -> None:
        if self._cluster is not None:
            self._cluster.on_watched(event)

    def _on_partition(self, event: PartitionChange) -> None:
        if event.change in SINK_REPORTS and self._sinks is not None:
            self._sinks.report(event)
        else:
            if event.change == ARCHIVE_VOID and self._archives is not None:
                self._archives.void(event)
            reports.on_partition(event)

    async def _connect_nats(self, engine: Engine) -> None:
        settings, limit_s = self.settings, CONNECT_OTHERS_S
        servers = list(settings.nats.servers)
        if self._nats is not None:
            await self._nats.wait_ready()
            self.nats_url, limit_s = self._nats.url, CONNECT_OWN_S
            if settings.nats.config is None or "servers" not in settings.nats.model_fields_set:
                servers = [self.nats_url]
        pending, is_own = settings.limits.nats_pending_bytes, self._nats is not None
        engine.connect_nats(nats_settings(settings.nats, servers, pending, is_own=is_own))
        if settings.nats.required:
            engine.require_nats()
            limit_s = CONNECT_OWN_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not _is_settled(engine.nats_state()):  # noqa: ASYNC110 - events are for the log
                    await asyncio.sleep(0.002)
        if engine.nats_connected():
            return
        self.nats_problem = next(check["reason"] for check in engine.checks() if check["name"] == "nats")
        shown = [without_credentials(item) for item in servers]
        if settings.nats.required:
            message = f"nats.required is set and there is no connection to {', '.join(shown)}; {self.nats_problem}"
            raise error("nats_unavailable", message, {"servers": shown})
        emit(30, "nats", f"{self.nats_problem}; the broker serves without it and retries", servers=shown)

    def _raise_failure(self) -> None:
        if self._failed is not None and self._failed.done():
            raise self._failed.result()

    def _fail(self, failure: BrokerError) -> None:
        """Stop serving, because the control plane has ended."""
        if self._engine is not None:
            self._engine.set_serving(False)
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(failure)


_LASTING = frozenset({"settings", "login_refused", "tls_failed"})
"""Reasons of `nats_state` that do not change by waiting."""


def _is_settled(nats: Mapping[str, Any]) -> bool:
    return nats["state"] == "connected" or nats["reason"] in _LASTING
