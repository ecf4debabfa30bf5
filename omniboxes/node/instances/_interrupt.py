"""Ending the block that is running when the thing it depends on dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Interrupt:
    """A block that ends with `error` as soon as `fire` is called, now or before it was entered.

    Works like `asyncio.timeout`, with an event in the place of the clock: the running task is
    cancelled once, and that cancellation leaves the block as the error.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    @property
    def has_fired(self) -> bool:
        """Whether the block can no longer run."""
        return self._error is not None

    def fire(self, error: Exception) -> None:
        """End the running block, if there is one, and every later one, with this error."""
        if self._error is not None:
            return
        self._error = error
        if self._task is not None:
            self._task.cancel()

    async def __aenter__(self) -> Self:
        if self._error is not None:
            raise self._error
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._error is None:
            return
        # Ours is one cancellation; more than that came from outside and goes on.
        if task.uncancel() <= self._cancelling and kind is not None:
            raise self._error from error
