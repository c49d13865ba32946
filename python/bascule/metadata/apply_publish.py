"""The commit point of an epoch: whether `publish_sink` is accepted, and what it makes of the sink. Pure."""

import re
from dataclasses import replace

from bascule.metadata.apply_sinks import find, put
from bascule.metadata.model import State
from bascule.metadata.rejection import RejectedError, RejectionCode, invalid, rejected
from bascule.metadata.sink_commands import PublishSink
from bascule.metadata.sinks import (
    MAX_ORDINAL,
    MAX_ROWS,
    MAX_TARGETS,
    MAX_TASKS,
    Attempt,
    Published,
    Sink,
    TargetStream,
    attempt_ids,
)

_TOKEN = re.compile(r"[0-9a-f]{32}")
_HASH = re.compile(r"(?:[0-9a-f]{64})?")


def publish(state: State, _: int, command: PublishSink) -> State:
    """Decide the epoch; the same attempt again changes nothing."""
    sink = find(state, command)
    if is_answered(sink, command):
        return state
    _check_attempt(sink, command)
    if command.epoch == sink.last_epoch:
        _check_same(sink, command)
        return put(state, _accepted(state, sink, command))
    check_epoch(sink, command.epoch, command.accept_gap)
    if not sink.is_finished:
        raise rejected(
            RejectionCode.SINK_BUSY,
            f"an epoch of sink {sink.name} is decided and not linked everywhere yet",
        )
    _check_content(command)
    _check_targets(state, command)
    has_rows = bool(command.targets)
    ordinal = sink.ordinal + 1 if has_rows else sink.ordinal
    if ordinal > MAX_ORDINAL:
        raise invalid(f"sink {sink.name} has published {MAX_ORDINAL} epochs, the most it may: use another sinkId")
    decided = Published(
        generation=sink.generation,
        query_id=sink.query_id,
        epoch=command.epoch,
        token=command.token,
        ordinal=ordinal if has_rows else 0,
        winners=command.winners if has_rows else (),
        targets=command.targets,
        input_rows=command.input_rows,
        input_digest=command.input_digest,
        offsets_hash=command.offsets_hash,
    )
    return put(state, _accepted(state, replace(sink, ordinal=ordinal, last=decided), command))


def is_answered(sink: Sink, command: PublishSink) -> bool:
    """Whether this very attempt was accepted before, as the decision or as a repetition of it."""
    attempt = Attempt(command.epoch, command.token, command.generation, command.run_id)
    return sink.accepted == attempt


def _check_attempt(sink: Sink, command: PublishSink) -> None:
    """The run is the sink's current one, and nothing but its epoch and its rows can keep the attempt from acceptance.

    Raises:
        RejectedError: `sink_fenced`; `sink_expired`; `sink_conflict`: a second write of the run under this name.
    """
    if (sink.generation, sink.run_id) != (command.generation, command.run_id):
        raise rejected(
            RejectionCode.SINK_FENCED,
            f"run {command.run_id} (generation {command.generation}) of sink {sink.name} was replaced by run "
            f"{sink.run_id} (generation {sink.generation})",
        )
    if not _TOKEN.fullmatch(command.token):
        raise invalid(f"token {command.token!r} is not 32 hexadecimal digits")
    if Attempt(command.epoch, command.token, command.generation) in sink.expired:
        raise rejected(
            RejectionCode.SINK_EXPIRED,
            f"this attempt of epoch {command.epoch} of sink {sink.name} expired or was aborted: run the epoch again",
        )
    accepted = sink.accepted
    if accepted is not None and (accepted.run_id, accepted.epoch) == (command.run_id, command.epoch):
        raise rejected(
            RejectionCode.SINK_CONFLICT,
            f"run {command.run_id} has published epoch {command.epoch} of sink {sink.name} under another token: two "
            "writes in one foreachBatch need a sinkId each",
        )


def check_epoch(sink: Sink, epoch: int, accept_gap: int = -1) -> None:
    """The epoch follows the last decided one of this query.

    Raises:
        RejectedError: `sink_epoch`, with both numbers and the remedy.
    """
    last = sink.last_epoch
    if epoch < 0:
        raise invalid(f"epoch {epoch} is below 0")
    if last is None or epoch == last + 1:
        return
    if epoch < last:
        raise rejected(
            RejectionCode.SINK_EPOCH,
            f"epoch {epoch} is older than epoch {last}, the last one of sink {sink.name}: the checkpoint is older than "
            "the sink; restore the newer checkpoint, or begin with a new one and takeOver",
        )
    if epoch > last + 1 and sink.kind != "foreach" and accept_gap != epoch:
        raise rejected(
            RejectionCode.SINK_EPOCH,
            f"epoch {epoch} does not follow epoch {last}, the last one of sink {sink.name}: if the epochs between them "
            f"were written in another way, set acceptGap={epoch}",
        )


def difference(sink: Sink, rows: int, digest: str, offsets_hash: str) -> str | None:
    """How the input of a repeated epoch differs from what was published; None when it does not, or may.

    A digest may differ where the same range of offsets was read: the plan is not deterministic then.
    """
    last = sink.last
    if last is None:
        return None
    hashes = {last.offsets_hash, offsets_hash}
    if len(hashes) == 2 and "" not in hashes:
        return (
            f"epoch {last.epoch} was published from another checkpoint, which planned it at another time: this one is "
            "a copy of it or the other way round (give each query a new checkpoint and a sinkId of its own), or an "
            "older state of it was restored"
        )
    if rows != last.input_rows:
        return f"epoch {last.epoch} was published with {last.input_rows} rows and has {rows} now"
    if digest != last.input_digest and (offsets_hash == "" or len(hashes) > 1):
        return f"epoch {last.epoch} was published with digest {last.input_digest} and has {digest} now"
    return None


def _check_same(sink: Sink, command: PublishSink) -> None:
    if command.targets or command.winners:
        raise invalid(f"epoch {command.epoch} of sink {sink.name} is published: nothing can be staged for it")
    found = difference(sink, command.input_rows, command.input_digest, command.offsets_hash)
    if found is not None and not command.accept_difference:
        if sink.kind == "batch":
            raise rejected(RejectionCode.SINK_REPLAY_DIFFERS, _other_result(sink, command))
        raise rejected(
            RejectionCode.SINK_REPLAY_DIFFERS,
            f"{found}: the rows of sink {sink.name} stay as they are; check the checkpoint, then set "
            "onReplayDifference=accept to continue",
        )


def _other_result(sink: Sink, command: PublishSink) -> str:
    """Why a batch job with a key that is known is refused; a user of batch jobs knows no epochs."""
    stored = sink.last.input_rows if sink.last is not None else 0
    differs = f"has {command.input_rows}" if command.input_rows != stored else "has others, or another stream for them"
    return (
        f"a batch write with the idempotencyKey {sink.name} stored {stored} rows, and this one {differs}: nothing was "
        "stored; give another result a key of its own, or set onReplayDifference=accept to keep what is stored"
    )


def _check_content(command: PublishSink) -> None:
    if not command.input_rows >= 0 or not _TOKEN.fullmatch(command.input_digest):
        raise invalid(f"{command.input_rows} rows or digest {command.input_digest!r} of the input are out of bounds")
    if not _HASH.fullmatch(command.offsets_hash):
        raise invalid(f"hash {command.offsets_hash!r} of the offsets is not 64 hexadecimal digits")
    if len(command.winners) > MAX_TASKS or any(item < 0 for item in attempt_ids(command.winners)):
        raise invalid(f"{len(command.winners)} winning attempts are more than {MAX_TASKS}, or one is below 0")
    count = sum(len(stream.partitions) for stream in command.targets)
    if count > MAX_TARGETS:
        raise invalid(f"{count} target partitions are more than {MAX_TARGETS}")
    names = [(stream.namespace, stream.name) for stream in command.targets]
    if names != sorted(set(names)):
        raise invalid("target streams repeat or are not in order")


def _check_targets(state: State, command: PublishSink) -> None:
    """Every target exists in the incarnation that was staged to, and takes appends."""
    for stream in command.targets:
        try:
            _check_target(state, stream)
        except RejectedError as error:
            raise rejected(
                error.rejection.code, f"epoch {command.epoch} of sink {command.name}: {error.rejection.message}"
            ) from error


def _check_target(state: State, target: TargetStream) -> None:
    shown = f"{target.namespace}/{target.name}"
    stream = state.stream(target.namespace, target.name)
    if stream is None:
        raise rejected(RejectionCode.STREAM_NOT_FOUND, f"stream {shown} does not exist")
    numbers = [item.number for item in target.partitions]
    if not numbers or numbers != sorted(set(numbers)):
        raise invalid(f"partitions of stream {shown} are none, repeat or are not in order")
    for item in target.partitions:
        if not 0 <= item.number < len(stream.partitions):
            message = f"partition {item.number} of stream {shown} does not exist"
            raise rejected(RejectionCode.PARTITION_NOT_FOUND, message)
        partition = stream.partitions[item.number]
        if partition.incarnation != item.incarnation:
            message = f"partition {item.number} of stream {shown} was purged or created again since rows were staged"
            raise rejected(RejectionCode.INCARNATION_CHANGED, message)
        if partition.readonly:
            raise rejected(RejectionCode.READONLY, f"partition {item.number} of stream {shown} is read-only")
        if not 1 <= item.rows <= MAX_ROWS or not _TOKEN.fullmatch(item.digest):
            raise invalid(f"partition {item.number} of stream {shown}: {item.rows} rows or the digest are not allowed")
        if item.phase != "decided" or item.base_offset:
            raise invalid(f"partition {item.number} of stream {shown} is decided as {item.phase}")


def _accepted(state: State, sink: Sink, command: PublishSink) -> Sink:
    attempt = Attempt(command.epoch, command.token, command.generation, command.run_id)
    return replace(sink, accepted=attempt, used_ms=state.clock_ms)
