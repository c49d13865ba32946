"""The synchronous client. Every method blocks its caller and releases the interpreter while it waits."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

import uuid
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Self

from bascule.client._core import requests
from bascule.client._core.address import RECONNECT_S, connection_pool
from bascule.client._core.calls.administration import Administration
from bascule.client._core.calls.cluster import Clusters
from bascule.client._core.calls.details import Details
from bascule.client._core.calls.lags import Lags
from bascule.client._core.calls.positions import Positions
from bascule.client._core.calls.publishing import Publishing
from bascule.client._core.calls.sinks import Sinks
from bascule.client._core.calls.users import IggyUsers
from bascule.client._core.connection_pool import MAX_IN_FLIGHT, ConnectionPool
from bascule.client._core.consumer_config import ConsumerConfig, GroupStart
from bascule.client._core.consumer_core import ConsumerCore
from bascule.client._core.consumer_flow import Callbacks, OnChange
from bascule.client._core.deadline import Deadline
from bascule.client._core.iggy_target import is_iggy, target
from bascule.client._core.partitioning import check_choice
from bascule.client._core.pipelined_publish import Outgoing
from bascule.client._core.subscribe_options import SubscribeOptions
from bascule.client._core.subscription import Subscription
from bascule.client._core.tls import Tls
from bascule.client._core.types import Ack, OffsetReset, PartitionChoice, Start, Stop
from bascule.client.consumer import Consumer
from bascule.client.producer import OnAck, Producer
from bascule.errors import UsageError

__all__ = ["Client", "connect", "connect_with_pool"]


class Client(Administration, Positions, Publishing, Details, Clusters, Lags, Sinks, IggyUsers):
    """A connection to a broker, made by `bascule.connect`. Safe to share between threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def reconnects(self) -> int:
        """Number of reconnects after a broker was lost or did not lead the partition."""
        return self._pool.reconnects

    def open(self) -> None:
        """Connect now instead of at the first call.

        Raises:
            UnavailableError: no broker answered in time, or, without `wait`, none is running.
        """
        self._pool.reach(Deadline(self._timeout))

    def close(self) -> None:
        """Close the connections. Idempotent; later calls raise `closed`. Close producers first."""
        self._pool.close()

    def producer(
        self,
        stream: str,
        *,
        partition: PartitionChoice = None,
        ack: Ack = "leader",
        batch_records: int = 32_768,
        max_in_flight: int = 131_072,
        max_in_flight_bytes: int = 64 << 20,
        timeout: float | None = None,
        on_ack: OnAck | None = None,
    ) -> Producer:
        """Publishes in the background, in order: `with client.producer("orders") as producer: producer.send(b"…")`.

        Args:
            stream: name of the stream.
            partition: as for `publish`, applied to each record.
            ack: which acknowledgement to wait for.
            batch_records: maximum number of records of a batch, 1 to 50,000. There is no linger time: the records that
                arrived while the previous batch was published form the next one.
            max_in_flight: maximum number of unacknowledged records, 1 or more; at this number `send` waits.
            max_in_flight_bytes: the same in bytes, 1 or more; a larger record is sent alone.
            timeout: seconds for each batch; `None` = the client's.
            on_ack: called with the receipts of each batch, in order, in the producer's thread. The next `send`, `flush`
                or `close` raises its exception.

        Raises:
            UsageError: code `invalid_argument`: a number out of range.
        """
        check_choice(partition)
        requests.ack_policy(ack)

        def make() -> Outgoing:
            return self._maker(stream, partition, ack, self._deadline(timeout), may_be_old=True)()

        def publish(batch: Outgoing) -> None:
            self._refresh(stream, partition, self._deadline(timeout))
            self._publish(stream, batch, ack, self._deadline(timeout))

        return Producer(
            make=make,
            publish=publish,
            choose=partition if callable(partition) else None,
            batch_records=batch_records,
            most=(max_in_flight, max_in_flight_bytes),
            on_ack=on_ack,
        )

    def subscribe(
        self,
        stream: str,
        *,
        partition: int = 0,
        start: Start = "earliest",
        stop: Stop = None,
        reverse: bool = False,
        cursor: str | None = None,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        from_replica: bool = False,
        batch_records: int = 8192,
    ) -> Subscription:
        """Read one partition: `for batch in client.subscribe("orders", stop="latest")`.

        The subscription opens when it is entered or first iterated. One that waits for new records (`stop=None`)
        reconnects automatically after its broker was lost, and continues after the last record that it returned.

        Args:
            stream: name of the stream.
            partition: number, from 0.
            start: "earliest", "latest", "new", an offset (inclusive), or a time (inclusive). An offset below the log
                start begins at the log start; an offset beyond the end, or a time in the future, begins at the next
                record. `position` holds the resulting offset once the subscription is open.
            stop: "latest" = what is stored when it opens; an offset or a time (both exclusive); `None` = never.
            reverse: read towards lower offsets, from `start` down to the first record or to the offset `stop`
                (exclusive). Never waits for new records.
            cursor: id of a cursor: reading continues after its position; `start` applies only if it was never set.
                `Subscription.commit` stores the position; it is not stored automatically.
            subject: only records whose subject matches, `*` and a final `>` as in NATS; others are not sent.
            auto_offset_reset: what to do when the cursor's position, or the position before the connection was lost,
                is beyond the end because records were lost or an older copy of the data was restored: "error", or
                where to begin.
            resume: whether to resume a paused partition.
            from_replica: whether any in-sync replica may answer, not only the leader.
            batch_records: maximum number of records of one batch, 1 or more.

        Raises:
            UsageError: code `invalid_argument`: an invalid start or stop.
        """
        options = SubscribeOptions(
            stream=stream,
            partition=partition,
            start=start,
            stop=stop,
            reverse=reverse,
            cursor=cursor,
            subject=subject,
            auto_offset_reset=auto_offset_reset,
            resume=resume,
            from_replica=from_replica,
            batch_records=batch_records,
        )
        return Subscription(self._pool, options, timeout=self._timeout, reconnect=self._reconnect)

    def consumer(
        self,
        group: str,
        streams: str | Sequence[str],
        *,
        consumer: str | None = None,
        start: GroupStart = "earliest",
        commit_interval: float | None = 5.0,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        batch_records: int = 8192,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> Consumer:
        """A member of a consumer group: `with client.consumer("billing", "orders") as consumer: for batch in consumer`.

        The broker needs cursors (`cursors.partitions`): the group's positions are stored under `group_cursor(group)`.
        The consumer joins when it is entered or first iterated.

        Args:
            group: id of the group, 1 to 255 bytes. Its members share the partitions.
            streams: names of the streams to read, 1 or more; fixed while it is a member.
            consumer: id of the member, 1 to 255 bytes, unique in the group; `None` = a generated one.
            start: where to begin in a partition without a stored position; "error" = raise an error instead.
            commit_interval: seconds between automatic stores of positions, above 0; `None` = only `Consumer.commit`
                stores them.
            subject: only records whose subject matches, `*` and a final `>` as in NATS.
            auto_offset_reset: what to do when the stored position, or the one reached before, is beyond the end of a
                partition, as for `subscribe`.
            resume: whether to resume paused partitions.
            batch_records: maximum number of records of one batch, 1 or more.
            on_assigned: called with the partitions that the consumer reads from now on.
            on_revoked: called with the partitions that the consumer is about to give up, after their positions were
                stored.
            on_lost: called with the partitions that the consumer lost because it was expelled: other members may
                already read them. The consumer joins again automatically.

        Raises:
            UsageError: code `invalid_argument`: an id, no stream, or an option.
        """
        config = ConsumerConfig(
            group=group,
            consumer=f"consumer-{uuid.uuid4().hex}" if consumer is None else consumer,
            streams=(streams,) if isinstance(streams, str) else tuple(streams),
            start=start,
            commit_interval=commit_interval,
            subject=subject,
            auto_offset_reset=auto_offset_reset,
            resume=resume,
            batch_records=batch_records,
        )
        core = ConsumerCore(self._pool, config, timeout=self._timeout, reconnect=self._reconnect)
        return Consumer(core, Callbacks(on_assigned, on_revoked, on_lost))


def connect(
    url: str,
    *,
    tls: Tls | None = None,
    timeout: float = 10.0,
    reconnect: float = RECONNECT_S,
    wait: bool = True,
    max_in_flight: int = MAX_IN_FLIGHT,
    name: str = "python",
) -> Client:
    """A connected client; close it, or use it as a context manager.

    Args:
        url: `liftbridge://host:port` or `bascule://host:port`, several hosts separated by commas; the default port is
            9292. Both schemes speak the Liftbridge protocol. `bascules://` is the same with TLS, and may name the files
            of `Tls`: `bascules://host?ca=ca.pem&cert=me.pem&key=me.key`. `iggy://user:password@host` and
            `iggy://token@host` speak Iggy's protocol to the broker's Iggy listener, default port 8090, and
            `iggy+tls://…` the same with TLS; methods that the protocol lacks raise `unimplemented`.
        tls: trusted authorities and the client's certificate; `None` = as the URL says.
        timeout: default seconds for each call, retries and reconnecting included; above 0.
        reconnect: seconds for which a subscription tries to reconnect after its broker was lost.
        wait: whether to wait, up to `timeout`, for a broker that is not running yet; otherwise connecting fails at once
            if nobody listens at any of the addresses. Reconnecting to a broker is not affected. In both cases a failed
            TLS handshake at one address raises at once: fix the certificate first.
        max_in_flight: maximum number of unacknowledged records of one publish, 1 or more.
        name: start of the user agent that the broker sees.

    Raises:
        UsageError: code `invalid_argument`: the URL, or a file of `tls`.
        AccessError: code `tls_failed`: one side refused the other's certificate.
        UnavailableError: no broker answered within `timeout`, or, without `wait`, none is running.
    """
    if is_iggy(url):
        return connected(iggy_client(url, tls, timeout, reconnect, wait=wait, max_in_flight=max_in_flight, name=name))
    return connect_with_pool(
        connection_pool(url, tls, max_in_flight=max_in_flight, name=name, wait=wait), timeout, reconnect
    )


def connect_with_pool(pool: ConnectionPool, timeout: float, reconnect: float = RECONNECT_S) -> Client:
    """A connected client over `pool`. When connecting fails, the pool is closed.

    Raises:
        BrokerError: as `connect`.
    """
    return connected(Client(pool, timeout=timeout, reconnect=reconnect))


def connected(client: Client) -> Client:
    """The client, connected. When connecting fails, it is closed.

    Raises:
        BrokerError: as `connect`.
    """
    try:
        client.open()
    except BaseException:
        client.close()
        raise
    return client


def iggy_client(
    url: str, tls: Tls | None, timeout: float, reconnect: float, *, wait: bool, max_in_flight: int, name: str
) -> Client:
    """A client over Iggy's protocol, not connected yet; arguments are those of `connect`.

    Raises:
        UsageError: code `invalid_argument`: the URL, or a file of TLS; `unimplemented`: `max_in_flight`.
    """
    found = target(url, tls)
    if max_in_flight != MAX_IN_FLIGHT:
        raise UsageError("unimplemented", "max_in_flight has no effect over Iggy's protocol, which confirms each send")
    iggy = import_module("bascule.client._iggy.client")  # it builds on the class above
    client: Client = iggy.IggyClient(found, timeout=timeout, reconnect=reconnect, wait=wait, name=name)
    return client
