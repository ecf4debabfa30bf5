"""The master's own command line."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

import aiohttp
import pytest

from omniboxes.master.node_table import node_id
from tests.deploy.tier import environment, free_ports, run

MASTER = ("-m", "omniboxes.master.server")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "0.0.0.0"], "without a key"),
        (["--nodes", "10.0.0.7:8080"], "--nodes: '10.0.0.7:8080' is not a node's URL"),
        (["--nodes", "http://a", "http://u:p@b"], "no user, password"),
    ],
)
async def test_a_wrong_set_up_is_one_sentence(flags: list[str], words: str) -> None:
    ended = await run(*MASTER, *flags)
    assert ended.status == 2
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


async def test_nodes_are_listed_after_one_flag_and_the_end_comes_with_the_parents() -> None:
    port, first, second = free_ports(3)
    urls = [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}/"]
    flags = ["--port", str(port), "--nodes", *urls, "--end-with-parent"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *MASTER, *flags, env=environment(), stdin=PIPE
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            await until_up(client)
            async with client.get("/info") as answer:
                hashes = [node["hash"] for node in (await answer.json())["nodes"]]
        assert hashes == [node_id(url.rstrip("/")) for url in urls]
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(10):
            assert await process.wait() in {0, -signal.SIGTERM}
    finally:
        if process.returncode is None:
            process.kill()


async def until_up(client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(15):
        while True:
            try:
                async with client.get("/healthz"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
