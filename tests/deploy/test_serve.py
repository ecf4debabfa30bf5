"""`omniboxes serve` and `deploy.py`, end to end: what they serve, survive and leave behind."""

import asyncio
import json
import shutil
import signal
from asyncio.subprocess import PIPE

import aiohttp
import pytest

from omniboxes.common import framing
from tests.deploy.tier import DEPLOY, SERVE, Tier, ask, client_of, free_ports, run, serve
from tests.master.redis_server import RedisServer

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

KEY = "your-key"


async def curl(*arguments: str) -> bytes:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is missing")
    process = await asyncio.create_subprocess_exec(program, "-s", *arguments, stdout=PIPE)
    stdout, _ = await process.communicate()
    assert process.returncode == 0
    return stdout


async def until_capacity(client: aiohttp.ClientSession, count: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                info = await ask(client, "GET", "/info")
            except aiohttp.ClientConnectionError:
                info = {"nodes": []}
            if sum(node["available"] for node in info["nodes"]) == count:
                return
            await asyncio.sleep(0.1)


async def test_the_documented_curl_lines_drive_a_browser_and_ctrl_c_leaves_nothing() -> None:
    async with serve(variables={"OMNIBOX_API_KEY": KEY}) as tier:
        assert f"2 sessions ready at {tier.url}\n" in tier.welcome
        assert '-H "x-api-key: $OMNIBOX_API_KEY"' in tier.welcome
        assert KEY not in tier.welcome
        header, url = f"x-api-key: {KEY}", f"http://localhost:{tier.master_port}"
        info = json.loads(await curl("-H", header, f"{url}/info"))
        assert info["nodes"][0]["capacity"] == 2
        handle = json.loads(await curl("-X", "POST", "-H", header, f"{url}/get"))
        query = f"instance_id={handle['instance_id']}&node={handle['node']}"
        image = await curl("-H", header, f"{url}/screenshot?{query}&interaction_mode=coordinates")
        assert image.startswith(b"\x89PNG")
        body = json.dumps({**handle, "page_down": {}})
        done = await curl("-X", "POST", "-H", header, "-d", body, f"{url}/execute")
        assert json.loads(done)["status"] == "success"
        page = json.loads(await curl("-H", header, f"{url}/metadata?{query}"))
        assert (page["width"], page["height"]) == (1280, 768)
        step = await curl("-X", "POST", "-H", header, "-d", body, f"{url}/step")
        assert framing.decode(step).image.startswith(b"\x89PNG")
        probe = json.loads(await curl("-H", header, f"{url}/probe?{query}"))
        assert probe["status"] == "success"
        released = json.loads(await curl("-X", "POST", "-H", header, f"{url}/reset?{query}"))
        assert released["status"] == "success"
        assert not any(KEY in line for line in tier.command_lines())
        tier.signal(signal.SIGINT)
        assert await tier.ended() == 0
        await tier.assert_nothing_left()


@pytest.mark.redis
async def test_deploy_py_keeps_its_pool_in_redis_and_sigterm_leaves_no_lease() -> None:
    with RedisServer.running() as redis:
        flags = ("--redis-port", str(redis.port), "--max-parallel", "4")
        async with serve(*flags, command=DEPLOY) as tier, client_of(tier) as client:
            assert len(await redis.members("available")) == 2
            handle = await ask(client, "POST", "/get")
            assert await redis.members("in_use") == {handle["instance_id"]}
            tier.signal(signal.SIGTERM)
            assert await tier.ended() == 0
            await tier.assert_nothing_left()
        assert await redis.members("available") | await redis.members("in_use") == set()


async def test_servers_that_are_killed_come_back() -> None:
    async with serve() as tier, client_of(tier) as client:
        handle = await ask(client, "POST", "/get")
        tier.server("omniboxes.master.server").kill()
        await until_capacity(client, 1)
        # The master holds no state: the lease it granted is still good.
        await ask(client, "GET", "/probe", params=handle)
        tier.server("omniboxes.node.server").kill()
        await until_capacity(client, 2)
        async with client.get("/probe", params=handle) as answer:
            assert answer.status in {400, 410}
        tier.server("omniboxes.master.server").kill()
        tier.server("omniboxes.node.server").kill()
        await until_capacity(client, 2)
        tier.signal(signal.SIGTERM)
        assert await tier.ended() == 0
        await tier.assert_nothing_left()


async def test_without_recovery_the_end_of_a_server_is_the_end_of_all() -> None:
    async with serve("--disable-recovery", command=DEPLOY) as tier:
        tier.server("omniboxes.master.server").kill()
        assert await tier.ended() == 1
        await tier.assert_nothing_left()


async def test_a_killed_supervisor_leaves_nothing() -> None:
    async with serve() as tier, client_of(tier) as client:
        await ask(client, "POST", "/get")
        tier.signal(signal.SIGKILL)
        await tier.ended()
        await tier.assert_nothing_left(within_s=20)


@pytest.mark.parametrize("stage", ["omniboxes.node.server", "omniboxes.node.instance_server"])
async def test_a_stop_while_starting_leaves_nothing(stage: str) -> None:
    async with serve(waits=False) as tier:
        async with asyncio.timeout(20):
            while not any(stage in line for line in tier.command_lines()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        tier.signal(signal.SIGTERM)
        assert await tier.ended() == 0
        await tier.assert_nothing_left(within_s=5)


async def test_a_second_ctrl_c_does_not_wait_for_what_is_under_way() -> None:
    async with serve() as tier, client_of(tier) as client:
        handle = await ask(client, "POST", "/get")
        async with asyncio.TaskGroup() as group:
            sleeping = group.create_task(_sleep(client, handle))
            await _until_in_flight(tier)
            tier.signal(signal.SIGINT)
            await asyncio.sleep(0.3)
            assert tier.process.returncode is None
            tier.signal(signal.SIGINT)
            async with asyncio.timeout(5):
                assert await tier.ended() == 0
            sleeping.cancel()
        await tier.assert_nothing_left()


async def _sleep(client: aiohttp.ClientSession, handle: dict[str, str]) -> None:
    body = {**handle, "sleep": {"duration": 30}}
    try:
        await ask(client, "POST", "/execute", json=body)
    except aiohttp.ClientError:
        return


async def _until_in_flight(tier: Tier) -> None:
    """Wait until the client's connection to the master is open, and a moment for its request."""
    master = tier.server("omniboxes.master.server")
    async with asyncio.timeout(5):
        while not any(c.status == "ESTABLISHED" for c in master.net_connections()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


async def test_a_redis_that_refuses_is_the_nodes_own_sentence() -> None:
    [master, node, instance, redis] = map(str, free_ports(4))
    ports = ["--master-port", master, "--node-port", node, "--instance-start-port", instance]
    ended = await run(*SERVE, "2", *ports, "--redis-url", f"redis://127.0.0.1:{redis}")
    assert ended.status == 2
    assert "Redis connection refused" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
