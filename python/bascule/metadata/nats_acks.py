"""Which streams may acknowledge JetStream publishers. Pure; the same for a request, a command and a replay."""

from bascule.metadata.model import State, StreamKey, StreamSettings


def subjects_overlap(one: str, other: str) -> bool:
    """Whether a NATS message can have a subject that both match; an empty subject matches none."""
    if not one or not other:
        return False
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(left) == len(right)


def acks_refusal(
    state: State, key: StreamKey, subject: str, partitions: int, settings: StreamSettings
) -> tuple[str, str] | None:
    """Why the stream may not have `settings.nats_acks`: the reason and the remedy; None when it may."""
    if settings.nats_acks == "off":
        return None
    if partitions != 1:
        reason = f"nats_acks is {settings.nats_acks} and stream {key.name} has {partitions} partitions"
        return reason, "an ack names a sequence of one partition: use a stream with one, or nats_acks off"
    for _, stream in sorted(state.streams.items()):
        if stream.key == key or stream.settings.nats_acks == "off":
            continue
        if subjects_overlap(subject, stream.subject):
            shown = f"{stream.namespace}/{stream.name}"
            reason = f"subject {subject} overlaps with {stream.subject} of stream {shown}, whose nats_acks is jetstream"
            return reason, "a message must get one ack: choose another subject, or set nats_acks of one of them to off"
    return None
