"""The node server: one process per machine, which owns the machine's pool of browser sessions.

    python -m omniboxes.node.server --port 8080 --instances 8 --instance-start-port 9000

It starts and supervises the instance servers, hands their sessions out under leases and forwards
what clients do in them. State is in this one process, so there is one worker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

import click
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response

from omniboxes.common import serving
from omniboxes.common.entry import one_sentence
from omniboxes.common.hop import AVAILABLE_HEADER
from omniboxes.common.openapi import command_body, image_answer, step_answer, step_body
from omniboxes.common.settings import Settings
from omniboxes.common.web import create_app as create_base_app
from omniboxes.common.web import errors
from omniboxes.common.wire import (
    ImageFormat,
    InstanceId,
    InteractionMode,
    LeaseOptions,
    NodeInfo,
    NodeLease,
    PageMetadata,
    Quality,
    Status,
)
from omniboxes.node.logging_utils import configure_logging
from omniboxes.node.metrics import Metrics, Stopwatch
from omniboxes.node.node import DEFAULT_LIFETIME_MINS, Node, NodeConfig, open_node

router = APIRouter()

_LOOK_ERRORS = errors(400, 410, 413, 422, 503, 504)
_COMMAND_ERRORS = errors(400, 403, 410, 413, 422, 503, 504)
_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result of the command",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
_AVAILABLE = {
    AVAILABLE_HEADER: {
        "description": "How many sessions can be leased after this",
        "schema": {"type": "integer"},
    }
}


class State(TypedDict):
    """What the lifespan gives to the handlers."""

    node: Node


async def _node(request: Request) -> Node:
    node: Node = request.state.node
    return node


async def _lifetime(
    request: Request,
    lifetime_mins: Annotated[
        float, Query(allow_inf_nan=False, description="Minutes the lease may stay unused")
    ] = DEFAULT_LIFETIME_MINS,
) -> float | None:
    """Tell a lifetime that was asked for from the default, which fits any maximum."""
    return lifetime_mins if "lifetime_mins" in request.query_params else None


NodeDep = Annotated[Node, Depends(_node)]
InstanceParam = Annotated[InstanceId, Query(min_length=1, max_length=200)]


@router.post(
    "/get",
    tags=["leases"],
    responses={
        200: {"description": "The lease", "headers": _AVAILABLE},
        **errors(400, 403, 413, 422, 503, 504),
    },
)
async def get(
    request: Request,
    response: Response,
    node: NodeDep,
    lifetime_mins: Annotated[float | None, Depends(_lifetime)],
    options: LeaseOptions | None = None,
) -> NodeLease:
    """Lease a session; it ends by itself when it was unused for its lifetime."""
    instance_id = await node.get(request, lifetime_mins, options)
    response.headers[AVAILABLE_HEADER] = str(node.available)
    return NodeLease(instance_id=instance_id)


@router.post(
    "/reset",
    tags=["leases"],
    response_model_exclude_none=True,
    responses={
        200: {"description": "The lease is over", "headers": _AVAILABLE},
        **errors(400, 413, 422, 503),
    },
)
async def reset(response: Response, node: NodeDep, instance_id: InstanceParam) -> Status:
    """Release a session; its id is void from now on."""
    await node.reset(instance_id)
    response.headers[AVAILABLE_HEADER] = str(node.available)
    return Status()


@router.get("/probe", tags=["page"], response_model=Status, responses=_LOOK_ERRORS)
async def probe(request: Request, node: NodeDep, instance_id: InstanceParam) -> Response:
    """Check that a session is alive; the page itself answers."""
    return await node.forward(request, instance_id)


@router.get("/metadata", tags=["page"], response_model=PageMetadata, responses=_LOOK_ERRORS)
async def metadata(request: Request, node: NodeDep, instance_id: InstanceParam) -> Response:
    """Return title, URL and size of the page."""
    return await node.forward(request, instance_id)


@router.get(
    "/screenshot",
    tags=["page"],
    response_class=Response,
    responses={**image_answer(), **_LOOK_ERRORS},
)
async def screenshot(
    request: Request,
    node: NodeDep,
    instance_id: InstanceParam,
    interaction_mode: InteractionMode = "set_of_marks",
    format: ImageFormat = "png",  # noqa: A002 - the name on the wire
    quality: Quality | None = None,
) -> Response:
    """Capture the page, with numbered marks or plain."""
    params: dict[str, str] = {"interaction_mode": interaction_mode, "format": format}
    if quality is not None:
        params["quality"] = str(quality)
    return await node.forward(request, instance_id, params=params)


@router.post(
    "/execute",
    tags=["page"],
    response_class=Response,
    responses={**_RESULT, **_COMMAND_ERRORS},
    openapi_extra=command_body(),
)
async def execute(request: Request, node: NodeDep, instance_id: InstanceParam) -> Response:
    """Execute one command and let the page settle."""
    return await node.forward(request, instance_id, body=await request.body())


@router.post(
    "/step",
    tags=["page"],
    response_class=Response,
    responses={**step_answer(), **_COMMAND_ERRORS},
    openapi_extra=step_body(),
)
async def step(request: Request, node: NodeDep, instance_id: InstanceParam) -> Response:
    """Execute one command, settle, and answer status, metadata, marks and screenshot at once."""
    return await node.forward(request, instance_id, body=await request.body())


@router.get(
    "/info",
    tags=["operations"],
    responses=errors(413, 503),
    response_model_exclude_defaults=True,
)
async def info(node: NodeDep) -> NodeInfo:
    """Show how many sessions there are, how many are free, and which are in use."""
    return await node.info()


@router.get(
    "/metrics", tags=["operations"], response_class=PlainTextResponse, responses=errors(413)
)
async def metrics(node: NodeDep) -> Response:
    """Return the metrics as Prometheus reads them."""
    return PlainTextResponse(node.metrics.render())


def create_app(config: NodeConfig) -> FastAPI:
    """Build the node server; its instance servers live as long as the application."""
    counted = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with open_node(config, counted) as node:
            yield {"node": node}

    app = create_base_app(
        title="Omniboxes node",
        key=config.settings.resolved_node_key(),
        max_body_bytes=config.settings.max_body_bytes,
        lifespan=lifespan,
    )
    app.include_router(router)
    paths = {"/healthz"} | {route.path for route in router.routes if hasattr(route, "path")}
    app.add_middleware(Stopwatch, metrics=counted, paths=paths)
    return app


def _settings(flags: dict[str, Any]) -> Settings:
    """Read the environment; flags that were given win."""
    redis_url = flags["redis_url"]
    if redis_url is None and (flags["redis_host"] or flags["redis_port"]):
        host, port = flags["redis_host"] or "localhost", flags["redis_port"] or 6379
        redis_url = f"redis://{host}:{port}"
    given = {
        "redis_url": redis_url,
        "slots_per_browser": flags["slots_per_browser"],
        "lease_max_mins": flags["lifetime_max"],
    }
    return Settings.load(**{name: value for name, value in given.items() if value is not None})


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, help="Port to listen on.")
@click.option(
    "--instances",
    type=click.IntRange(1, 10_000),
    default=4,
    show_default=True,
    help="Sessions to offer.",
)
@click.option(
    "--instance-start-port",
    "--instance_start_port",
    default=9000,
    show_default=True,
    help="First port of the instance servers.",
)
@click.option(
    "--slots-per-browser", "--slots_per_browser", type=int, help="Sessions that share a Chromium."
)
@click.option(
    "--lifetime-max", "--lifetime_max", type=float, help="Longest life of a lease, in minutes."
)
@click.option("--redis-url", "--redis_url", help="Keep the pool in this Redis.")
@click.option("--redis-host", "--redis_host", help="Keep the pool in the Redis of this host.")
@click.option("--redis-port", "--redis_port", type=int, help="Port of that Redis.")
@click.option("--workers", type=int, hidden=True, help="Accepted and ignored: one is enough.")
@click.option("--end-with-parent", is_flag=True, help="End when standard input closes.")
def main(**flags: Any) -> None:
    """Serve the browser sessions of this machine."""
    with one_sentence():
        settings = _settings(flags)
        configure_logging(settings.log_level)
        serving.check_bind(flags["host"], settings.resolved_node_key())
        config = NodeConfig(
            settings, flags["instances"], flags["port"], flags["instance_start_port"]
        )
        app = create_app(config)
        if flags["end_with_parent"]:
            serving.end_with_parent()
        serving.run(app, flags["host"], flags["port"])


if __name__ == "__main__":
    main()
