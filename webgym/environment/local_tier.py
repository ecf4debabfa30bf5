"""An omniboxes of one's own: `omniboxes serve` as a child process on free ports.

For the demo, the benchmarks and anybody who wants browsers for the length of a block.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omniboxes.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class LocalTier:
    """A running tier."""

    url: str
    pid: int
    sessions: int


@asynccontextmanager
async def local_tier(
    sessions: int,
    *,
    flags: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> AsyncIterator[LocalTier]:
    """Serve that many sessions for the length of the block; nothing is left behind it."""
    master_port, node_port, start_port = _free_ports(sessions)
    command = [
        *(sys.executable, "-m", "omniboxes", "serve", str(sessions)),
        *("--master-port", str(master_port), "--node-port", str(node_port)),
        *("--instance-start-port", str(start_port), *flags),
    ]
    with ExitStack() as stack:
        stderr = None if log is None else stack.enter_context(log.open("wb"))
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **(environment or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        assert process.stdout is not None
        draining: asyncio.Task[None] | None = None
        try:
            await _until_ready(process)
            # The pipe is read on, or the child would block on a full one.
            draining = asyncio.create_task(_drain(process.stdout), name="drain-tier")
            yield LocalTier(f"http://127.0.0.1:{master_port}", process.pid, sessions)
        finally:
            await _stop(process)
            if draining is not None:
                await draining


async def _until_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while line := await process.stdout.readline():
                if b"ready at" in line:
                    return
    except TimeoutError as exc:
        raise SetupError(f"omniboxes was not ready within {START_LIMIT_S:g} s") from exc
    raise SetupError(f"omniboxes ended with status {await process.wait()} before it was ready")


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_ports(sessions: int) -> tuple[int, int, int]:
    # The instance servers want a run of ports, at most one a session; the others are any.
    with socket.socket() as master, socket.socket() as node:
        master.bind(("127.0.0.1", 0))
        node.bind(("127.0.0.1", 0))
        taken = (master.getsockname()[1], node.getsockname()[1])
        return (*taken, _free_run(sessions, avoiding=taken))


def _free_run(length: int, avoiding: tuple[int, ...]) -> int:
    start = 20000 + (os.getpid() * 64) % 20000
    while start + length < 65535:
        ports = range(start, start + length)
        if not any(port in avoiding for port in ports) and all(map(_is_free, ports)):
            return start
        start += length
    raise SetupError(f"no {length} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
