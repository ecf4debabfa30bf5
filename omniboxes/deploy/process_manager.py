"""The supervisor: starts node and master, keeps them alive, and ends them without a trace.

It is what `omniboxes serve` becomes once the set-up is checked, so it imports little. The children
hold a pipe from it as standard input and end when that closes: not even `kill -9` of the supervisor
leaves one behind. The node supervises its own instance servers and their browsers.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from omniboxes.common import logs

# Run with -m this module is called __main__, which says nothing in a log.
logger = logging.getLogger("omniboxes.deploy.process_manager")

LOOPBACK = "127.0.0.1"
SETUP_STATUS = 2
FAILURE_STATUS = 1

POLL_S = 0.1
PROGRESS_S = 2.0
INFO_TIMEOUT_S = 5.0
START_S = 60.0
START_PER_SESSION_S = 3.0
"""On few cores browsers start one after the other."""

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 15.0
HEALTHY_S = 60.0
"""A child that lived this long is started again at once, however often it has died before."""


class StartFailed(Exception):
    """The tier did not come up; the message is for the user, empty when the child gave its own."""

    def __init__(self, message: str, status: int = FAILURE_STATUS) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, as the command line says."""

    sessions: int
    host: str
    master_port: int
    node_port: int
    instance_start_port: int
    recovery: bool = True

    @property
    def local_host(self) -> str:
        """The address at which this machine reaches the master."""
        wildcards = {"0.0.0.0": LOOPBACK, "::": "::1"}
        return wildcards.get(self.host, self.host)

    def node_command(self) -> list[str]:
        """Return the node's command line."""
        return _server(
            "omniboxes.node.server",
            host=LOOPBACK,
            port=self.node_port,
            instances=self.sessions,
            instance_start_port=self.instance_start_port,
        )

    def master_command(self) -> list[str]:
        """Return the master's command line."""
        nodes = f"http://{LOOPBACK}:{self.node_port}"
        server = "omniboxes.master.server"
        return _server(server, host=self.host, port=self.master_port, nodes=nodes)


def _server(module: str, **flags: object) -> list[str]:
    given = [
        part
        for name, value in flags.items()
        for part in ("--" + name.replace("_", "-"), str(value))
    ]
    return [sys.executable, "-P", "-m", module, *given, "--end-with-parent"]


class Child:
    """One server process through all its lives."""

    def __init__(self, name: str, command: list[str], *, grace_s: float) -> None:
        self.name = name
        self._command = command
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process of the present life, if there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def live(self, environment: dict[str, str]) -> int:
        """Run the server to its end and return its exit status."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            # Ctrl-C in a terminal must reach the supervisor alone, which ends the others in order.
            start_new_session=True,
        )
        return await self._process.wait()

    async def stop(self) -> bool:
        """End the server; return whether it had to be killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            logger.warning("The %s does not end; killing it", self.name)
            self.kill()
            await process.wait()
        return process.returncode == -signal.SIGKILL

    def kill(self) -> None:
        """Kill the server with everything it started."""
        if self._process is not None and self._process.returncode is None:
            _kill_tree(self._process.pid)


def _kill_tree(pid: int) -> None:
    import psutil  # rarely needed, and the supervisor is to be small

    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        # The parent first, or it would start again what it sees dying.
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def pause_s(quick_deaths: int) -> float:
    """Return how long to wait before a child is started again; the first time not at all."""
    if quick_deaths <= 1:
        return 0.0
    # The exponent is bounded because a float is not.
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(quick_deaths - 2, 10))


class ProcessManager:
    """Node and master of one machine."""

    def __init__(self, plan: Plan, announce: Callable[[str], None]) -> None:
        self._plan = plan
        self._announce = announce
        self._node = Child("node server", plan.node_command(), grace_s=30)
        self._master = Child("master server", plan.master_command(), grace_s=15)
        self._key = os.environ.get("OMNIBOX_API_KEY")
        self._is_ready = False
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM and return the exit status of the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        status = 0
        try:
            await self._serve()
        except* StartFailed as failures:
            status = _report(failures)
        finally:
            await self._shut_down()
        return status

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            logger.info("Stopping; a second signal stops at once")
            self._stop.set()
            return
        for child in (self._master, self._node):
            child.kill()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._keep(self._node)),
                group.create_task(self._keep(self._master)),
                group.create_task(self._come_up()),
            ]
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    async def _keep(self, child: Child) -> None:
        """Run a child for ever; before the tier is up, or without recovery, its end is the end."""
        quick_deaths = 0
        while True:
            born = time.monotonic()
            status = await child.live(self._environment())
            if not self._is_ready or not self._plan.recovery:
                raise _failure(child, status)
            quick_deaths = 1 if time.monotonic() - born > HEALTHY_S else quick_deaths + 1
            seconds = pause_s(quick_deaths)
            logger.warning(
                "The %s ended (%s); starting it again in %.1f s", child.name, _end(status), seconds
            )
            await asyncio.sleep(seconds)

    def _environment(self) -> dict[str, str]:
        # No page may reach the tier itself; node and instances know their own ports.
        return {**os.environ, "OMNIBOX_GUARDED_PORTS": str(self._plan.master_port)}

    async def _come_up(self) -> None:
        plan = self._plan
        limit_s = START_S + START_PER_SESSION_S * plan.sessions
        started = reported = time.monotonic()
        while (ready := await asyncio.to_thread(self._ready_sessions)) < plan.sessions:
            now = time.monotonic()
            if now - started > limit_s:
                raise StartFailed(
                    f"Only {ready} of {plan.sessions} sessions were ready after {limit_s:.0f} s; "
                    "the log above says why. Fewer sessions may fit this machine."
                )
            if now - reported > PROGRESS_S:
                logger.info("%d of %d sessions are ready", ready, plan.sessions)
                reported = now
            await asyncio.sleep(POLL_S)
        self._is_ready = True
        self._announce(self._welcome())

    def _ready_sessions(self) -> int:
        """Return how many sessions the master sees, none while it does not answer."""
        headers = {"x-api-key": self._key} if self._key else {}
        connection = http.client.HTTPConnection(
            self._plan.local_host, self._plan.master_port, timeout=INFO_TIMEOUT_S
        )
        try:
            connection.request("GET", "/info", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
        if answer.status != http.client.OK:
            return 0
        nodes: list[dict[str, Any]] = json.loads(body)["nodes"]
        return sum(node["available"] + len(node["instances"]) for node in nodes)

    def _welcome(self) -> str:
        plan = self._plan
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        local = f"[{plan.local_host}]" if ":" in plan.local_host else plan.local_host
        noun = "session" if plan.sessions == 1 else "sessions"
        key = "Clients send the key as x-api-key." if self._key else "No key is needed."
        header = '-H "x-api-key: $OMNIBOX_API_KEY" ' if self._key else ""
        return (
            f"{plan.sessions} {noun} ready at http://{host}:{plan.master_port}\n{key} Try:\n"
            f"  curl -X POST {header}http://{local}:{plan.master_port}/get"
        )

    async def _shut_down(self) -> None:
        """End the master, so that nothing new comes, then the node with all its browsers."""
        was_killed = [await child.stop() for child in (self._master, self._node)]
        if any(was_killed):
            await asyncio.to_thread(_remove_leftovers)


def _remove_leftovers() -> None:
    from omniboxes.node.utils import remove_abandoned  # rarely needed

    remove_abandoned()


def _failure(child: Child, status: int) -> StartFailed:
    if status == SETUP_STATUS:
        return StartFailed("", SETUP_STATUS)
    return StartFailed(f"The {child.name} ended ({_end(status)}); the log above says why.")


def _end(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _report(failures: ExceptionGroup[StartFailed]) -> int:
    """Print the first failure, preferring a child's own sentence, and return its status."""
    flat = [failure for failure in failures.exceptions if isinstance(failure, StartFailed)]
    failure = max(flat, key=lambda each: each.status)
    if str(failure):
        click.echo(str(failure), err=True)
    return failure.status


@click.command()
@click.argument("sessions", type=int)
@click.option("--host", default=LOOPBACK)
@click.option("--master-port", default=7000)
@click.option("--node-port", default=8080)
@click.option("--instance-start-port", default=9000)
@click.option("--disable-recovery", is_flag=True)
def main(disable_recovery: bool, **flags: Any) -> None:
    """Supervise node and master; started by `omniboxes serve` after its checks."""
    logs.configure("serve", os.environ.get("OMNIBOX_LOG_LEVEL", "INFO"))
    plan = Plan(**flags, recovery=not disable_recovery)
    sys.exit(asyncio.run(_run(plan)))


async def _run(plan: Plan) -> int:
    return await ProcessManager(plan, click.echo).run()


if __name__ == "__main__":
    main()
