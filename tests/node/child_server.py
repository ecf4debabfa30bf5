"""A small instance server without a browser: a real process with the real protocol.

It speaks the control channel and the HTTP API of `omniboxes.node.instance_server`. Its commands
make it misbehave: `hang` never answers, `crash` loses the session and never answers, `forget` loses
it without a word, `exit` ends the process, `litter` leaves a file and a process behind. Variables
change it as a whole: CHILD_DIES, CHILD_DEAF (no `/healthz`), CHILD_STUBBORN (ignores SIGTERM and
the end of stdin), CHILD_HOLDS (a released slot comes back on POST /refill), CHILD_CANNOT_RESET.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)  # noqa: T201 - the control channel


def is_set(name: str) -> bool:
    return os.environ.get(name) == "1"


def error(status: int, code: str) -> web.Response:
    body = {"detail": f"the child says {code}", "code": code, "retryable": False}
    return web.json_response(body, status=status)


async def for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


class Child:
    """The slots and what is done to them."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.leased: dict[str, dict[str, Any]] = {}

    def fill(self) -> None:
        slot = str(uuid.uuid4())
        self.ready.add(slot)
        emit("ready", instance_id=slot)

    async def get(self, request: web.Request) -> web.Response:
        slot = request.query["instance_id"]
        if slot not in self.ready:
            return error(400, "instance_not_found")
        options = await request.json() if request.can_read_body else {}
        if options.get("locale") == "refused":
            return error(422, "invalid_request")
        if options.get("locale") == "dead":
            # Only the first lease fails: the slot is dead, not the request wrong.
            self.ready.discard(slot)
            return error(410, "instance_crashed")
        self.ready.remove(slot)
        self.leased[slot] = options
        return web.json_response({"instance_id": slot})

    async def reset(self, request: web.Request) -> web.Response:
        slot = request.query["instance_id"]
        if is_set("CHILD_CANNOT_RESET"):
            return error(500, "internal_fault")
        if slot in self.ready:
            self.ready.remove(slot)
        elif self.leased.pop(slot, None) is None:
            return error(400, "instance_not_found")
        emit("gone", instance_id=slot, reason="released")
        if not is_set("CHILD_HOLDS"):
            self.fill()
        return web.json_response({"status": "success"})

    async def refill(self, _: web.Request) -> web.Response:
        self.fill()
        return web.json_response({"status": "success"})

    async def look(self, request: web.Request) -> web.Response:
        if request.query["instance_id"] not in self.leased:
            return error(400, "instance_not_found")
        return web.json_response(
            {"status": "success", "path": request.path, "query": dict(request.query)}
        )

    async def execute(self, request: web.Request) -> web.Response:
        slot = request.query["instance_id"]
        if slot not in self.leased:
            return error(400, "instance_not_found")
        ((name, arguments),) = (await request.json()).items()
        result = await getattr(self, f"do_{name}")(slot, arguments)
        return web.json_response({"status": "success", "slot": slot, "pid": os.getpid(), **result})

    async def do_options(self, slot: str, _: object) -> dict[str, object]:
        return {"options": self.leased[slot]}

    async def do_environment(self, _: str, names: list[str]) -> dict[str, object]:
        return {"environment": {name: os.environ.get(name) for name in names}}

    async def do_hang(self, *_: object) -> dict[str, object]:
        await for_ever()

    async def do_refuse(self, _: str, count: int) -> dict[str, object]:
        emit("egress_refused", count=count)
        return {}

    async def do_crash(self, slot: str, _: object) -> dict[str, object]:
        del self.leased[slot]
        emit("gone", instance_id=slot, reason="crashed")
        self.fill()
        await for_ever()

    async def do_forget(self, slot: str, _: object) -> dict[str, object]:
        del self.leased[slot]
        return {}

    async def do_exit(self, *_: object) -> dict[str, object]:
        os._exit(3)

    async def do_litter(self, *_: object) -> dict[str, object]:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            # A session of its own, as Playwright gives to Chromium; it also holds our stdout.
            sleeper = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
            return {"file": file.name, "litter_pid": sleeper.pid}


async def healthz(_: web.Request) -> web.Response:
    if is_set("CHILD_DEAF"):
        await for_ever()
    return web.json_response({"status": "ok"})


@web.middleware
async def check_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    key = os.environ.get("OMNIBOX_INSTANCE_KEY")
    if request.path != "/healthz" and request.headers.get("x-api-key") != key:
        return error(401, "unauthorized")
    return await handler(request)


def end_with_parent() -> None:
    def wait_for_eof() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_eof, daemon=True).start()


async def serve(port: int, slots: int) -> None:
    child = Child()
    app = web.Application(middlewares=[check_key])
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.post("/get", child.get),
            web.post("/reset", child.reset),
            web.post("/refill", child.refill),
            web.post("/execute", child.execute),
            web.post("/step", child.execute),
            *(web.get(path, child.look) for path in ("/probe", "/metadata", "/screenshot")),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    emit("listening", port=port)
    for _ in range(slots):
        child.fill()
    ended = asyncio.Event()
    ignored = signal.SIG_IGN if is_set("CHILD_STUBBORN") else None
    if ignored is not None:
        signal.signal(signal.SIGTERM, ignored)
    else:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        end_with_parent()
    await ended.wait()
    # At once: a handler that hangs for ever would keep an orderly end from coming.
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    given = parser.parse_args()
    if is_set("CHILD_DIES"):
        sys.exit(1)
    asyncio.run(serve(given.port, given.slots))


if __name__ == "__main__":
    main()
