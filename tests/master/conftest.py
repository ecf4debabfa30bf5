"""Fixtures of the master's tests: a clean environment, a private Redis."""

import os
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from tests.master.redis_server import RedisServer


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OMNIBOX_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    with blockbuster_ctx("omniboxes") as blockbuster:
        # redis-py looks up its own version for every new connection.
        for function in blockbuster.functions.values():
            function.can_block_in("redis/utils.py", "get_lib_version")
        yield blockbuster


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer.running() as server:
        yield server
