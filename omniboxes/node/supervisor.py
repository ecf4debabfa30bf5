"""The instance servers of a node: started, watched, started again, and ended without a trace.

Each child's stdout is the control channel, one JSON object a line; its stdin is held open, so that
it ends when this process does. The supervisor turns what it sees into events and hands them to one
synchronous function, in order. A child that dies or hangs is replaced, for ever, with a growing
pause between quick deaths; what it left running is killed and its directory removed before that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniboxes.common.hop import Hop
from omniboxes.common.wire import InstanceId
from omniboxes.errors import OmniboxError
from omniboxes.node.background import Background
from omniboxes.node.launch import Launch, ServerSpec
from omniboxes.node.utils import TempRoot, remove_directory

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 10.0
HEALTHY_S = 60.0
START_S = 60.0
STOP_S = 5.0
DRAIN_S = 0.5
HEALTH_EVERY_S = 3.0
HEALTH_DEADLINE_S = 3.0
HEALTH_FAILURES = 3
MAX_LINE_BYTES = 64 * 1024
STDIN, STDOUT = 0, 1


@dataclass(frozen=True, slots=True)
class Ready:
    """A session can be leased."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Gone:
    """A session ceased to exist: `crashed`, `released` or `recycled`."""

    instance_id: InstanceId
    reason: str


@dataclass(frozen=True, slots=True)
class EgressRefused:
    """Pages asked for so many refused addresses."""

    count: int


@dataclass(frozen=True, slots=True)
class Down:
    """An instance server ended, and with it all its sessions."""

    port: int


Event = Ready | Gone | EgressRefused | Down
Report = Callable[[Event], None]


def pause_s(quick_deaths: int) -> float:
    """Return how long to wait before the next start; the first one comes at once."""
    if quick_deaths <= 1:
        return 0.0
    # The exponent is bounded because a float is not.
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(quick_deaths - 2, 10))


def starts_at_once() -> int:
    """Return how many servers may start together: launching a Chromium takes about a core."""
    return max(2, (os.cpu_count() or 2) // 2)


class Supervisor:
    """All instance servers of a node."""

    def __init__(self, launch: Launch, *, hop: Hop, background: Background, report: Report) -> None:
        starts = asyncio.Semaphore(starts_at_once())
        self._children = {
            spec.port: Child(spec, launch=launch, hop=hop, starts=starts, report=report)
            for spec in launch.servers
        }
        self._background = background
        self._root: TempRoot | None = None

    @property
    def restarts(self) -> int:
        """How often a server had to be started again."""
        return sum(child.restarts for child in self._children.values())

    async def open(self) -> None:
        """Start all servers; returns before they are ready."""
        self._root = await asyncio.to_thread(TempRoot)
        for port, child in self._children.items():
            self._background.start(child.run(self._root), f"instance-server-{port}")

    def restart(self, port: int) -> None:
        """Kill a server that does not do its work; a new one takes its place."""
        self._children[port].kill()

    async def aclose(self) -> None:
        """End all servers: ask, wait, kill; then remove what they left."""
        if self._root is None:
            return
        async with asyncio.TaskGroup() as group:
            for child in self._children.values():
                group.create_task(child.stop())
        await asyncio.to_thread(self._root.remove)


class _Channel(asyncio.SubprocessProtocol):
    """The control channel of one life: whole lines from stdout, and its end.

    The end of the process is noted by itself: whatever inherited its stdout can keep that open.
    """

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self.closed = asyncio.Event()
        self.exited = asyncio.Event()
        self.either = asyncio.Event()
        self._on_line = on_line
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take in what the child wrote."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._on_line(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of stdout; our own end of stdin is of no interest."""
        if fd == STDOUT:
            self.closed.set()
            self.either.set()

    def process_exited(self) -> None:
        """Note the end of the process."""
        self.exited.set()
        self.either.set()


class _Life(NamedTuple):
    """One running process of a child."""

    transport: asyncio.SubprocessTransport
    channel: _Channel

    def end(self) -> None:
        """Ask the process to end."""
        stdin = self.transport.get_pipe_transport(STDIN)
        if stdin is not None:
            stdin.close()
        with suppress(ProcessLookupError):
            self.transport.terminate()

    def kill(self) -> None:
        """Kill the process and what is in its session, which it leads."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.transport.get_pid(), signal.SIGKILL)


class Child:
    """One instance server through all its lives."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        launch: Launch,
        hop: Hop,
        starts: asyncio.Semaphore,
        report: Report,
    ) -> None:
        self.restarts = 0
        self._spec = spec
        self._launch = launch
        self._hop = hop
        self._starts = starts
        self._report = report
        self._life: _Life | None = None
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._listening = asyncio.Event()
        self._started = asyncio.Event()
        self._may_start = False
        self._ready = 0

    async def run(self, root: TempRoot) -> None:
        """Keep the server alive until `stop`."""
        quick_deaths = 0
        try:
            while not self._stopping.is_set():
                born = time.monotonic()
                try:
                    await self._live(root)
                except Exception:  # a background loop: the next life is the remedy
                    logger.exception("Instance server %d could not be run", self._spec.port)
                if self._stopping.is_set():
                    break
                self.restarts += 1
                lived_s = time.monotonic() - born
                quick_deaths = 1 if lived_s >= HEALTHY_S else quick_deaths + 1
                await self._pause(pause_s(quick_deaths), lived_s)
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        """End the server; returns when it has ended and its directory is gone."""
        self._stopping.set()
        if self._life is not None:
            self._life.end()
        if not await _is_set_within(self._stopped, STOP_S):
            logger.warning("Instance server %d does not end; killing it", self._spec.port)
            self.kill()
            await self._stopped.wait()

    def kill(self) -> None:
        """Kill the server, if it is running."""
        if self._life is not None and not self._life.channel.exited.is_set():
            self._life.kill()

    async def _pause(self, seconds: float, lived_s: float) -> None:
        logger.warning(
            "Instance server %d ended after %.1f s; starting it again in %.1f s",
            self._spec.port,
            lived_s,
            seconds,
        )
        await _is_set_within(self._stopping, seconds)

    async def _live(self, root: TempRoot) -> None:
        directory = await asyncio.to_thread(root.make, self._spec.port)
        try:
            await self._starts.acquire()
            self._may_start = True
            if not self._stopping.is_set():
                await self._attend(await self._spawn(directory))
        finally:
            self._let_others_start()
            await asyncio.shield(asyncio.to_thread(remove_directory, directory))

    def _let_others_start(self) -> None:
        if self._may_start:
            self._may_start = False
            self._starts.release()

    async def _spawn(self, directory: Path) -> _Life:
        self._listening.clear()
        self._started.clear()
        self._ready = 0
        loop = asyncio.get_running_loop()
        transport, channel = await loop.subprocess_exec(
            lambda: _Channel(self._dispatch),
            *self._launch.argv(self._spec),
            env=self._launch.environ(directory),
            stderr=None,
            # Ctrl-C in a terminal reaches the top process only, which ends the others in order.
            start_new_session=True,
        )
        return _Life(transport, channel)

    async def _attend(self, life: _Life) -> None:
        """Follow one life from its start until the process has ended."""
        self._life = life
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                await life.channel.either.wait()
                watch.cancel()
            if life.channel.exited.is_set():
                # What it wrote last may still be in the pipe.
                await _is_set_within(life.channel.closed, DRAIN_S)
        except BaseException:
            life.kill()
            raise
        finally:
            self._report(Down(self._spec.port))
            self._life = None
            await self._bury(life)

    async def _bury(self, life: _Life) -> None:
        # Without its control channel a server is of no use, so it has to end as well.
        await _is_set_within(life.channel.exited, STOP_S)
        life.kill()
        if not await _is_set_within(life.channel.exited, STOP_S):
            logger.error("Instance server %d cannot be killed", self._spec.port)
        life.transport.close()

    def _dispatch(self, line: bytes) -> None:
        try:
            event = self._parse(json.loads(line))
        except (ValueError, KeyError, TypeError):
            logger.warning("Instance server %d wrote no event: %.200r", self._spec.port, line)
            return
        if event is not None:
            self._report(event)

    def _parse(self, fields: dict[str, Any]) -> Event | None:
        match fields["event"]:
            case "listening":
                self._listening.set()
                return None
            case "ready":
                self._ready += 1
                if self._ready >= self._spec.slots:
                    self._started.set()
                return Ready(self._instance_id(fields))
            case "gone":
                return Gone(self._instance_id(fields), str(fields["reason"]))
            case "egress_refused":
                return EgressRefused(int(fields["count"]))
            case other:
                raise ValueError(f"unknown event {other}")

    def _instance_id(self, fields: dict[str, Any]) -> InstanceId:
        return InstanceId(f"{fields['instance_id']}:{self._spec.port}")

    async def _watch(self) -> None:
        """Kill the server when it does not start, or stops answering."""
        is_started = await _is_set_within(self._started, START_S)
        self._let_others_start()
        if not is_started and not self._listening.is_set():
            logger.error("Instance server %d does not start; killing it", self._spec.port)
            self.kill()
            return
        url = f"http://127.0.0.1:{self._spec.port}/healthz"
        failures = 0
        while failures < HEALTH_FAILURES:
            if await _is_set_within(self._stopping, HEALTH_EVERY_S):
                return
            try:
                await self._hop.json("GET", url, deadline_s=HEALTH_DEADLINE_S)
            except OmniboxError as exc:
                failures += 1
                logger.warning("Instance server %d: %s", self._spec.port, exc.detail)
            else:
                failures = 0
        logger.error("Instance server %d hangs; killing it", self._spec.port)
        self.kill()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
