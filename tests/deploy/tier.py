"""The whole tier as its users start it: a command of its own, on free ports, in its own TMPDIR."""

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil

ROOT = Path(__file__).parents[2]
SERVE = ("-m", "omniboxes", "serve")
DEPLOY = (str(ROOT / "omniboxes" / "deploy" / "deploy.py"),)
READY_S = 60.0
END_S = 25.0


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, each different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def environment(**variables: str) -> dict[str, str]:
    """Return our environment without settings of the tier, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIBOX_")}
    return {**kept, **variables}


async def run(*arguments: str, cwd: Path = ROOT, **variables: str) -> Ended:
    """Run `python *arguments` to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=cwd, env=environment(**variables), stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(END_S):
            stdout, stderr = await process.communicate()
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, stdout.decode(), stderr.decode())


class Tier:
    """A running tier."""

    def __init__(
        self, process: asyncio.subprocess.Process, ports: Sequence[int], tmp: Path
    ) -> None:
        self.process = process
        self.master_port, self.node_port, self.instance_port = ports
        self.tmp = tmp
        self.welcome = ""
        self._seen: set[psutil.Process] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.master_port}"

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the tier now, the supervisor first."""
        supervisor = psutil.Process(self.process.pid)
        found = [supervisor, *supervisor.children(recursive=True)]
        self._seen.update(found)
        return found

    def server(self, module: str) -> psutil.Process:
        """Return the child that runs a module."""
        for process in self.processes()[0].children():
            with suppress(psutil.Error):  # one that is just ending
                if module in process.cmdline():
                    return process
        raise AssertionError(f"no child runs {module}")

    def command_lines(self) -> list[str]:
        """Return the command line of every process, those that are just ending left out."""
        lines = []
        for process in self.processes():
            with suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        return lines

    async def until_ready(self) -> None:
        """Wait for the lines that say where the tier listens."""
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_S):
            while "/get" not in self.welcome:
                line = await self.process.stdout.readline()
                assert line, "the tier ended before it was ready"
                self.welcome += line.decode()
        self.processes()

    def signal(self, number: signal.Signals) -> None:
        self.processes()
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the supervisor's end and return its status."""
        async with asyncio.timeout(END_S):
            return await self.process.wait()

    async def assert_nothing_left(self, within_s: float = 0.0) -> None:
        """Assert that no process ever seen still runs, and that TMPDIR is empty."""
        deadline = time.monotonic() + within_s
        while (left := self._left()) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert left == []

    def _left(self) -> list[str]:
        running = [str(process) for process in self._seen if _is_running(process)]
        return running + [str(path) for path in self.tmp.iterdir()]

    def kill(self) -> None:
        """End whatever is left, by the processes that were seen."""
        for process in self._seen:
            if _is_running(process):
                process.kill()


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def serve(
    *flags: str,
    command: Sequence[str] = SERVE,
    variables: Mapping[str, str] | None = None,
    waits: bool = True,
) -> AsyncIterator[Tier]:
    """Start a tier of two sessions, yield it when it is ready, and leave nothing of it."""
    ports = free_ports(3)
    # Short, because Chromium makes Unix sockets below it.
    tmp = Path(tempfile.mkdtemp(prefix="tier-"))
    arguments = [*command, "2", "--master-port", str(ports[0]), "--node-port", str(ports[1])]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        "--instance-start-port",
        str(ports[2]),
        *flags,
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp), **(variables or {})),
        stdout=PIPE,
    )
    tier = Tier(process, ports, tmp)
    try:
        if waits:
            await tier.until_ready()
        yield tier
    finally:
        if process.returncode is None:
            process.terminate()
            await tier.ended()
        tier.kill()
        shutil.rmtree(tmp, ignore_errors=True)


@asynccontextmanager
async def client_of(tier: Tier, key: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the tier's master."""
    headers = {"x-api-key": key} if key else None
    timeout = aiohttp.ClientTimeout(total=40)
    async with aiohttp.ClientSession(tier.url, headers=headers, timeout=timeout) as client:
        yield client


async def ask(client: aiohttp.ClientSession, method: str, path: str, **kwargs: Any) -> Any:
    """Return the JSON of an answer that must be 200."""
    async with client.request(method, path, **kwargs) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()
