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
from typing import Any

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
        self._process: asyncio.subprocess.Process | None = None
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
        if (process := self._process) is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._stopped.wait()
        except TimeoutError:
            logger.warning("Instance server %d does not end; killing it", self._spec.port)
            self.kill()
            await self._stopped.wait()

    def kill(self) -> None:
        """Kill the server, if it is running."""
        if self._process is not None and self._process.returncode is None:
            _kill_session(self._process)

    async def _pause(self, seconds: float, lived_s: float) -> None:
        logger.warning(
            "Instance server %d ended after %.1f s; starting it again in %.1f s",
            self._spec.port,
            lived_s,
            seconds,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _live(self, root: TempRoot) -> None:
        directory = await asyncio.to_thread(root.make, self._spec.port)
        try:
            await self._starts.acquire()
            self._may_start = True
            if not self._stopping.is_set():
                self._process = await self._spawn(directory)
                await self._attend(self._process)
        finally:
            self._let_others_start()
            self._process = None
            await asyncio.shield(asyncio.to_thread(remove_directory, directory))

    def _let_others_start(self) -> None:
        if self._may_start:
            self._may_start = False
            self._starts.release()

    async def _spawn(self, directory: Path) -> asyncio.subprocess.Process:
        self._listening.clear()
        self._started.clear()
        self._ready = 0
        return await asyncio.create_subprocess_exec(
            *self._launch.argv(self._spec),
            env=self._launch.environ(directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            # Ctrl-C in a terminal reaches the top process only, which ends the others in order.
            start_new_session=True,
        )

    async def _attend(self, process: asyncio.subprocess.Process) -> None:
        """Follow one life from its start until the process has ended."""
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                pump = group.create_task(self._pump(process))
                ended = group.create_task(process.wait())
                await asyncio.wait({pump, ended}, return_when=asyncio.FIRST_COMPLETED)
                watch.cancel()
                if ended.done():
                    # What it wrote last may still be in the pipe.
                    await asyncio.wait({pump}, timeout=DRAIN_S)
                self._report(Down(self._spec.port))
                # Without its control channel a server is of no use, so it has to end as well.
                await asyncio.wait({ended}, timeout=STOP_S)
                _kill_session(process)
                await asyncio.wait({ended}, timeout=STOP_S)
                pump.cancel()
                ended.cancel()
        except BaseException:
            _kill_session(process)
            raise

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                logger.warning("Instance server %d wrote an endless line", self._spec.port)
                continue
            if not line:
                return
            self._dispatch(line)

    def _dispatch(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
            event = self._parse(fields)
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
        try:
            async with asyncio.timeout(START_S):
                await self._started.wait()
        except TimeoutError:
            if not self._listening.is_set():
                logger.error("Instance server %d does not start; killing it", self._spec.port)
                self.kill()
                return
        finally:
            self._let_others_start()
        url = f"http://127.0.0.1:{self._spec.port}/healthz"
        failures = 0
        while failures < HEALTH_FAILURES:
            await asyncio.sleep(HEALTH_EVERY_S)
            try:
                await self._hop.json("GET", url, deadline_s=HEALTH_DEADLINE_S)
            except OmniboxError as exc:
                failures += 1
                logger.warning("Instance server %d: %s", self._spec.port, exc.detail)
            else:
                failures = 0
        logger.error("Instance server %d hangs; killing it", self._spec.port)
        self.kill()


def _kill_session(process: asyncio.subprocess.Process) -> None:
    # The child leads a session of its own, so its group holds what it started and nothing else.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
