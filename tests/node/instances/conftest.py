"""One instance server for all tests of sessions, and a lease for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.node.instances.driving import Server, Session
from tests.site_server import Site

SLOTS = 3


@pytest.fixture(scope="session")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with Server.running(SLOTS) as server:
        yield server


@pytest.fixture(scope="module")
async def shared(server: Server, site: Site) -> AsyncIterator[Session]:
    """A session for the tests of a module that leave it as they found it."""
    async with server.leased(site) as session:
        yield session


@pytest.fixture
async def session(server: Server, site: Site) -> AsyncIterator[Session]:
    async with server.leased(site) as session:
        yield session
