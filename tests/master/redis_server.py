"""A private redis-server that a test may stop and start again."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from redis.asyncio import Redis

from tests.master.running import free_port

_START_TIMEOUT_S = 10.0


class RedisServer:
    """A redis-server on a free port of 127.0.0.1, nothing of it on disk."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @classmethod
    @contextmanager
    def running(cls) -> Iterator["RedisServer"]:
        server = cls()
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is missing: install the package redis-server.")
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"]
        self._process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.01)
        raise TimeoutError("redis-server did not start")

    async def members(self, key: str) -> set[str]:
        """Return the members of a set in the pool's database."""
        async with Redis.from_url(self.url, decode_responses=True) as client:
            return {str(member) for member in await client.smembers(key)}

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
