"""One instance server for all tests of marks, and a lease for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.node.instances.driving import Server
from tests.node.marks.driving import MarkedSession
from tests.site_server import Site

SLOTS = 2


@pytest.fixture(scope="session")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with Server.running(SLOTS) as server:
        yield server


@pytest.fixture
async def session(server: Server, site: Site) -> AsyncIterator[MarkedSession]:
    async with server.leased(site) as leased:
        yield MarkedSession(leased.server, leased.site, leased.id)


@pytest.fixture
async def hasty(server: Server, site: Site) -> AsyncIterator[MarkedSession]:
    """A session that does not wait for the pages that never come to rest."""
    async with server.leased(site, settle_cap_s=0.1) as leased:
        yield MarkedSession(leased.server, leased.site, leased.id)
