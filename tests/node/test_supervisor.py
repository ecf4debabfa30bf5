"""The supervisor over real child processes: they are replaced, and nothing of them is left."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from omniboxes.common.hop import Hop
from omniboxes.common.settings import Settings
from omniboxes.common.wire import InstanceId
from omniboxes.errors import NodeUnavailable, SetupError
from omniboxes.node.background import Background
from omniboxes.node.launch import Launch, ServerSpec, environment, plan
from omniboxes.node.supervisor import Down, Event, Gone, Ready, Supervisor, pause_s
from omniboxes.node.utils import PREFIX, TempRoot
from tests.master.running import free_port
from tests.node.running import CHILD_SERVER, left_in

KEY = "the instances' key"


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    with blockbuster_ctx("omniboxes") as blockbuster:
        yield blockbuster


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of the test's own, so that what is left in it is ours."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


class Watched:
    """A supervisor and all it reported."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.supervisor: Supervisor
        self.hop: Hop
        self._changed = asyncio.Event()

    def report(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def ids(self) -> list[InstanceId]:
        return [event.instance_id for event in self.events if isinstance(event, Ready)]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def post(self, instance_id: str, path: str, body: bytes | None = None) -> Any:
        uuid, _, port = instance_id.partition(":")
        return await self.hop.json(
            "POST",
            f"http://127.0.0.1:{port}{path}",
            deadline_s=10,
            params={"instance_id": uuid},
            body=body,
        )

    async def command(self, instance_id: str, command: bytes) -> Any:
        return await self.post(instance_id, "/execute", body=command)


@asynccontextmanager
async def supervised(*slots: int, **variables: str) -> AsyncIterator[Watched]:
    servers = tuple(ServerSpec(free_port(), count) for count in slots)
    variables = {**os.environ, "OMNIBOX_INSTANCE_KEY": KEY, **variables}
    watched = Watched()
    async with Hop.open(KEY) as watched.hop, Background() as background:
        watched.supervisor = Supervisor(
            Launch(servers, CHILD_SERVER, variables),
            hop=watched.hop,
            background=background,
            report=watched.report,
        )
        await watched.supervisor.open()
        try:
            yield watched
        finally:
            await watched.supervisor.aclose()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_children_announce_their_sessions(temp: Path) -> None:
    async with supervised(2, 1) as watched:
        await watched.until(lambda: len(watched.ids()) == 3)
        assert len({instance_id.partition(":")[2] for instance_id in watched.ids()}) == 2
        assert watched.supervisor.restarts == 0
    assert left_in(temp) == []


async def test_killed_child_is_replaced_without_a_trace(temp: Path) -> None:
    async with supervised(1) as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
        (first,) = watched.ids()
        await watched.post(first, "/get")
        left = await watched.command(first, b'{"litter": {}}')
        assert is_running(left["litter_pid"])
        os.kill(left["pid"], signal.SIGKILL)
        await watched.until(lambda: len(watched.ids()) == 2)
        assert not is_running(left["litter_pid"])
        assert not Path(left["file"]).parent.exists()
        assert [type(event) for event in watched.events] == [Ready, Down, Ready]
        assert watched.supervisor.restarts == 1
    assert left_in(temp) == []


async def test_stop_leaves_nothing_of_what_a_child_started(temp: Path) -> None:
    async with supervised(1) as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
        (first,) = watched.ids()
        await watched.post(first, "/get")
        left = await watched.command(first, b'{"litter": {}}')
    assert not is_running(left["litter_pid"])
    assert left_in(temp) == []


async def test_child_that_ends_by_itself_is_replaced(temp: Path) -> None:
    async with supervised(1) as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
        await watched.post(watched.ids()[0], "/get")
        with pytest.raises(NodeUnavailable):
            await watched.command(watched.ids()[0], b'{"exit": {}}')
        await watched.until(lambda: len(watched.ids()) == 2)


async def test_restart_replaces_a_child(temp: Path) -> None:
    async with supervised(1) as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
        watched.supervisor.restart(int(watched.ids()[0].partition(":")[2]))
        await watched.until(lambda: len(watched.ids()) == 2)


async def test_child_that_cannot_start_is_tried_again_and_again(temp: Path) -> None:
    async with supervised(1, CHILD_DIES="1") as watched:
        await watched.until(lambda: len(watched.events) == 3)
        assert {type(event) for event in watched.events} == {Down}
    assert left_in(temp) == []


async def test_events_come_in_order_and_name_the_port(temp: Path) -> None:
    async with supervised(1) as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
        (first,) = watched.ids()
        await watched.post(first, "/get")
        await watched.post(first, "/reset")
        await watched.until(lambda: len(watched.ids()) == 2)
        second = watched.ids()[1]
        assert watched.events == [Ready(first), Gone(first, "released"), Ready(second)]


@pytest.mark.slow
async def test_child_that_does_not_answer_is_replaced(temp: Path) -> None:
    async with supervised(1, CHILD_DEAF="1") as watched:
        await watched.until(lambda: Down in map(type, watched.events))


@pytest.mark.slow
async def test_child_that_does_not_end_is_killed(temp: Path) -> None:
    async with supervised(1, CHILD_STUBBORN="1") as watched:
        await watched.until(lambda: len(watched.ids()) == 1)
    assert left_in(temp) == []


def test_first_restart_comes_at_once_and_the_pause_is_bounded() -> None:
    assert [pause_s(deaths) for deaths in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 2.0]
    assert pause_s(10_000) == 10.0


def test_node_that_was_killed_leaves_a_directory_for_the_next_to_remove(temp: Path) -> None:
    code = "from omniboxes.node.utils import TempRoot; import os; TempRoot(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    living = TempRoot()
    assert list(temp.glob(f"{PREFIX}*")) == [living.path]
    TempRoot().remove()
    assert living.path.exists()
    living.remove()
    assert left_in(temp) == []


@pytest.mark.parametrize(
    ("instances", "slots", "shares"),
    [(8, 4, [4, 4]), (6, 4, [3, 3]), (5, 2, [2, 2, 1]), (1, 4, [1])],
)
def test_sessions_are_spread_evenly(instances: int, slots: int, shares: list[int]) -> None:
    servers = plan(instances, slots, 9000)
    assert [server.slots for server in servers] == shares
    assert [server.port for server in servers] == [9000 + n for n in range(len(shares))]


def test_ports_end_where_there_are_none() -> None:
    with pytest.raises(SetupError, match="65535"):
        plan(8, 4, 65535)


def test_instances_learn_no_secret_of_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBOX_API_KEY", "hush")
    monkeypatch.setenv("OMNIBOX_NODE_KEY", "hush")
    settings = Settings(redis_url="redis://:hush@localhost", enable_evaluate=True)
    made = environment(settings, instance_key=KEY, guarded_ports=[8080])
    assert "hush" not in "".join(made.values())
    assert made["OMNIBOX_INSTANCE_KEY"] == KEY
    assert made["OMNIBOX_ENABLE_EVALUATE"] == "true"


def test_addresses_of_the_tier_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBOX_GUARDED_PORTS", "7000, 8080")
    local = environment(
        Settings(redis_url="redis://127.0.0.1:6390"), instance_key=KEY, guarded_ports=[8080, 9000]
    )
    assert local["OMNIBOX_GUARDED_PORTS"] == "7000,8080,9000,6390"
    assert local["OMNIBOX_GUARDED_ENDPOINTS"] == ""
    remote = environment(
        Settings(redis_url="redis://192.0.2.7"), instance_key=KEY, guarded_ports=[]
    )
    assert remote["OMNIBOX_GUARDED_PORTS"] == "7000,8080"
    assert remote["OMNIBOX_GUARDED_ENDPOINTS"] == "192.0.2.7:6379"
