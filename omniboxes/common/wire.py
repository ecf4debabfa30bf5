"""Bodies and answers that client, master, node and instance share; the source of the OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NewType

from pydantic import BaseModel, ConfigDict, Field, create_model

from omniboxes.common.commands import BY_NAME

InstanceId = NewType("InstanceId", str)
NodeId = NewType("NodeId", str)

InteractionMode = Literal["set_of_marks", "coordinates"]
ImageFormat = Literal["png", "jpeg", "webp"]
Quality = Annotated[int, Field(ge=1, le=100)]


class ErrorBody(BaseModel):
    """What every error looks like, on every tier."""

    detail: str
    """One sentence that names the field or the thing."""
    code: str
    """Stable name of the error, see `omniboxes.errors`."""
    retryable: bool
    """Whether the same request may succeed later."""


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Viewport(_Input):
    """Size of the page in CSS pixels."""

    width: int = Field(ge=100, le=4096)
    height: int = Field(ge=100, le=4096)


class HttpCredentials(_Input):
    """User and password for HTTP authentication."""

    username: str
    password: str


class ProxyOptions(_Input):
    """The proxy a lease goes out through: `http://host:port` or `socks5://host:port`."""

    server: str = Field(min_length=1, max_length=2048)
    username: str | None = None
    password: str | None = None


class LeaseOptions(_Input):
    """What a user's sites need for this lease; none of it outlives the lease."""

    caller: str | None = Field(default=None, max_length=200)
    """Name of the client, shown in `/info` of the node."""
    viewport: Viewport | None = None
    locale: str | None = Field(default=None, max_length=50, pattern=r"^[A-Za-z0-9_-]+$")
    timezone_id: str | None = Field(default=None, max_length=100)
    user_agent: str | None = Field(default=None, max_length=1000)
    extra_http_headers: dict[str, str] | None = None
    http_credentials: HttpCredentials | None = None
    proxy: ProxyOptions | None = None
    storage_state: dict[str, Any] | None = None
    """Cookies and local storage, as Playwright's `storage_state` writes them."""
    ignore_https_errors: bool = False
    settle_cap_s: float | None = Field(default=None, ge=0, le=60)
    """Longest settling of this lease; the server's setting when unset."""

    def needs_own_context(self) -> bool:
        """Tell whether a warm context cannot serve this lease."""
        return bool(self.model_fields_set - {"caller", "settle_cap_s"})


class Lease(BaseModel):
    """A granted session."""

    instance_id: str
    """`<uuid>:<port>`; opaque to clients."""
    node: str
    """Opaque, stable hash of the node."""


class NodeLease(BaseModel):
    """A granted session, as the node and the instance tier answer it."""

    instance_id: str


class Status(BaseModel):
    """An action that was carried out."""

    status: Literal["success"] = "success"
    message: str | None = None


class PageMetadata(BaseModel):
    """What page the session shows."""

    title: str
    url: str
    width: int
    height: int


class NodeInfo(BaseModel):
    """State of one node's pool."""

    available: int
    capacity: int
    in_use: list[str]
    callers: dict[str, str] = {}
    """Names that clients gave with their leases, by instance id."""


class NodeState(BaseModel):
    """One node, as the master sees it."""

    url: str
    hash: str
    healthy: bool
    capacity: int
    available: int
    instances: list[str]


class ClusterInfo(BaseModel):
    """State of all nodes."""

    nodes: list[NodeState]


class InstanceInfo(BaseModel):
    """State of one instance server."""

    ready: bool
    in_lease: bool
    slots: int
    available: int
    leased: int


class Settled(BaseModel):
    """How the page came to rest after an action."""

    reason: str
    """`idle`, `cap`, `navigation_pending`, or `none` when nothing was waited for."""
    ms: float
    """Milliseconds between the action's end and the decision."""
    waited_for: list[str]
    """What was pending at some time: `fetch`, `timer`, `animation`, `image`, `navigation`, …"""


class Health(BaseModel):
    """Answer of `/healthz`."""

    status: Literal["ok"] = "ok"


def _command_fields() -> dict[str, Any]:
    return {name: (cls | None, None) for name, cls in BY_NAME.items()}


CommandBody: type[BaseModel] = create_model(
    "CommandBody",
    __doc__="Exactly one command with its arguments.",
    __config__=ConfigDict(extra="forbid"),
    **_command_fields(),
)


class StepOptions(_Input):
    """The fields of a `/step` body beside its command."""

    interaction_mode: InteractionMode = "set_of_marks"
    format: ImageFormat = "png"
    quality: Quality | None = None
    expression: str | None = Field(default=None, min_length=1, max_length=100_000)
    """JavaScript evaluated after settling, where the server enables it."""


STEP_OPTION_NAMES = frozenset(StepOptions.model_fields)
