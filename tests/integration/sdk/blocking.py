"""The asynchronous client with the synchronous interface, so that one suite tests both."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

from bascule import AsyncClient, AsyncProducer, AsyncSubscription


class Blocking:
    """Runs each coroutine of the wrapped object until it is done."""

    def __init__(
        self, wrapped: AsyncClient | AsyncProducer | AsyncSubscription, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._wrapped = wrapped
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._wrapped, name)
        if not inspect.ismethod(member):
            return member

        def call(*arguments: Any, **named: Any) -> Any:
            result: Any = member(*arguments, **named)
            if inspect.iscoroutine(result):
                return self._loop.run_until_complete(result)
            if isinstance(result, (AsyncProducer, AsyncSubscription)):
                return Blocking(result, self._loop)
            return self._drain(result)

        return call

    def __iter__(self) -> Iterator[Any]:
        assert isinstance(self._wrapped, AsyncSubscription)
        return self._drain(aiter(self._wrapped))

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._wrapped.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(self._wrapped.__aexit__(kind, failure, trace))

    def _drain(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(anext(items))
            except StopAsyncIteration:
                return
