"""What the instance server needs of a browser session, whatever drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from omniboxes.common.commands import Command
    from omniboxes.node.instances._types import (
        ImageOptions,
        Metadata,
        Shot,
        StepResult,
    )


class BrowserInstance(Protocol):
    """One isolated session. Calls are serialised by the session itself.

    Every call may raise InstanceCrashed once the browser behind it is gone; no call outlives the
    caller's deadline.
    """

    @property
    def is_alive(self) -> bool:
        """Whether the browser behind the session still runs."""

    async def execute(self, command: Command, deadline_s: float) -> dict[str, Any]:
        """Carry out a command, let the page settle, and return the answer."""

    async def step(
        self,
        command: Command | None,
        options: ImageOptions,
        expression: str | None,
        deadline_s: float,
    ) -> StepResult:
        """Carry out a command, settle, and look at the page, all under one lock."""

    async def screenshot(self, options: ImageOptions, deadline_s: float) -> Shot:
        """Look at the page as it is."""

    async def metadata(self, deadline_s: float) -> Metadata:
        """Ask the page itself what it is."""

    def fence(self, error: Exception) -> None:
        """End the running command and every later one with this error."""

    async def aclose(self) -> None:
        """End the session and everything it opened; harmless when already closed."""
