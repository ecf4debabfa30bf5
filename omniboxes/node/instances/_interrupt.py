"""Ending the blocks that are running when the thing they depend on dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Interrupt:
    """A block that ends with `error` as soon as `fire` is called, now or before it was entered.

    Works like `asyncio.timeout`, with an event in the place of the clock: every task that is in
    the block is cancelled once, and that cancellation leaves the block as the error. A task is in
    the block once at a time.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._tasks: dict[asyncio.Task[object], int] = {}

    @property
    def has_fired(self) -> bool:
        """Whether the block can no longer run."""
        return self._error is not None

    def fire(self, error: Exception) -> None:
        """End the blocks that are running, and every later one, with this error."""
        if self._error is not None:
            return
        self._error = error
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        if self._error is not None:
            raise self._error
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = task.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling_before = self._tasks.pop(task)
        if self._error is None:
            return
        # Ours is one cancellation; more than that came from outside and goes on.
        if task.uncancel() <= cancelling_before and kind is not None:
            raise self._error from error
