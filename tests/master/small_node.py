"""A small but real node: the node API over a pool in memory, on uvicorn, without browsers.

It grants, releases and answers like the node server, keeps a log of what it was asked, and can be
told to be slow or to answer something else.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from omniboxes.common import framing
from omniboxes.common.hop import AVAILABLE_HEADER, budget_s
from omniboxes.common.web import create_app
from omniboxes.common.wire import NodeInfo, PageMetadata, Status
from omniboxes.errors import (
    DeadlineExceeded,
    InstanceNotFound,
    InvalidLifetime,
    OmniboxError,
    PoolExhausted,
)

PNG = b"\x89PNG small " + bytes(range(256)) * 400
STEP_FIELDS = {"status": "success", "metadata": {"title": "Small"}}


@dataclass
class Asked:
    """One request as the node saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class SmallNode:
    """A node of `capacity` sessions."""

    capacity: int = 4
    key: str | None = None
    max_lifetime_mins: float = 240
    sends_count: bool = True
    """Whether answers carry the count of free sessions."""
    delay_s: dict[str, float] = field(default_factory=dict)
    """Seconds by path that an answer takes; cut short by the request's deadline."""
    heeds_deadline: bool = True
    answers: dict[str, Response | OmniboxError] = field(default_factory=dict)
    """What to answer on a path, instead of the node's own answer."""
    in_use: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)

    @property
    def available(self) -> int:
        return self.capacity - len(self.in_use)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def forget(self) -> None:
        """Be as new: no lease, no log, nothing odd to do."""
        self.heeds_deadline = True
        for memory in (self.delay_s, self.answers, self.in_use, self.asked):
            memory.clear()

    def app(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield

        app = create_app(title="Small node", key=self.key, max_body_bytes=2**25, lifespan=lifespan)
        for path, methods in ROUTES.items():
            app.add_api_route(path, self._answer, methods=methods, response_model=None)
        return app

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        await self._note(request)
        if seconds := self.delay_s.get(path):
            await self._wait(request, seconds)
        canned = self.answers.get(path)
        if isinstance(canned, OmniboxError):
            raise canned
        if canned is not None:
            return canned
        if path == "/info":
            return JSONResponse(self.info().model_dump())
        if path == "/get":
            return self._get(request)
        identifier = request.query_params["instance_id"]
        if identifier not in self.in_use:
            raise InstanceNotFound("Instance not in use or already released")
        return await self._session_answer(path, identifier, request)

    async def _note(self, request: Request) -> None:
        if request.url.path == "/info":
            return  # a poll may come at any time
        headers, query = dict(request.headers), dict(request.query_params)
        body = await request.body()
        self.asked.append(Asked(request.method, request.url.path, query, headers, body))

    async def _wait(self, request: Request, seconds: float) -> None:
        if not self.heeds_deadline:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(budget_s(request, 60)):
                await asyncio.sleep(seconds)
        except TimeoutError as exc:
            raise DeadlineExceeded("The command took too long") from exc

    def info(self) -> NodeInfo:
        return NodeInfo(
            available=self.available, capacity=self.capacity, in_use=sorted(self.in_use)
        )

    def _get(self, request: Request) -> Response:
        lifetime_mins = float(request.query_params.get("lifetime_mins", 1))
        if not 0 < lifetime_mins <= self.max_lifetime_mins:
            raise InvalidLifetime(
                f"Invalid lifetime_mins: {lifetime_mins:g}. "
                f"Must be between 0 and {self.max_lifetime_mins:g} minutes."
            )
        if not self.available:
            raise PoolExhausted("No instances available")
        identifier = f"{uuid.uuid4()}:9000"
        self.in_use.add(identifier)
        return self._counted({"instance_id": identifier})

    async def _session_answer(self, path: str, identifier: str, request: Request) -> Response:
        match path:
            case "/reset":
                self.in_use.remove(identifier)
                return self._counted(Status().model_dump())
            case "/screenshot":
                return Response(PNG, media_type="image/png")
            case "/step":
                body = framing.encode(STEP_FIELDS, PNG)
                return Response(body, media_type=framing.MEDIA_TYPE)
            case "/execute":
                return JSONResponse({"status": "success", "got": await request.json()})
            case "/metadata":
                page = PageMetadata(title="Small", url="about:blank", width=1280, height=768)
                return JSONResponse(page.model_dump())
            case _:
                return JSONResponse(Status(message="Probe successful").model_dump())

    def _counted(self, body: dict[str, Any]) -> Response:
        headers = {AVAILABLE_HEADER: str(self.available)} if self.sends_count else None
        return JSONResponse(body, headers=headers)


ROUTES = {
    "/get": ["POST"],
    "/reset": ["POST"],
    "/execute": ["POST"],
    "/step": ["POST"],
    "/info": ["GET"],
    "/probe": ["GET"],
    "/screenshot": ["GET"],
    "/metadata": ["GET"],
}
