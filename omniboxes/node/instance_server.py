"""The HTTP server around one Chromium and its slots; listens on loopback only.

    python -m omniboxes.node.instance_server --port 9000 --slots 4

The node starts it, reads its events (`ready`, `gone`, …) from stdout, and talks to it over HTTP
with a key of its own. Run by hand, it serves the same API for one Chromium.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import click
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from omniboxes.common import framing, serving
from omniboxes.common.commands import Command, Evaluate, Sleep, first_problem, parse_command
from omniboxes.common.entry import one_sentence
from omniboxes.common.hop import budget_s
from omniboxes.common.openapi import command_body, image_answer, step_answer, step_body
from omniboxes.common.settings import Settings
from omniboxes.common.web import create_app, errors, json_object
from omniboxes.common.wire import (
    STEP_OPTION_NAMES,
    ImageFormat,
    InstanceInfo,
    InteractionMode,
    LeaseOptions,
    NodeLease,
    PageMetadata,
    Quality,
    Status,
    StepOptions,
)
from omniboxes.errors import InvalidRequest, SetupError
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.host import BrowserHost, emit
from omniboxes.node.instances._types import ImageOptions, StepResult
from omniboxes.node.instances.playwright_instance import PlaywrightInstance, settled
from omniboxes.node.logging_utils import configure_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

PROBE_LIMIT_S = 5.0
EXIT_GRACE_S = 0.2
_COMMAND_ERRORS = (400, 403, 410, 413, 422, 503, 504)
_LOOK_ERRORS = (400, 410, 422, 503, 504)


def create_instance_app(settings: Settings, host: BrowserHost, key: str | None) -> FastAPI:
    """Build the application around a host; the host runs as long as the application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        keeper = asyncio.create_task(host.run(), name="browser-host")
        keeper.add_done_callback(_end_with_keeper)
        try:
            yield
        finally:
            keeper.remove_done_callback(_end_with_keeper)
            keeper.cancel()
            await asyncio.wait([keeper])

    app = create_app(
        title="omniboxes instance",
        key=key,
        max_body_bytes=settings.max_body_bytes,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.host = host
    _add_lease_routes(app)
    _add_page_routes(app)
    return app


def _end_with_keeper(keeper: asyncio.Task[None]) -> None:
    # Without its browser the server is of no use: the node sees it end and starts another.
    if not keeper.cancelled() and (error := keeper.exception()) is not None:
        message = str(error) if isinstance(error, SetupError) else repr(error)
        logger.critical("the browser host ended: %s", message, exc_info=error)
    # The commands in flight have been told; their answers are still to be written.
    keeper.get_loop().call_later(EXIT_GRACE_S, os._exit, 1)


# Dependencies are coroutines: FastAPI runs plain functions in a thread, which costs far more.


async def _host(request: Request) -> BrowserHost:
    host: BrowserHost = request.app.state.host
    return host


HostDep = Annotated[BrowserHost, Depends(_host)]


async def _session(host: HostDep, instance_id: Annotated[str, Query()]) -> PlaywrightInstance:
    return host.session(instance_id)


SessionDep = Annotated[PlaywrightInstance, Depends(_session)]


def _command_deadline_s(request: Request, command: Command | None) -> float:
    settings: Settings = request.app.state.settings
    own_s = command.duration if isinstance(command, Sleep) else 0.0
    return budget_s(request, settings.command_timeout_s + own_s)


def _add_lease_routes(app: FastAPI) -> None:
    @app.post("/get", tags=["leases"], responses=errors(400, 403, 410, 413, 422, 503))
    async def get(
        host: HostDep, instance_id: str | None = None, options: LeaseOptions | None = None
    ) -> NodeLease:
        """Lease the slot named, or any that is ready."""
        return NodeLease(instance_id=await host.lease(instance_id, options))

    @app.post("/reset", tags=["leases"], responses=errors(400, 410, 422))
    async def reset(host: HostDep, instance_id: str) -> Status:
        """End a lease; answers when the id is fenced."""
        host.release(instance_id)
        return Status()

    @app.get("/info", tags=["operations"])
    async def info(host: HostDep) -> InstanceInfo:
        """Say how many slots there are and how many are leased."""
        slots = host.slots
        return InstanceInfo(
            ready=host.is_up,
            in_lease=slots.leased > 0,
            slots=slots.size,
            available=slots.ready,
            leased=slots.leased,
        )


def _add_page_routes(app: FastAPI) -> None:
    @app.get("/probe", tags=["page"], responses=errors(*_LOOK_ERRORS))
    async def probe(request: Request, session: SessionDep) -> Status:
        """Ask the page itself whether it is alive."""
        await session.metadata(budget_s(request, PROBE_LIMIT_S))
        return Status(message="Probe successful")

    @app.get("/metadata", tags=["page"], responses=errors(*_LOOK_ERRORS))
    async def metadata(request: Request, session: SessionDep) -> PageMetadata:
        """Return the page's title, address and size."""
        shown = await session.metadata(_command_deadline_s(request, None))
        return PageMetadata(**asdict(shown))

    @app.get(
        "/screenshot",
        tags=["page"],
        response_class=Response,
        responses={**image_answer(), **errors(*_LOOK_ERRORS)},
    )
    async def screenshot(
        request: Request,
        session: SessionDep,
        interaction_mode: InteractionMode = "set_of_marks",
        format: ImageFormat = "png",  # noqa: A002 - the parameter's name on the wire
        quality: Quality | None = None,
    ) -> Response:
        """Return an image of the viewport, with marks on it or without."""
        options = ImageOptions(interaction_mode == "set_of_marks", format, quality)
        shot = await session.screenshot(options, _command_deadline_s(request, None))
        return Response(shot.image, media_type=f"image/{format}")

    @app.post(
        "/execute",
        tags=["page"],
        responses=errors(*_COMMAND_ERRORS),
        openapi_extra=command_body(),
    )
    async def execute(request: Request, session: SessionDep) -> Response:
        """Carry out one command and let the page settle."""
        command = _allowed(parse_command(await json_object(request)), app.state.settings)
        answer = await session.execute(command, _command_deadline_s(request, command))
        return _json(answer)

    @app.post(
        "/step",
        tags=["page"],
        response_class=Response,
        responses={**step_answer(), **errors(*_COMMAND_ERRORS)},
        openapi_extra=step_body(),
    )
    async def step(request: Request, session: SessionDep) -> Response:
        """Carry out one command, settle, and return what the page is and looks like."""
        command, options = _parse_step(await json_object(request), app.state.settings)
        image = ImageOptions(
            options.interaction_mode == "set_of_marks", options.format, options.quality
        )
        deadline_s = _command_deadline_s(request, command)
        result = await session.step(command, image, options.expression, deadline_s)
        return _step_response(request, result, options.format)


def _parse_step(body: dict[str, Any], settings: Settings) -> tuple[Command | None, StepOptions]:
    given = {name: body.pop(name) for name in STEP_OPTION_NAMES & body.keys()}
    try:
        options = StepOptions.model_validate(given)
    except ValidationError as exc:
        raise InvalidRequest(first_problem(exc)) from exc
    if options.expression is not None:
        _require_evaluate(settings)
    # No command at all means: just look.
    return (_allowed(parse_command(body), settings) if body else None), options


def _allowed(command: Command, settings: Settings) -> Command:
    if isinstance(command, Evaluate):
        _require_evaluate(settings)
    return command


def _require_evaluate(settings: Settings) -> None:
    if not settings.enable_evaluate:
        raise InvalidRequest(
            "evaluate: is off on this server; start it with OMNIBOX_ENABLE_EVALUATE=1"
        )


def _step_response(request: Request, result: StepResult, image_format: str) -> Response:
    fields: dict[str, Any] = {
        **result.notices,
        **result.answer,
        "metadata": asdict(result.settling.metadata),
        "marks": result.shot.marks,
        "settle": settled(result.settling),
        "format": image_format,
    }
    if "application/json" in request.headers.get("accept", ""):
        encoded = base64.b64encode(result.shot.image).decode()
        return _json({**fields, "image": encoded})
    return Response(framing.encode(fields, result.shot.image), media_type=framing.MEDIA_TYPE)


def _json(fields: dict[str, Any]) -> Response:
    return Response(framing.to_json(fields), media_type="application/json")


def _guarded() -> tuple[list[int], list[tuple[str, int]]]:
    ports = [int(p) for p in os.environ.get("OMNIBOX_GUARDED_PORTS", "").split(",") if p.strip()]
    endpoints = []
    for entry in os.environ.get("OMNIBOX_GUARDED_ENDPOINTS", "").split(","):
        if entry.strip():
            address, _, port = entry.strip().rpartition(":")
            endpoints.append((address.strip("[]"), int(port)))
    return ports, endpoints


@click.command()
@click.option("--port", default=9000, show_default=True, help="0 takes a free one.")
@click.option("--slots", default=None, type=click.IntRange(1), help="Sessions of this Chromium.")
@click.option("--end-with-parent", is_flag=True, help="End when stdin closes.")
def main(port: int, slots: int | None, end_with_parent: bool) -> None:
    """Serve one Chromium on loopback."""
    with one_sentence():
        settings = Settings.load()
        configure_logging(settings.log_level)
        sock = serving.listen("127.0.0.1", port)
        port = sock.getsockname()[1]
        host = BrowserHost(settings, slots or settings.slots_per_browser, _policy(settings, port))
        app = create_instance_app(settings, host, os.environ.get("OMNIBOX_INSTANCE_KEY") or None)
    if end_with_parent:
        serving.end_with_parent()
    emit("listening", port=port)
    serving.run_on(app, sock)


def _policy(settings: Settings, port: int) -> EgressPolicy:
    ports, endpoints = _guarded()
    try:
        return EgressPolicy.parse(
            settings.egress_allow, guarded_ports=[port, *ports], guarded_endpoints=endpoints
        )
    except ValueError as exc:
        raise SetupError(str(exc)) from exc


if __name__ == "__main__":
    main()
