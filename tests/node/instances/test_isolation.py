"""One tenant never sees another: neither the next one of the slot, nor its neighbour."""

import pytest

from tests.node.instances.driving import Server, Session
from tests.site_server import Site

pytestmark = pytest.mark.browser

STORES = ("cookies", "local-storage", "session-storage", "databases")


async def stored(session: Session) -> dict[str, str]:
    await session.visit("storage.html")
    await session.step("sleep", duration=0.1)  # the databases are listed a moment later
    return {name: await session.text(name) for name in STORES}


async def test_what_one_lease_stores_is_invisible_to_its_neighbour_and_to_the_next(
    server: Server, site: Site
) -> None:
    nothing = dict.fromkeys(STORES, "none")
    slots = (await server.info())["slots"]
    async with server.leased(site) as first, server.leased(site) as neighbour:
        await first.visit("storage.html")
        await first.click("set", shows="log")
        await first.visit("set-cookie?name=server&value=yes")
        kept = await stored(first)
        assert "basket=tea" in kept["cookies"]
        assert "server=yes" in kept["cookies"]
        assert kept["local-storage"] == "account=alice"
        assert await stored(neighbour) == nothing
    for _ in range(slots + 1):
        async with server.leased(site) as later:
            assert await stored(later) == nothing


async def test_cache_is_not_shared(server: Server, site: Site) -> None:
    for _ in range(2):
        before = site.paths().count("/shop.html")
        async with server.leased(site) as session:
            await session.visit("shop.html")
        assert site.paths().count("/shop.html") == before + 1


async def test_history_tabs_and_marks_end_with_the_lease(server: Server, site: Site) -> None:
    for _ in range(4):
        async with server.leased(site) as session:
            assert (await session.execute("back"))["moved"] is False
            assert len((await session.execute("list_tabs"))["tabs"]) == 1
            info = await session.execute("get_screenshot_info")
            assert info == {"error": "No screenshot info available"}
            await session.visit("popups.html")
            await session.click("open", shows="log")
            await session.execute("screenshot")


async def test_id_is_new_for_every_lease(server: Server, site: Site) -> None:
    ids = []
    for _ in range(5):
        async with server.leased(site) as session:
            ids.append(session.id)
    assert len(set(ids)) == 5
