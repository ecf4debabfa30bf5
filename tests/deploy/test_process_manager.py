"""The supervisor's parts, with real processes."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from omniboxes.deploy.process_manager import MAX_PAUSE_S, Child, Plan, pause_s

PLAN = Plan(sessions=8, host="0.0.0.0", master_port=7000, node_port=8080, instance_start_port=9000)

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""
UNTIL_PARENT_ENDS = "import sys; sys.stdin.read()"


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - another process has no event for us
            await asyncio.sleep(0.01)


async def test_a_child_ends_when_asked() -> None:
    child = Child("server", [sys.executable, "-c", UNTIL_PARENT_ENDS], grace_s=10)
    async with asyncio.TaskGroup() as group:
        life = group.create_task(child.live(dict(os.environ)))
        await until(lambda: child.pid)
        assert await child.stop() is False
    assert life.result() < 0
    assert await child.stop() is False


async def test_a_stubborn_child_is_killed_with_all_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = Child("server", [sys.executable, "-c", STUBBORN, str(file)], grace_s=0.2)
    async with asyncio.TaskGroup() as group:
        life = group.create_task(child.live(dict(os.environ)))
        await until(lambda: file.exists() and file.read_text())
        grandchild = psutil.Process(int(file.read_text()))
        assert await child.stop() is True
    assert life.result() == -9
    await asyncio.to_thread(grandchild.wait, 5)


def test_pauses_grow_to_a_limit() -> None:
    pauses = [pause_s(deaths) for deaths in range(200)]
    assert pauses == sorted(pauses)
    assert pauses[:3] == [0, 0, 0.5]
    assert pauses[-1] == MAX_PAUSE_S


@pytest.mark.parametrize(
    ("host", "local"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")]
)
def test_this_machine_reaches_the_master_at(host: str, local: str) -> None:
    assert Plan(1, host, 7000, 8080, 9000).local_host == local


def test_the_node_listens_on_loopback_whatever_the_master_does() -> None:
    node, master = " ".join(PLAN.node_command()), " ".join(PLAN.master_command())
    assert "--host 127.0.0.1 --port 8080 --instances 8 --instance-start-port 9000" in node
    assert "--host 0.0.0.0 --port 7000 --nodes http://127.0.0.1:8080" in master
    assert node.endswith("--end-with-parent")
    assert master.endswith("--end-with-parent")
