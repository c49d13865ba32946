"""Makes the asynchronous client from the synchronous one.

The native core waits in threads, so an asynchronous object is a blocking object with threads in which its methods run:
`awaited(Client.publish)` is `Client.publish` to be awaited, with its parameters, types and documentation. Nothing here
blocks the event loop, and nothing is awaited per record.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

__all__ = ["AsyncReader", "AsyncResource", "AsyncWrapper", "adapted", "awaited"]


class Resource(Protocol):
    """A blocking object that is opened and closed."""

    def open(self) -> object:
        """Open it now; may block."""

    def close(self) -> object:
        """Close it without waiting for the broker; calls in other threads end."""


P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", bound=Resource, covariant=True)
T = TypeVar("T")
U = TypeVar("U")


class AsyncWrapper(Generic[S_co]):
    """A blocking object and the threads in which its methods run. For one event loop."""

    def __init__(self, blocking: S_co, threads: int, name: str) -> None:
        """`threads`: maximum number of concurrent calls, further ones queue; `name`: prefix of the threads' names."""
        self._blocking: Final = blocking
        self._threads: Final = ThreadPoolExecutor(threads, name)

    async def _run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.wrap_future(self._threads.submit(function, *arguments, **named))


class AsyncResource(AsyncWrapper[R_co]):
    """A wrapper that `async with` opens and closes."""

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """As `open` of the synchronous class."""
        await self._run(self._blocking.open)

    async def close(self) -> None:
        """As `close` of the synchronous class."""
        self._blocking.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class AsyncReader(AsyncResource[R_co]):
    """A wrapper with one thread of its own, because its calls may wait for as long as it is open."""

    def __init__(self, blocking: R_co, name: str) -> None:
        """`name`: prefix of the thread's name."""
        super().__init__(blocking, 1, name)
        self._waiting: Future[Any] | None = None

    async def _run_or_continue(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """As `_run`, but a cancelled call continues in the thread, and the next one returns its result."""
        if self._waiting is None:
            self._waiting = self._threads.submit(function, *arguments, **named)
        try:
            result = await asyncio.shield(asyncio.wrap_future(self._waiting))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._waiting = None
            raise
        self._waiting = None
        return result


def awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[AsyncWrapper[S], P], Coroutine[Any, Any, T]]:
    """The method of a wrapper that runs a blocking method in a thread. Cancelling it does not end the method."""

    @wraps(method)
    async def call(self: AsyncWrapper[S], /, *arguments: P.args, **named: P.kwargs) -> T:
        own: Callable[P, T] = getattr(self._blocking, method.__name__)  # pyright: ignore[reportPrivateUsage]
        return await self._run(own, *arguments, **named)  # pyright: ignore[reportPrivateUsage]

    return call


def adapted(
    method: Callable[Concatenate[S, P], T], wrapper: Callable[[T], U], documentation: str
) -> Callable[Concatenate[AsyncWrapper[S], P], U]:
    """The method of a wrapper that calls a method which does not block, and wraps its result in the class `wrapper`."""

    @wraps(method)
    def call(self: AsyncWrapper[S], /, *arguments: P.args, **named: P.kwargs) -> U:
        own: Callable[P, T] = getattr(self._blocking, method.__name__)  # pyright: ignore[reportPrivateUsage]
        return wrapper(own(*arguments, **named))

    call.__doc__ = documentation
    call.__annotations__ = {**method.__annotations__, "return": wrapper}
    call.__dict__["__signature__"] = inspect.signature(method).replace(return_annotation=wrapper)
    return call
