"""A first look: real browsers on real pages, driven over the HTTP API by a random walker."""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from aiohttp import web

from omniboxes.errors import InvalidRequest
from webgym.environment.client import Instance, MasterClient, Step
from webgym.environment.local_tier import local_tier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PAGES = ("shop", "forms", "scroll", "combobox", "drag", "product", "storage", "shadow")
STEPS_A_PAGE = 12


@dataclass(slots=True)
class Tally:
    """What the walkers did."""

    step_s: list[float] = field(default_factory=list)
    screenshots: int = 0


async def run_demo(site: Path, *, sessions: int, seconds: float, out: Path) -> None:
    """Start the tier, walk for a while, and print the figures."""
    _make_fresh(out)
    allow = {"OMNIBOX_EGRESS_ALLOW": "127.0.0.0/8"}
    click.echo(f"Starting {sessions} browser sessions …")
    started = time.monotonic()
    async with (
        _served(site) as site_url,
        local_tier(sessions, environment=allow, log=out / "omniboxes.log") as tier,
        MasterClient(base_url=tier.url) as client,
    ):
        click.echo(f"Ready after {time.monotonic() - started:.1f} s at {tier.url}")
        click.echo(f"Walking over {site} for {seconds:g} s …")
        tally = Tally()
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(sessions):
                walker = _walk(client, site_url, number, began + seconds, out, tally)
                group.create_task(walker)
        elapsed_s = time.monotonic() - began
    _report(tally, sessions, elapsed_s, out)


def _make_fresh(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


async def _walk(
    client: MasterClient, site_url: str, number: int, ends_at: float, out: Path, tally: Tally
) -> None:
    chance = random.Random(number)
    folder = out / f"session-{number}"
    _make_fresh(folder)
    async with client.lease(options=None) as browser:
        count = 0
        while time.monotonic() < ends_at:
            page = PAGES[(number + count // STEPS_A_PAGE) % len(PAGES)]
            command: dict[str, dict[str, Any]] = {"visit_page": {"url": f"{site_url}/{page}.html"}}
            count += -count % STEPS_A_PAGE
            for _ in range(STEPS_A_PAGE):
                if time.monotonic() >= ends_at:
                    return
                try:
                    seen = await _timed_step(client, browser, command, tally)
                except InvalidRequest:
                    break  # a random click can meet what moved away; on to the next page
                image = folder / f"step-{count:04}.png"
                await asyncio.to_thread(image.write_bytes, seen.image)
                tally.screenshots += 1
                count += 1
                command = _choice(seen, chance)


async def _timed_step(
    client: MasterClient, browser: Instance, command: dict[str, dict[str, Any]], tally: Tally
) -> Step:
    began = time.monotonic()
    seen = await client.step(browser, command, interaction_mode="set_of_marks")
    tally.step_s.append(time.monotonic() - began)
    return seen


def _choice(seen: Step, chance: random.Random) -> dict[str, dict[str, Any]]:
    labels = [
        label
        for label in (seen.marks or {}).get("visible_rects", [])
        if seen.marks and seen.marks["interactive_regions"][label]["rects"]
    ]
    roll = chance.random()
    if labels and roll < 0.4:
        return {"click_id": {"id": chance.choice(labels)}}
    if roll < 0.7:
        return {"page_down": {"amount": chance.choice([200, 400])}}
    x, y = chance.uniform(0, seen.metadata.width), chance.uniform(0, seen.metadata.height)
    return {"hover_coords": {"x": x, "y": y}}


def _report(tally: Tally, sessions: int, elapsed_s: float, out: Path) -> None:
    steps = len(tally.step_s)
    median_ms = statistics.median(tally.step_s) * 1000
    click.echo("")
    click.echo(f"  {steps / elapsed_s:8.1f} steps/s with {sessions} sessions ({steps} steps)")
    click.echo(f"  {median_ms:8.0f} ms per step (median, with a marked screenshot each)")
    click.echo(f"  {tally.screenshots:8} screenshots in {out}/session-*/")
    click.echo("")
    click.echo("Next: `.venv/bin/omniboxes serve 8` and the curl lines of README.md.")


@asynccontextmanager
async def _served(site: Path) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_static("/", site)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        server = web.TCPSite(runner, "127.0.0.1", 0)
        await server.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
