"""P1 and P2: what `/step` through master, node and instance costs, against steps in process.

    python -m benchmarks.bench_server [--quick] [--json PATH]

Both sides use the same Chromium, flags and slots, on one page, in alternating phases of one run.
The baseline sends the same input events, one metadata evaluation and one capture over CDP from this
process, with no HTTP and no settling.
"""

from __future__ import annotations

import asyncio
import base64
import os
import statistics
import time
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from benchmarks import _processes
from benchmarks._report import Bar, finish, table
from benchmarks._site import ALLOW, shop_page
from omniboxes.common.settings import Settings
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.egress.proxy import EgressProxy
from omniboxes.node.instances._chromium import launch, playwright_driver
from webgym.environment.client import Instance, MasterClient
from webgym.environment.local_tier import LocalTier, local_tier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from playwright.async_api import CDPSession

SESSIONS = 8
ROUNDS = 3
WARM_UP_S = 4.0
EMPTY = (8, 400)
SCROLL_PX = 200
METADATA = "({t: document.title, u: location.href, w: innerWidth, h: innerHeight})"


class Phase(NamedTuple):
    """One stretch of stepping."""

    steps: int
    seconds: float
    step_s: list[float]
    cpu_s: dict[str, float]


class Plan(NamedTuple):
    """How long the phases take."""

    busy_s: float
    lone_s: float


# The same steps, as commands and as CDP messages: a click on empty space, scrolls down and up.


def command(step: int) -> dict[str, dict[str, Any]]:
    """Return the step as a command."""
    match step % 4:
        case 1:
            return {"page_down": {"amount": SCROLL_PX}}
        case 3:
            return {"page_up": {"amount": SCROLL_PX}}
        case _:
            return {"click_coords": {"x": EMPTY[0], "y": EMPTY[1]}}


async def in_process_step(cdp: CDPSession, step: int) -> None:
    """Do the step over CDP, as fast as it can be done."""
    if step % 2:
        delta = SCROLL_PX if step % 4 == 1 else -SCROLL_PX
        wheel = {"type": "mouseWheel", "x": 10, "y": 10, "deltaX": 0, "deltaY": delta}
        await cdp.send("Input.dispatchMouseEvent", wheel)
    else:
        at = {"x": EMPTY[0], "y": EMPTY[1]}
        press = {**at, "button": "left", "clickCount": 1}
        async with asyncio.TaskGroup() as group:
            for event in (
                {"type": "mouseMoved", **at},
                {"type": "mousePressed", **press},
                {"type": "mouseReleased", **press},
            ):
                group.create_task(cdp.send("Input.dispatchMouseEvent", event))
    await cdp.send("Runtime.evaluate", {"expression": METADATA, "returnByValue": True})
    shot = await cdp.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
    base64.b64decode(shot["data"])


# The two sides.


@asynccontextmanager
async def baseline(url: str) -> AsyncIterator[Callable[[int, int], Awaitable[None]]]:
    """Yield a stepper over contexts in this process, spread over Chromiums as the tier does."""
    settings = Settings()
    policy = EgressPolicy.parse(ALLOW["OMNIBOX_EGRESS_ALLOW"], guarded_ports=[])
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(playwright_driver())
        sessions: list[CDPSession] = []
        while len(sessions) < SESSIONS:
            proxy = await stack.enter_async_context(EgressProxy(policy))
            browser = await launch(driver, settings, proxy.port)
            stack.push_async_callback(browser.close)
            for _ in range(settings.slots_per_browser):
                context = await browser.new_context(viewport={"width": 1280, "height": 768})
                page = await context.new_page()
                await page.goto(url)
                sessions.append(await context.new_cdp_session(page))
        yield lambda session, step: in_process_step(sessions[session], step)


@asynccontextmanager
async def tier_stepper(
    tier: LocalTier, url: str
) -> AsyncIterator[Callable[[int, int], Awaitable[None]]]:
    """Yield a stepper over leased sessions of the tier."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(MasterClient(base_url=tier.url))
        leases: list[Instance] = []
        for _ in range(SESSIONS):
            leases.append(await stack.enter_async_context(client.lease()))
            await client.execute(leases[-1], {"visit_page": {"url": url}})

        async def step(session: int, number: int) -> None:
            await client.step(leases[session], command(number), interaction_mode="coordinates")

        yield step


# Measuring.


async def measure(
    stepper: Callable[[int, int], Awaitable[None]], sessions: int, seconds: float, pids: list[int]
) -> Phase:
    """Step in that many sessions at once for a while."""
    processes = [process for pid in pids for process in _processes.tree(pid)]
    before = _processes.cpu_s(processes)
    own_before = time.process_time()
    began = time.monotonic()
    durations: list[float] = []

    async def walk(session: int) -> None:
        number = 0
        while time.monotonic() - began < seconds:
            started = time.monotonic()
            await stepper(session, number)
            durations.append(time.monotonic() - started)
            number += 1

    async with asyncio.TaskGroup() as group:
        for session in range(sessions):
            group.create_task(walk(session))
    elapsed_s = time.monotonic() - began
    after = _processes.cpu_s(processes)
    used = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
    used["this process"] = time.process_time() - own_before
    return Phase(len(durations), elapsed_s, durations, used)


async def run(plan: Plan) -> tuple[dict[str, list[Phase]], dict[str, list[Phase]]]:
    """Alternate the phases of both sides."""
    busy: dict[str, list[Phase]] = {"in process": [], "tier": []}
    lone: dict[str, list[Phase]] = {"in process": [], "tier": []}
    async with (
        shop_page() as url,
        local_tier(SESSIONS, environment=ALLOW, log=Path(os.devnull)) as tier,
        tier_stepper(tier, url) as tier_step,
        baseline(url) as baseline_step,
    ):
        own = [child.pid for child in _processes.tree(os.getpid())[1:]]
        tier_pids = {process.pid for process in _processes.tree(tier.pid)}
        sides = {
            "in process": (baseline_step, [pid for pid in own if pid not in tier_pids]),
            "tier": (tier_step, [tier.pid]),
        }
        for side, (stepper, _) in sides.items():
            # Both sides in their steady state: the drivers compile their hot code first.
            await measure(stepper, SESSIONS, WARM_UP_S, [])
            click.echo(f"warmed up: {side}", err=True)
        for _ in range(ROUNDS):
            for side, (stepper, pids) in sides.items():
                busy[side].append(await measure(stepper, SESSIONS, plan.busy_s, _roots(pids)))
        for _ in range(ROUNDS):
            for side, (stepper, pids) in sides.items():
                lone[side].append(await measure(stepper, 1, plan.lone_s, _roots(pids)))
    return busy, lone


def _roots(pids: list[int]) -> list[int]:
    # `measure` walks trees; a child whose parent is in the list would be counted twice.
    listed = set(pids)
    trees = {pid: {p.pid for p in _processes.tree(pid)[1:]} for pid in pids}
    below = set().union(*trees.values()) if trees else set()
    return sorted(listed - below)


def rate(phases: list[Phase]) -> float:
    """Return the median steps per second."""
    return statistics.median(phase.steps / phase.seconds for phase in phases)


def p50_ms(phases: list[Phase]) -> float:
    """Return the median of the phases' median step, in milliseconds."""
    return statistics.median(statistics.median(phase.step_s) for phase in phases) * 1000


def cpu_ms(phases: list[Phase]) -> dict[str, float]:
    """Return CPU milliseconds per step by kind of process."""
    steps = sum(phase.steps for phase in phases)
    total: dict[str, float] = defaultdict(float)
    for phase in phases:
        for kind, seconds in phase.cpu_s.items():
            total[kind] += seconds
    return {kind: seconds / steps * 1000 for kind, seconds in sorted(total.items())}


@click.command()
@click.option("--quick", is_flag=True, help="Shorter phases; ends within 50 s on two cores.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(quick: bool, json_path: Path | None) -> None:
    """Measure P1 and P2."""
    plan = Plan(busy_s=3.5, lone_s=1.5) if quick else Plan(busy_s=15.0, lone_s=6.0)
    busy, lone = asyncio.run(run(plan))
    table(
        f"{SESSIONS} sessions, click and scroll with a plain screenshot each",
        ("", "steps/s", "p50 ms", "CPU-ms/step"),
        [(side, rate(p), p50_ms(p), sum(cpu_ms(p).values())) for side, p in busy.items()],
    )
    cpu = {side: cpu_ms(phases) for side, phases in busy.items()}
    kinds = sorted({kind for split in cpu.values() for kind in split})
    table(
        "CPU-ms per step by kind of process",
        ("", *cpu),
        [(kind, *(split.get(kind, 0.0) for split in cpu.values())) for kind in kinds],
    )
    table(
        "one session",
        ("", "steps/s", "p50 ms"),
        [(side, rate(phases), p50_ms(phases)) for side, phases in lone.items()],
    )
    bars = [
        Bar("P1", rate(busy["tier"]) / rate(busy["in process"]), 0.85, at_least=True),
        Bar("P2", p50_ms(lone["tier"]) / p50_ms(lone["in process"]), 1.5, at_least=False),
    ]
    figures = {
        "steps_per_s": {side: rate(phases) for side, phases in busy.items()},
        "cpu_ms_per_step": cpu,
        "lone_p50_ms": {side: p50_ms(phases) for side, phases in lone.items()},
    }
    finish("bench_server", bars, figures, json_path)


if __name__ == "__main__":
    main()
