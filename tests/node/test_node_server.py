"""The node server over real child processes: leases, fencing, crashes, outages, its API."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from redis.asyncio import Redis

from omniboxes.common import framing
from omniboxes.common.settings import Settings
from omniboxes.errors import SetupError
from omniboxes.node.launch import INSTANCE_SERVER
from omniboxes.node.metrics import Metrics
from omniboxes.node.node import NodeConfig, open_node
from omniboxes.node.server import create_app
from omniboxes.node.utils import remove_abandoned
from tests.master.redis_server import RedisServer
from tests.master.running import free_port
from tests.node.running import (
    AVAILABLE,
    CHILD_SERVER,
    NodeClient,
    left_in,
    processes_below,
    processes_in,
    serve_node,
)
from tests.site_server import serve_site

NOT_IN_USE = "Instance not in use or already released"
PAGE_ROUTES = ("/probe", "/metadata", "/screenshot")


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    with blockbuster_ctx("omniboxes") as blockbuster:
        for function in blockbuster.functions.values():
            # A new connection of redis-py reads the version of its package from the disk.
            function.can_block_in("redis/utils.py", "get_lib_version")
        yield blockbuster


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clean environment with a temporary directory of its own, which must be empty again."""
    for name in [name for name in os.environ if name.startswith("OMNIBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    assert left_in(tmp_path) == []


def settings(**values: Any) -> Settings:
    return Settings(**{"slots_per_browser": 2, **values})


# Leases.


async def test_lease_use_and_release() -> None:
    async with serve_node(2) as node:
        granted = await node.get(lifetime_mins=5)
        assert (granted.status, granted.headers[AVAILABLE]) == (200, "1")
        instance_id = granted.json["instance_id"]
        assert await node.info() == {"available": 1, "capacity": 2, "in_use": [instance_id]}
        executed = await node.execute(instance_id, {"options": {}})
        assert executed.json["slot"] == instance_id.partition(":")[0]
        released = await node.reset(instance_id)
        assert (released.status, released.json) == (200, {"status": "success"})
        assert released.headers[AVAILABLE] in {"1", "2"}
        await node.until_available(2)
        assert await node.info() == {"available": 2, "capacity": 2, "in_use": []}


async def test_the_name_a_client_gives_is_shown_with_its_lease() -> None:
    async with serve_node(2) as node:
        named = await node.lease({"caller": "run-17"})
        await node.lease()
        assert (await node.info())["callers"] == {named: "run-17"}


async def test_page_routes_are_forwarded() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease()
        for path in PAGE_ROUTES:
            reply = await node.look(path, instance_id)
            assert reply.json["path"] == path
            assert reply.json["query"]["instance_id"] == instance_id.partition(":")[0]


async def test_screenshot_options_are_forwarded() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease()
        wanted = {"interaction_mode": "coordinates", "format": "jpeg", "quality": "40"}
        reply = await node.look("/screenshot", instance_id, **wanted)
        assert wanted.items() <= reply.json["query"].items()
        assert (await node.look("/screenshot", instance_id, format="bmp")).status == 422


async def test_released_id_is_fenced() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease()
        await node.reset(instance_id)
        replies = [await node.reset(instance_id), await node.execute(instance_id, {"options": {}})]
        replies += [await node.look(path, instance_id) for path in PAGE_ROUTES]
        assert {(reply.status, reply.detail) for reply in replies} == {(400, NOT_IN_USE)}
        assert replies[0].json["code"] == "instance_not_found"


async def test_unknown_id_is_refused() -> None:
    async with serve_node(1) as node:
        for instance_id in ("x", ":", "x:9000", "x:99999", "é:1", "9000"):
            replies = [await node.reset(instance_id), await node.look("/probe", instance_id)]
            replies.append(await node.execute(instance_id, {"options": {}}))
            assert {(reply.status, reply.detail) for reply in replies} == {(400, NOT_IN_USE)}


async def test_of_concurrent_releases_exactly_one_succeeds() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease()
        async with asyncio.TaskGroup() as group:
            resets = [group.create_task(node.reset(instance_id)) for _ in range(5)]
        assert sorted(reset.result().status for reset in resets) == [200, 400, 400, 400, 400]
        await node.until_available(1)


async def test_concurrent_leases_are_different() -> None:
    async with serve_node(4) as node, asyncio.TaskGroup() as group:
        replies = [group.create_task(node.get()) for _ in range(6)]
        statuses = sorted([(await reply).status for reply in replies])
        ids = {reply.result().json.get("instance_id") for reply in replies} - {None}
        assert (statuses, len(ids)) == ([200] * 4 + [503] * 2, 4)


async def test_full_node_refuses_at_once() -> None:
    async with serve_node(1, settings(get_wait_s=30)) as node:
        await node.lease()
        reply = await node.get()
        assert (reply.status, reply.detail) == (503, "No instances available")
        assert (reply.json["code"], reply.json["retryable"]) == ("pool_exhausted", True)
        assert reply.headers["retry-after"]


async def test_recycled_session_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_HOLDS", "1")
    async with serve_node(2, settings(get_wait_s=30)) as node, asyncio.TaskGroup() as group:
        first, second = await node.lease(), await node.lease()
        key = (await node.execute(first, {"environment": ["OMNIBOX_INSTANCE_KEY"]})).json
        await node.reset(second)
        waiter = group.create_task(node.get())
        await node.until_measured(lambda metrics: metrics["requests_waiting"] == 1)
        child = f"http://127.0.0.1:{first.partition(':')[2]}/refill"
        headers = {"x-api-key": key["environment"]["OMNIBOX_INSTANCE_KEY"]}
        await node.send("POST", child, headers=headers)
        granted = (await waiter).json["instance_id"]
        assert granted not in {first, second}


async def _until_gone(node: NodeClient, instance_id: str) -> None:
    await node.until(lambda info: instance_id not in info["in_use"])


async def test_session_that_does_not_come_back_is_not_waited_for_longer_than_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHILD_HOLDS", "1")
    async with serve_node(1, settings(get_wait_s=0.05)) as node:
        await node.reset(await node.lease())
        assert (await node.get()).status == 503
        metrics = await node.metrics()
        assert (metrics["sessions_recycling"], metrics["sessions_alive"]) == (1, 1)


async def test_bad_lifetime_is_refused() -> None:
    async with serve_node(1) as node:
        for lifetime, shown in (("0", "0"), ("-1", "-1"), ("240.5", "240.5"), ("300", "300")):
            reply = await node.get(lifetime_mins=lifetime)
            assert reply.status == 400
            assert reply.detail == (
                f"Invalid lifetime_mins: {shown}. Must be between 0 and 240 minutes."
            )
        for lifetime in ("nan", "inf", "soon", ""):
            reply = await node.get(lifetime_mins=lifetime)
            assert reply.status == 422
            assert "lifetime_mins" in reply.detail
        assert (await node.info())["available"] == 1


async def test_default_lifetime_fits_any_maximum() -> None:
    async with serve_node(1, settings(lease_max_mins=5)) as node:
        await node.reset(await node.lease())
        assert (await node.get(lifetime_mins=60)).status == 400


async def test_unused_lease_expires_by_itself() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease(lifetime_mins=0.002)
        await node.until_available(1)
        reply = await node.execute(instance_id, {"options": {}})
        assert (reply.status, reply.detail) == (400, NOT_IN_USE)
        assert (await node.metrics())["leases_expired_total"] == 1


async def test_lease_in_use_does_not_expire() -> None:
    async with serve_node(2) as node, asyncio.TaskGroup() as group:
        used = await node.lease(lifetime_mins=0.01)
        hanging = group.create_task(node.execute(used, {"hang": {}}))
        await _until_under_way(node)
        unused = await node.lease(lifetime_mins=0.02)
        await _until_gone(node, unused)
        assert (await node.info())["in_use"] == [used]
        assert (await node.look("/probe", used)).status == 200
        hanging.cancel()


async def _until_under_way(node: NodeClient) -> None:
    await node.until_measured(lambda metrics: metrics["requests_under_way"] == 1)


async def test_lease_options_reach_the_session() -> None:
    async with serve_node(1) as node:
        options = {"locale": "de-DE", "viewport": {"width": 800, "height": 600}}
        instance_id = await node.lease(options)
        executed = await node.execute(instance_id, {"options": {}})
        assert executed.json["options"] == options
        assert (await node.get({"colour": "red"})).status == 422


async def test_refused_options_cost_no_session() -> None:
    async with serve_node(1) as node:
        reply = await node.get({"locale": "refused"})
        assert (reply.status, reply.json["code"]) == (422, "invalid_request")
        await node.until_available(1)
        await node.lease()


async def test_dead_slot_is_replaced_by_another() -> None:
    async with serve_node(2, settings(get_wait_s=0.1)) as node:
        reply = await node.get({"locale": "dead"})
        assert (reply.status, reply.detail) == (503, "No instances available")
        assert (await node.info())["in_use"] == []


# Crashes.


async def test_crash_ends_the_request_under_way_at_once() -> None:
    async with serve_node(2) as node:
        instance_id, other = await node.lease(), await node.lease()
        reply = await node.execute(instance_id, {"crash": {}})
        assert (reply.status, reply.json["code"]) == (410, "instance_crashed")
        assert (await node.look("/probe", instance_id)).status == 410
        assert (await node.look("/probe", other)).status == 200
        assert (await node.reset(instance_id)).status == 200
        assert (await node.reset(instance_id)).status == 400
        await node.until_available(1)
        assert (await node.metrics())["leases_crashed_total"] == 1


@pytest.mark.parametrize("end", ["kill", "exit"])
async def test_death_of_an_instance_server_is_410_and_is_repaired(end: str) -> None:
    async with serve_node(3) as node, asyncio.TaskGroup() as group:
        ids = [await node.lease() for _ in range(3)]
        victim = next(i for i in ids if [j.partition(":")[2] for j in ids].count(port(i)) == 2)
        hanging = group.create_task(node.execute(victim, {"hang": {}}))
        await _until_under_way(node)
        if end == "kill":
            pid = (await node.execute(victim, {"options": {}})).json["pid"]
            os.kill(pid, signal.SIGKILL)
        else:
            assert (await node.execute(victim, {"exit": {}})).status == 410
        assert (await hanging).status == 410
        statuses = [(await node.look("/probe", instance_id)).status for instance_id in ids]
        assert sorted(statuses) == [200, 410, 410]
        await node.until_available(2)
        assert (await node.info())["capacity"] == 3
        metrics = await node.metrics()
        assert (metrics["leases_crashed_total"], metrics["instance_restarts_total"]) == (2, 1)


def port(instance_id: str) -> str:
    return instance_id.partition(":")[2]


async def test_session_that_its_server_forgot_is_410() -> None:
    async with serve_node(1) as node:
        instance_id = await node.lease()
        await node.execute(instance_id, {"forget": {}})
        assert (await node.look("/probe", instance_id)).status == 410
        assert (await node.info())["in_use"] == []


async def test_server_that_cannot_recycle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_CANNOT_RESET", "1")
    async with serve_node(1) as node:
        await node.reset(await node.lease())
        await node.until_available(1)
        assert (await node.metrics())["instance_restarts_total"] == 1


# Redis.


@pytest.mark.redis
async def test_pool_is_visible_in_redis_and_leaves_nothing() -> None:
    with RedisServer.running() as server:
        async with Redis.from_url(server.url, decode_responses=True) as redis:
            async with serve_node(2, settings(redis_url=server.url)) as node:
                instance_id = await node.lease()
                assert await redis.smembers("in_use") == {instance_id}
                assert len(await redis.smembers("available")) == 1
            assert await redis.keys() == []


@pytest.mark.redis
async def test_redis_outage_is_503_and_ends_by_itself() -> None:
    with RedisServer.running() as server:
        async with serve_node(2, settings(redis_url=server.url)) as node:
            instance_id = await node.lease()
            server.stop()
            replies = [await node.get(), await node.reset(instance_id)]
            replies.append(await node.send("GET", "/info"))
            assert {(reply.status, reply.json["code"]) for reply in replies} == {
                (503, "pool_unavailable")
            }
            assert (await node.execute(instance_id, {"options": {}})).status == 200
            server.start()
            await node.until_available(1)
            assert (await node.info())["in_use"] == [instance_id]
            assert (await node.reset(instance_id)).status == 200
            await node.until_available(2)


@pytest.mark.redis
async def test_second_node_on_one_pool_refuses_to_start() -> None:
    with RedisServer.running() as server:
        shared = settings(redis_url=server.url)
        async with serve_node(1, shared) as node:
            config = NodeConfig(shared, 1, free_port(), free_port(), CHILD_SERVER)
            with pytest.raises(SetupError, match="Another node"):
                async with open_node(config, Metrics()):
                    pytest.fail("the node started")
            await node.lease()


# The API.


async def test_key_is_needed_on_every_route_but_healthz() -> None:
    async with serve_node(1, settings(node_key="hush")) as node:
        for key in ({"x-api-key": ""}, {"x-api-key": "wrong"}):
            assert (await node.send("GET", "/info", headers=key)).status == 401
            assert (await node.send("GET", "/metrics", headers=key)).status == 401
            assert (await node.send("GET", "/healthz", headers=key)).status == 200


async def test_metrics_tell_what_happened() -> None:
    async with serve_node(2) as node:
        kept, released = await node.lease(), await node.lease()
        await node.execute(kept, {"refuse": 3})
        await node.reset(released)
        await node.until_available(1)
        metrics = await node.metrics()
        wanted = {
            "sessions_alive": 2,
            "sessions_available": 1,
            "sessions_leased": 1,
            "sessions_recycling": 0,
            "sessions_leaked": 0,
            "leases_granted_total": 2,
            "leases_released_total": 1,
            "egress_refused_total": 3,
            'request_seconds_count{route="/get"}': 2,
        }
        assert {name: metrics[name] for name in wanted} == wanted
        assert (await node.info())["in_use"] == [kept]


async def test_openapi_describes_every_route() -> None:
    schema = create_app(NodeConfig(settings(), 1)).openapi()
    assert set(schema["paths"]) == {
        *("/get", "/reset", "/probe", "/metadata", "/screenshot", "/execute", "/step"),
        *("/info", "/metrics", "/healthz"),
    }
    execute = schema["paths"]["/execute"]["post"]
    assert "visit_page" in str(execute["requestBody"])
    assert {"200", "400", "401", "403", "410", "413", "422", "503", "504"} == set(
        execute["responses"]
    )
    assert "image/webp" in schema["paths"]["/screenshot"]["get"]["responses"]["200"]["content"]
    assert "HTTPValidationError" not in str(schema)


async def test_oversized_body_is_413() -> None:
    async with serve_node(1, settings(max_body_bytes=1024)) as node:
        instance_id = await node.lease()
        reply = await node.execute(instance_id, {"options": "x" * 2000})
        assert (reply.status, reply.json["code"]) == (413, "body_too_large")


async def test_environment_of_the_instance_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBOX_GUARDED_PORTS", "7000")
    async with serve_node(1, settings(api_key="hush", egress_allow="localhost")) as node:
        instance_id = await node.lease()
        names = ["OMNIBOX_API_KEY", "OMNIBOX_EGRESS_ALLOW", "OMNIBOX_GUARDED_PORTS", "TMPDIR"]
        executed = await node.execute(instance_id, {"environment": names})
        found = executed.json["environment"]
        assert found["OMNIBOX_API_KEY"] is None
        assert found["OMNIBOX_EGRESS_ALLOW"] == "localhost"
        assert found["OMNIBOX_GUARDED_PORTS"].split(",")[0] == "7000"
        assert port(instance_id) in found["OMNIBOX_GUARDED_PORTS"].split(",")
        assert found["TMPDIR"].startswith(os.environ["TMPDIR"])


# Real browsers.


def real() -> Settings:
    return settings(egress_allow="127.0.0.0/8,localhost", spares_per_browser=0)


@pytest.mark.browser
async def test_session_drives_a_page_until_it_is_released() -> None:
    async with serve_site() as site, serve_node(2, real(), INSTANCE_SERVER) as node:
        instance_id = await node.lease({"viewport": {"width": 800, "height": 600}})
        visited = await node.execute(instance_id, {"visit_page": {"url": f"{site.url}/shop.html"}})
        assert (visited.status, visited.json["status"]) == (200, "success")
        metadata = (await node.look("/metadata", instance_id)).json
        assert (metadata["url"], metadata["width"]) == (f"{site.url}/shop.html", 800)
        shot = await node.look("/screenshot", instance_id, interaction_mode="coordinates")
        assert (shot.headers["content-type"], shot.body[:4]) == ("image/png", b"\x89PNG")
        step = await node.execute(instance_id, {"page_down": {}, "format": "jpeg"}, path="/step")
        frame = framing.decode(step.body)
        assert (frame.fields["status"], frame.image[:2]) == ("success", b"\xff\xd8")
        assert (await node.reset(instance_id)).status == 200
        await node.until_available(2)
        for path in PAGE_ROUTES:
            assert (await node.look(path, instance_id)).status == 400


@pytest.mark.browser
async def test_browser_of_an_expired_lease_is_cleaned() -> None:
    async with serve_node(1, real(), INSTANCE_SERVER) as node:
        expired = await node.lease(lifetime_mins=0.001)
        await node.until_available(1)
        assert (await node.look("/probe", expired)).status == 400
        assert await node.lease() != expired


@pytest.mark.browser
async def test_killed_chromium_is_410_at_once_and_capacity_comes_back(temp: Path) -> None:
    async with serve_node(2, real(), INSTANCE_SERVER) as node, asyncio.TaskGroup() as group:
        first, second = await node.lease(), await node.lease()
        under_way = group.create_task(node.execute(first, {"sleep": {"duration": 30}}))
        await _until_under_way(node)
        (chromium,) = filter(is_chromium, processes_in(temp))
        chromium.kill()
        assert (await under_way).status == 410
        assert (await node.look("/probe", second)).status == 410
        await node.until_available(2)
        assert (await node.info())["capacity"] == 2
        assert (await node.look("/probe", await node.lease())).status == 200


def is_chromium(process: psutil.Process) -> bool:
    """Tell a browser process from its helpers, which have a type, and from a shell around it."""
    try:
        program, arguments = Path(process.exe()).name, process.cmdline()
    except psutil.Error:
        return False
    is_helper = any(argument.startswith("--type=") for argument in arguments)
    return program.startswith(("chrom", "headless")) and not is_helper


@asynccontextmanager
async def node_process(*flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, NodeClient]]:
    """Run the command line in a process of its own until it is ready."""
    node_port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "omniboxes.node.server", "--port", str(node_port)),
        *("--instances", "2", "--instance-start-port", str(free_port()), *flags),
        stdin=subprocess.PIPE,
    )
    async with aiohttp.ClientSession(f"http://127.0.0.1:{node_port}") as session:
        client = NodeClient(session)
        try:
            await client.until_up()
            await client.until_available(2)
            yield process, client
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def is_running(process: psutil.Process) -> bool:
    try:
        # Who reaps an orphan is init's business, and in a container nobody may.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_ended(processes: list[psutil.Process]) -> None:
    while any(map(is_running, processes)):  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.05)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["SIGTERM", "end of stdin"])
async def test_end_of_a_node_leaves_nothing(how: str) -> None:
    async with node_process("--end-with-parent") as (process, node):
        await node.lease()
        started = processes_below(process.pid)
        assert any(is_chromium(one) for one in started)
        if how == "SIGTERM":
            process.terminate()
        else:
            assert process.stdin is not None
            process.stdin.close()
        await process.wait()
        assert [one for one in started if is_running(one)] == []


@pytest.mark.browser
async def test_browsers_of_a_killed_node_end_and_the_next_node_cleans_up() -> None:
    async with node_process() as (process, _):
        started = processes_below(process.pid)
        process.kill()
        await until_ended(started)
    await asyncio.to_thread(remove_abandoned)


# The command line.


def run_cli(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "omniboxes.node.server", "--port", str(free_port()), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_unreachable_redis_is_one_sentence() -> None:
    ended = run_cli("--redis_host", "127.0.0.1", "--redis_port", str(free_port()))
    assert ended.returncode == 2
    assert "Redis connection refused" in ended.stderr
    assert "redis-cli ping" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_open_bind_without_a_key_is_refused() -> None:
    ended = run_cli("--host", "0.0.0.0")
    assert ended.returncode == 2
    assert "OMNIBOX_API_KEY" in ended.stderr


def test_bad_setting_is_one_sentence() -> None:
    ended = run_cli("--lifetime_max", "-1")
    assert ended.returncode == 2
    assert "LEASE_MAX_MINS" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_port_among_those_of_the_instance_servers_is_refused() -> None:
    ended = run_cli("--port", "9001", "--instance_start_port", "9000", "--instances", "8")
    assert ended.returncode == 2
    assert "--instance-start-port" in ended.stderr
