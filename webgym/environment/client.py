"""The async client of an omniboxes master.

    async with MasterClient("localhost", 7000, api_key=key) as client:
        async with client.lease() as browser:
            await client.execute(browser, {"visit_page": {"url": "https://example.com"}})
            seen = await client.step(browser, {"page_down": {}}, interaction_mode="coordinates")

Every failure is an `OmniboxError` rebuilt from the wire; a server that does not answer is
`NodeUnavailable`, one that answers too late `DeadlineExceeded`. Nothing is retried here: only the
caller knows whether an action may happen twice.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiohttp

from omniboxes.common import framing
from omniboxes.common.wire import LeaseOptions
from omniboxes.errors import DeadlineExceeded, InstanceNotFound, NodeUnavailable, from_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from omniboxes.common.wire import ImageFormat, InteractionMode

DEADLINE_HEADER = "x-omnibox-deadline-s"
RELEASE_LIMIT_S = 10.0


class Instance(NamedTuple):
    """A leased browser: an opaque handle."""

    instance_id: str
    node: str


@dataclass(frozen=True, slots=True)
class PageState:
    """What page a browser shows."""

    title: str
    url: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Step:
    """What a `/step` brought back."""

    image: bytes
    metadata: PageState
    settle: dict[str, Any]
    marks: dict[str, Any] | None
    value: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Whatever else the answer says: dialogs, downloads, tabs, a command's own result."""

    @classmethod
    def from_body(cls, body: bytes) -> Step:
        """Decode an answer of `/step`."""
        fields, image = framing.decode(body)
        return cls(
            image=image,
            metadata=PageState(**fields.pop("metadata")),
            settle=fields.pop("settle"),
            marks=fields.pop("marks"),
            value=fields.pop("value", None),
            extra=fields,
        )


class MasterClient:
    """One connection pool to one master; safe for any number of concurrent episodes."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = 7000,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        scheme = "https" if port == 443 else "http"
        self._base_url = (base_url or f"{scheme}://{host}:{port}").rstrip("/")
        self._headers = {"x-api-key": api_key} if api_key else {}
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; harmless when closed already."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Leases.

    async def get_instance(
        self, lifetime_mins: float = 60, options: LeaseOptions | None = None
    ) -> Instance:
        """Lease a browser; PoolExhausted when none is free."""
        body = options.model_dump(mode="json", exclude_unset=True) if options else None
        params = {"lifetime_mins": f"{lifetime_mins:g}"}
        answer = await self._json("POST", "/get", params=params, body=body)
        return Instance(answer["instance_id"], answer["node"])

    async def reset_instance(self, instance: Instance) -> None:
        """Give a browser back; InstanceNotFound when that was done before."""
        await self._json("POST", "/reset", params=instance._asdict())

    @asynccontextmanager
    async def lease(
        self, lifetime_mins: float = 60, options: LeaseOptions | None = None
    ) -> AsyncIterator[Instance]:
        """Lease a browser for a block; it is given back however the block ends."""
        instance = await self.get_instance(lifetime_mins, options)
        try:
            yield instance
        finally:
            # In a task of its own: a cancelled block must give its browser back, too.
            releasing = asyncio.create_task(self._release(instance), name="release-browser")
            await asyncio.shield(releasing)

    async def _release(self, instance: Instance) -> None:
        try:
            async with asyncio.timeout(RELEASE_LIMIT_S):
                await self.reset_instance(instance)
        except InstanceNotFound:
            return  # expired, or released by the block itself

    # Pages.

    async def execute(
        self,
        instance: Instance,
        command: Mapping[str, Mapping[str, Any]],
        *,
        deadline_s: float | None = None,
    ) -> dict[str, Any]:
        """Carry out one command, `{"<name>": {arguments}}`, and return its answer."""
        body = {**instance._asdict(), **command}
        answer: dict[str, Any] = await self._json(
            "POST", "/execute", body=body, deadline_s=deadline_s
        )
        return answer

    async def step(
        self,
        instance: Instance,
        command: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        interaction_mode: InteractionMode = "set_of_marks",
        image_format: ImageFormat = "png",
        quality: int | None = None,
        expression: str | None = None,
        deadline_s: float | None = None,
    ) -> Step:
        """Carry out a command, if any, and look at the page: one round trip."""
        options: dict[str, Any] = {"interaction_mode": interaction_mode, "format": image_format}
        if quality is not None:
            options["quality"] = quality
        if expression is not None:
            options["expression"] = expression
        body = {**instance._asdict(), **options, **(command or {})}
        return Step.from_body(await self._call("POST", "/step", body=body, deadline_s=deadline_s))

    async def screenshot(
        self,
        instance: Instance,
        interaction_mode: InteractionMode = "set_of_marks",
        *,
        image_format: ImageFormat = "png",
        quality: int | None = None,
    ) -> bytes:
        """Return an image of the page as it is."""
        params = {**instance._asdict(), "interaction_mode": interaction_mode}
        params["format"] = image_format
        if quality is not None:
            params["quality"] = str(quality)
        return await self._call("GET", "/screenshot", params=params)

    async def metadata(self, instance: Instance) -> PageState:
        """Return the page's title, address and size."""
        return PageState(**await self._json("GET", "/metadata", params=instance._asdict()))

    async def probe(self, instance: Instance) -> None:
        """Ask the page itself whether it is alive; raises what is wrong when it is not."""
        await self._json("GET", "/probe", params=instance._asdict())

    async def get_info(self) -> dict[str, Any]:
        """Return the state of all nodes."""
        info: dict[str, Any] = await self._json("GET", "/info")
        return info

    # The wire.

    async def _json(self, method: str, path: str, **kwargs: Any) -> Any:
        return json.loads(await self._call(method, path, **kwargs))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        deadline_s: float | None = None,
    ) -> bytes:
        if self._session is None:
            raise RuntimeError("use the client as `async with MasterClient(...) as client:`")
        headers = {} if deadline_s is None else {DEADLINE_HEADER: f"{deadline_s:.3f}"}
        limit_s = self._timeout_s if deadline_s is None else deadline_s + 5.0
        try:
            async with self._session.request(
                method,
                self._base_url + path,
                params=params,
                json=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=limit_s, sock_connect=10.0),
            ) as response:
                content = await response.read()
        except TimeoutError as exc:
            raise DeadlineExceeded(f"{path}: no answer within {limit_s:g} s") from exc
        except aiohttp.ClientError as exc:
            raise NodeUnavailable(f"{self._base_url} did not answer {path}: {exc}") from exc
        if response.status >= 400:
            raise from_body(response.status, _parsed(content))
        return content


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None
