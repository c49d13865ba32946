"""Decorators that add shared options to a command and pass them as one argument."""

import inspect
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

__all__ = ["bundled"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def bundled(
    parameters: Sequence[inspect.Parameter], bundle: Callable[..., T]
) -> Callable[[Callable[Concatenate[T, P], R]], Callable[..., R]]:
    """A decorator: adds these options to a command, and passes the result of `bundle` for their values as its first
    argument.

    Args:
        parameters: keyword-only, annotated as those of commands; their names are those of `bundle`'s arguments.
        bundle: called with all of them by name.
    """
    names = [parameter.name for parameter in parameters]

    def decorate(command: Callable[Concatenate[T, P], R]) -> Callable[..., R]:
        def run(*arguments: P.args, **named: P.kwargs) -> R:
            shared = {name: named.pop(name) for name in names}
            return command(bundle(**shared), *arguments, **named)

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())[1:]
        # a stable sort: positional parameters stay first
        every = sorted([*own, *parameters], key=lambda parameter: parameter.kind)
        run.__signature__ = signature.replace(parameters=every)  # pyright: ignore[reportFunctionMemberAccess]
        run.__annotations__ = {}
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(run, name, getattr(command, name))
        return run

    return decorate
