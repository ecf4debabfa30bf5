"""What all tests share."""

from collections.abc import AsyncIterator

import pytest

from tests.site_server import Site, serve_site
from webgym.environment.local_tier import LocalTier, local_tier

pytest_plugins = ["tests._requirements"]

API_KEY = "key-of-the-test-tier"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests, and the session's own fixtures, on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
async def site(anyio_backend: str) -> AsyncIterator[Site]:
    """The test site, served for the whole session."""
    async with serve_site() as running:
        yield running


@pytest.fixture(scope="session")
async def tier(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalTier]:
    """A whole tier, as `omniboxes serve 3` starts it, for the tests that talk to the master."""
    environment = {
        "OMNIBOX_API_KEY": API_KEY,
        "OMNIBOX_EGRESS_ALLOW": "127.0.0.0/8,localhost",
        "OMNIBOX_ENABLE_EVALUATE": "1",
        "OMNIBOX_GET_WAIT_S": "2",
    }
    log = tmp_path_factory.mktemp("tier") / "omniboxes.log"
    async with local_tier(3, environment=environment, log=log) as running:
        yield running
