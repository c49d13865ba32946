"""Events of streams and groups that are kept until the activity stream has them. Pure."""

from dataclasses import replace

from bascule.metadata.model import MAX_ACTIVITY, Activity, State


def record_activity(state: State, event: Activity) -> State:
    """Add `event` to the state, unless activity is off."""
    if not state.activity_on:
        return state
    return replace(state, activity=(*state.activity, event)[-MAX_ACTIVITY:])
