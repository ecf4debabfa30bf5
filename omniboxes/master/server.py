"""The master server: one API over all nodes.

    python -m omniboxes.master.server --port 7000 --nodes http://10.0.0.7:8080 http://10.0.0.8:8080

One process and one event loop; it holds no session state, only what the nodes last said, so it can
be restarted at any time without a lease being lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, TypedDict

import click
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response

from omniboxes.common import serving
from omniboxes.common.entry import one_sentence
from omniboxes.common.hop import Hop
from omniboxes.common.openapi import command_body, image_answer, step_answer, step_body
from omniboxes.common.redis_registry import RedisRegistry, node_url
from omniboxes.common.settings import Settings
from omniboxes.common.web import create_app as create_base_app
from omniboxes.common.web import errors
from omniboxes.common.wire import (
    ClusterInfo,
    ImageFormat,
    InteractionMode,
    Lease,
    LeaseOptions,
    PageMetadata,
    Quality,
    Status,
)
from omniboxes.errors import SetupError
from omniboxes.master.bodies import read_command
from omniboxes.master.gateway import Gateway
from omniboxes.master.logging_utils import configure_logging
from omniboxes.master.metrics import Metrics, MetricsMiddleware, NodeCollector
from omniboxes.master.node_manager import REGISTRY_INTERVAL_S, NodeManager
from omniboxes.master.node_table import NodeTable

router = APIRouter()

_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result of the command",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
_SESSION_ERRORS = errors(400, 410, 413, 422, 503, 504)
_COMMAND_ERRORS = errors(400, 403, 410, 413, 422, 503, 504)


class State(TypedDict):
    """What the lifespan gives to the handlers."""

    gateway: Gateway
    metrics: Metrics


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(_gateway)]
InstanceParam = Annotated[str, Query(min_length=1, max_length=200)]
NodeParam = Annotated[str, Query(min_length=1, max_length=2048)]
LifetimeParam = Annotated[float, Query(allow_inf_nan=False)]


@router.post("/get", response_model=Lease, responses=errors(400, 403, 413, 422, 503, 504))
async def get(
    request: Request,
    gateway: GatewayDep,
    lifetime_mins: LifetimeParam = 60,
    options: LeaseOptions | None = None,
) -> Response:
    """Allocate a browser session on the least loaded node."""
    # Without a wish the node chooses: the default may be longer than it grants.
    is_given = "lifetime_mins" in request.query_params
    asked = {"lifetime_mins": repr(lifetime_mins)} if is_given else {}
    return await gateway.lease(request, asked, options)


@router.post("/reset", response_model=Status, responses=_SESSION_ERRORS)
async def reset(
    request: Request, gateway: GatewayDep, instance_id: InstanceParam, node: NodeParam
) -> Response:
    """Release a session; its id is void from now on."""
    return await gateway.reset(request, node, instance_id)


@router.get(
    "/screenshot",
    response_class=Response,
    responses={**image_answer(), **_SESSION_ERRORS},
)
async def screenshot(
    request: Request,
    gateway: GatewayDep,
    instance_id: InstanceParam,
    node: NodeParam,
    interaction_mode: InteractionMode = "set_of_marks",
    format: ImageFormat = "png",  # noqa: A002 - the name on the wire
    quality: Quality | None = None,
) -> Response:
    """Capture the page, with numbered marks or plain."""
    params = {"instance_id": instance_id, "interaction_mode": interaction_mode, "format": format}
    if quality is not None:
        params["quality"] = str(quality)
    return await gateway.relay(request, node, params)


@router.post(
    "/execute",
    response_class=Response,
    responses={**_RESULT, **_COMMAND_ERRORS},
    openapi_extra=command_body(routed=True),
)
async def execute(request: Request, gateway: GatewayDep) -> Response:
    """Execute one command in the session that the body names."""
    return await gateway.relay_command(request, await read_command(await request.body()))


@router.post(
    "/step",
    response_class=Response,
    responses={**step_answer(), **_COMMAND_ERRORS},
    openapi_extra=step_body(routed=True),
)
async def step(request: Request, gateway: GatewayDep) -> Response:
    """Execute one command, settle, and answer status, metadata, marks and screenshot at once."""
    return await gateway.relay_command(request, await read_command(await request.body()))


@router.get("/info", responses=errors(413))
async def info(gateway: GatewayDep) -> ClusterInfo:
    """Show all nodes, their health and capacity, asked now."""
    return await gateway.manager.info()


@router.get("/probe", response_model=Status, responses=_SESSION_ERRORS)
async def probe(
    request: Request, gateway: GatewayDep, instance_id: InstanceParam, node: NodeParam
) -> Response:
    """Check that a session is alive; the page itself answers."""
    return await gateway.relay(request, node, {"instance_id": instance_id})


@router.get("/metadata", response_model=PageMetadata, responses=_SESSION_ERRORS)
async def metadata(
    request: Request, gateway: GatewayDep, instance_id: InstanceParam, node: NodeParam
) -> Response:
    """Return title, URL and size of the page."""
    return await gateway.relay(request, node, {"instance_id": instance_id})


@router.get(
    "/metrics", tags=["operations"], response_class=PlainTextResponse, responses=errors(413)
)
async def metrics(request: Request) -> Response:
    """Return the metrics as Prometheus reads them."""
    return PlainTextResponse(request.state.metrics.render())


def create_app(
    settings: Settings,
    node_urls: Sequence[str] = (),
    registry_url: str | None = None,
    *,
    registry_interval_s: float = REGISTRY_INTERVAL_S,
) -> FastAPI:
    """Build the master over static nodes and, with a registry, those that announce themselves."""
    counted = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with AsyncExitStack() as stack:
            hop = await stack.enter_async_context(Hop.open(settings.resolved_node_key()))
            registry = None
            if registry_url is not None:
                registry = await stack.enter_async_context(RedisRegistry.open(registry_url))
            table = NodeTable(node_urls)
            manager = NodeManager(table, hop, registry, registry_interval_s=registry_interval_s)
            counted.registry.register(NodeCollector(manager))
            await stack.enter_async_context(manager.running())
            yield {"gateway": Gateway(settings, hop, manager), "metrics": counted}

    app = create_base_app(
        title="Omniboxes master",
        key=settings.resolved_api_key(),
        max_body_bytes=settings.max_body_bytes,
        lifespan=lifespan,
    )
    app.include_router(router)
    paths = {"/healthz"} | {route.path for route in router.routes if hasattr(route, "path")}
    app.add_middleware(MetricsMiddleware, metrics=counted, paths=paths)
    return app


def _node_urls(given: Sequence[str]) -> list[str]:
    try:
        return [node_url(text) for text in given]
    except ValueError as exc:
        raise SetupError(f"--nodes: {exc}.") from exc


def _registry_url(
    settings: Settings,
    redis_url: str | None,
    redis_host: str | None,
    redis_port: int | None,
    **_: object,
) -> str:
    if redis_url is None and redis_host is None and redis_port is None:
        redis_url = settings.redis_url
    return redis_url or f"redis://{redis_host or 'localhost'}:{redis_port or 6379}"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=7000, show_default=True, help="Port to listen on.")
@click.option("--nodes", multiple=True, metavar="URL...", help="Nodes that are always there.")
@click.argument("more_nodes", nargs=-1, metavar="")
@click.option("--redis-registry", is_flag=True, help="Also serve nodes that register in Redis.")
@click.option("--redis-host", help="Host of the registry's Redis.  [default: localhost]")
@click.option("--redis-port", type=int, help="Port of the registry's Redis.  [default: 6379]")
@click.option("--redis-url", help="The registry's Redis.  [default: OMNIBOX_REDIS_URL]")
@click.option("--end-with-parent", is_flag=True, help="End when standard input closes.")
def main(**flags: Any) -> None:
    """Serve one API over all nodes, on /get, /execute, /step and the rest."""
    with one_sentence():
        settings = Settings.load()
        configure_logging(settings.log_level)
        serving.check_bind(flags["host"], settings.resolved_api_key())
        nodes = _node_urls([*flags["nodes"], *flags["more_nodes"]])
        registry_url = _registry_url(settings, **flags) if flags["redis_registry"] else None
        app = create_app(settings, nodes, registry_url)
        if flags["end_with_parent"]:
            serving.end_with_parent()
        serving.run(app, flags["host"], flags["port"])


if __name__ == "__main__":
    main()
