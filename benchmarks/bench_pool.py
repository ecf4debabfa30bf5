"""P3 and P4: memory per session, and how fast leases change hands.

    python -m benchmarks.bench_pool [--quick] [--json PATH]

P3 compares the default against the same software with one slot per Chromium, one instance server
per session and no spares. Without `--quick` the curve over slots per Chromium is measured, too.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks import _processes
from benchmarks._report import Bar, finish, table
from benchmarks._site import ALLOW, shop_page
from benchmarks.bench_server import command
from omniboxes.errors import PoolExhausted
from webgym.environment.client import Instance, MasterClient
from webgym.environment.local_tier import LocalTier, local_tier

SESSIONS = 8
CAPACITY = 12
CLIENTS = 8
HOLD_S = 1.0
ALONE = {"OMNIBOX_SPARES_PER_BROWSER": "0", "OMNIBOX_SLOTS_PER_BROWSER": "1"}
MEMORY_SETTLES_S = 3.0


class Churn(NamedTuple):
    """How leases changed hands for a while."""

    get_s: list[float]
    reset_s: list[float]
    refused: int
    seconds: float

    @property
    def rate(self) -> float:
        """Leases per second."""
        return len(self.reset_s) / self.seconds


async def memory(url: str, environment: dict[str, str]) -> dict[str, float]:
    """Return MB per leased session by kind of process, with a page open in each."""
    async with (
        local_tier(SESSIONS, environment={**ALLOW, **environment}, log=_nowhere()) as tier,
        AsyncExitStack() as stack,
    ):
        client = await stack.enter_async_context(MasterClient(base_url=tier.url))
        for _ in range(SESSIONS):
            browser = await stack.enter_async_context(client.lease())
            await client.execute(browser, {"visit_page": {"url": url}})
            await client.step(browser, {"page_down": {}}, interaction_mode="coordinates")
        # Spares are opened behind the answers; what counts is the state after that.
        await asyncio.sleep(MEMORY_SETTLES_S)
        used = _processes.pss_mb(_processes.tree(tier.pid))
    return {kind: mb / SESSIONS for kind, mb in sorted(used.items())}


async def churn(tier: LocalTier, seconds: float, hold_s: float) -> Churn:
    """Let clients take and give back leases."""
    result = Churn([], [], 0, seconds)
    refused = 0
    async with MasterClient(base_url=tier.url) as client:
        ends_at = time.monotonic() + seconds

        async def take_turns(number: int) -> None:
            nonlocal refused
            await asyncio.sleep(hold_s * number / CLIENTS)  # clients are not in step
            while time.monotonic() < ends_at:
                began = time.monotonic()
                try:
                    browser = await client.get_instance()
                except PoolExhausted:
                    refused += 1
                    continue
                result.get_s.append(time.monotonic() - began)
                await asyncio.sleep(hold_s)
                began = time.monotonic()
                await client.reset_instance(browser)
                result.reset_s.append(time.monotonic() - began)

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(take_turns(number))
    return result._replace(refused=refused)


async def throughput(tier: LocalTier, url: str, seconds: float) -> float:
    """Return steps per second of all sessions together."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(MasterClient(base_url=tier.url))
        leases: list[Instance] = []
        for _ in range(SESSIONS):
            leases.append(await stack.enter_async_context(client.lease()))
            await client.execute(leases[-1], {"visit_page": {"url": url}})
        steps = 0
        ends_at = time.monotonic() + seconds

        async def walk(browser: Instance) -> None:
            nonlocal steps
            number = 0
            while time.monotonic() < ends_at:
                await client.step(browser, command(number), interaction_mode="coordinates")
                number += 1
                steps += 1

        async with asyncio.TaskGroup() as group:
            for browser in leases:
                group.create_task(walk(browser))
    return steps / seconds


async def curve(url: str) -> list[tuple[int, float, float]]:
    """Return (slots per Chromium, steps/s, MB per session)."""
    rows = []
    for slots in (1, 2, 4, 8):
        setting = {"OMNIBOX_SLOTS_PER_BROWSER": str(slots), "OMNIBOX_SPARES_PER_BROWSER": "0"}
        async with local_tier(SESSIONS, environment={**ALLOW, **setting}, log=_nowhere()) as tier:
            rates = [await throughput(tier, url, 8.0) for _ in range(3)]
        rows.append((slots, statistics.median(rates), sum((await memory(url, setting)).values())))
    return rows


def percentile_ms(seconds: list[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def _nowhere() -> Path:
    return Path(os.devnull)


async def run(quick: bool) -> dict[str, Any]:
    """Measure everything."""
    measured: dict[str, Any] = {}
    async with shop_page() as url:
        measured["default"] = await memory(url, {})
        measured["alone"] = await memory(url, ALONE)
        async with local_tier(CAPACITY, environment=ALLOW, log=_nowhere()) as tier:
            measured["churn"] = await churn(tier, 12.0 if quick else 40.0, HOLD_S)
            measured["flat_out"] = await churn(tier, 4.0 if quick else 15.0, 0.0)
        measured["curve"] = [] if quick else await curve(url)
    return measured


@click.command()
@click.option("--quick", is_flag=True, help="Shorter, and no curve; ends within 50 s on two cores.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(quick: bool, json_path: Path | None) -> None:
    """Measure P3 and P4."""
    measured = asyncio.run(run(quick))
    default, alone = measured["default"], measured["alone"]
    kinds = sorted({*default, *alone})
    rows = [(kind, default.get(kind, 0.0), alone.get(kind, 0.0)) for kind in kinds]
    rows.append(("all", sum(default.values()), sum(alone.values())))
    table("PSS, MB per leased session", ("", "default", "one slot each"), rows)
    turns: Churn = measured["churn"]
    flat_out: Churn = measured["flat_out"]
    table(
        f"leases: capacity {CAPACITY}, {CLIENTS} clients that hold each for {HOLD_S:g} s",
        ("", "count", "p50 ms", "p99 ms", "max ms"),
        [
            (name, len(times), *(percentile_ms(times, share) for share in (0.5, 0.99, 1.0)))
            for name, times in (("/get", turns.get_s), ("/reset", turns.reset_s))
        ],
    )
    click.echo(f"  refused: {turns.refused}; highest sustained rate {flat_out.rate:.1f} leases/s")
    if measured["curve"]:
        table("slots per Chromium", ("slots", "steps/s", "MB/session"), measured["curve"])
    worst = max(percentile_ms(turns.get_s, 0.99), percentile_ms(turns.reset_s, 0.99))
    bars = [
        Bar("P3", sum(default.values()) / sum(alone.values()), 0.6, at_least=False),
        Bar("P4 p99 ms", worst, 100, at_least=False),
    ]
    figures = {
        "mb_per_session": {"default": default, "one_slot_each": alone},
        "lease_rate_flat_out": flat_out.rate,
        "curve": measured["curve"],
    }
    finish("bench_pool", bars, figures, json_path)


if __name__ == "__main__":
    main()
