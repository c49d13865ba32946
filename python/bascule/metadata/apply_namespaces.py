"""The part of `apply` that concerns namespaces. Pure."""

from dataclasses import replace

from bascule.metadata import apply_streams, apply_users
from bascule.metadata.commands import CreateNamespace, DeleteNamespace, DeleteStream
from bascule.metadata.model import DEFAULT_NAMESPACE, MAX_NUMBERS, Namespace, State
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected


def create(state: State, _: int, command: CreateNamespace) -> State:
    """Add a namespace without streams; numbers that are chosen automatically are above all that were used."""
    check_name("namespace", command.name)
    if command.name in state.namespaces:
        raise rejected(RejectionCode.NAMESPACE_EXISTS, f"namespace {command.name} exists")
    number = state.next_namespace_id if command.id is None else command.id
    if not 1 <= number < MAX_NUMBERS:
        raise invalid(f"number {number} of a namespace is not between 1 and {MAX_NUMBERS - 1}")
    taken = next((item.name for item in state.namespaces.values() if item.id == number), None)
    if taken is not None:
        raise rejected(RejectionCode.NUMBER_IN_USE, f"namespace {taken} has the number {number}")
    namespace = Namespace(command.name, number, 0, command.created_ns)
    return replace(
        state,
        namespaces={**state.namespaces, namespace.name: namespace},
        next_namespace_id=max(state.next_namespace_id, number + 1),
    )


def delete(state: State, index: int, command: DeleteNamespace) -> State:
    """Remove the namespace with all its streams."""
    found = state.namespaces.get(command.name)
    if found is None or found.id != command.id:
        raise rejected(RejectionCode.NAMESPACE_NOT_FOUND, f"namespace {command.name} does not exist")
    if command.name == DEFAULT_NAMESPACE:
        raise invalid(f"namespace {DEFAULT_NAMESPACE} stays: delete its streams")
    for key, stream in sorted(state.streams.items()):
        if key.namespace == command.name:
            state = apply_streams.delete(state, index, DeleteStream(*key, stream.incarnation))
    state = apply_users.without_namespace(state, found.id)
    return replace(state, namespaces={name: item for name, item in state.namespaces.items() if name != command.name})
