"""What happens to streams and groups, kept until the activity stream has it. Pure."""

from dataclasses import replace

from bascule.metadata.model import MAX_ACTIVITY, Activity, State


def happened(state: State, event: Activity) -> State:
    """`state` with `event` kept as the newest, when such events are wanted."""
    if not state.activity_on:
        return state
    return replace(state, activity=(*state.activity, event)[-MAX_ACTIVITY:])
