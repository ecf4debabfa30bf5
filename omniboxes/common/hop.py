"""One hop to the server behind: keep-alive, a deadline, typed failures, streamed answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from starlette.responses import Response

from omniboxes.common import logs
from omniboxes.common.web import API_KEY_HEADER, REQUEST_ID_HEADER
from omniboxes.errors import DeadlineExceeded, InvalidRequest, NodeUnavailable, from_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

DEADLINE_HEADER = "x-omnibox-deadline-s"
AVAILABLE_HEADER = "x-omnibox-available"
"""On a node's answers to `/get` and `/reset`: how many sessions are free after it."""
FORWARDED_REQUEST_HEADERS = ("accept",)
FORWARDED_ANSWER_HEADERS = ("content-type", "content-length", "retry-after")
UNAUTHORIZED = 401


def budget_s(request: Request, limit_s: float) -> float:
    """Return the seconds this request may take: the caller's own deadline, at most `limit_s`."""
    given = request.headers.get(DEADLINE_HEADER)
    if given is None:
        return limit_s
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InvalidRequest(f"{DEADLINE_HEADER}: must be a positive number of seconds")
    return min(seconds, limit_s)


class Answer(NamedTuple):
    """An answer that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed body; raises NodeUnavailable when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise NodeUnavailable("The server behind answered something else than JSON") from exc


class Hop:
    """The HTTP client of one server to those behind it."""

    def __init__(self, session: aiohttp.ClientSession, key: str | None) -> None:
        self._session = session
        self._headers = {API_KEY_HEADER: key} if key else {}

    @classmethod
    @asynccontextmanager
    async def open(cls, key: str | None) -> AsyncIterator[Hop]:
        """Yield a hop whose connections live as long as the block."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        # The caller's body is answered as it is: no decoding, no cookies, no redirects.
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        ) as session:
            yield cls(session, key)

    async def send(
        self,
        method: str,
        url: str,
        *,
        deadline_s: float,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer once its headers are there.

        Raises NodeUnavailable when no answer comes or our key is refused, DeadlineExceeded when
        the answer comes too late.
        """
        sent = {**self._headers, DEADLINE_HEADER: f"{deadline_s:.3f}", **(headers or {})}
        if (identifier := logs.request_id.get()) is not None:
            sent[REQUEST_ID_HEADER] = identifier
        # The server behind answers its own deadline first; the slack lets that answer arrive.
        timeout = aiohttp.ClientTimeout(total=deadline_s + 2.0, sock_connect=5.0)
        try:
            answer = await self._session.request(
                method,
                url,
                params=params,
                data=body,
                headers=sent,
                timeout=timeout,
                allow_redirects=False,
            )
        except aiohttp.ConnectionTimeoutError as exc:
            raise NodeUnavailable("The server behind did not answer: no connection") from exc
        except TimeoutError as exc:
            raise DeadlineExceeded(f"No answer within {deadline_s:g} s") from exc
        except aiohttp.ClientError as exc:
            raise NodeUnavailable(f"The server behind did not answer: {_reason(exc)}") from exc
        if answer.status == UNAUTHORIZED:
            # The caller's key was right, or we would not be here; a 401 would blame the caller.
            answer.release()
            raise NodeUnavailable(
                "The server behind refuses our key; OMNIBOX_NODE_KEY must be the same on both"
            )
        return answer

    async def fetch(self, method: str, url: str, *, deadline_s: float, **kwargs: Any) -> Answer:
        """Send a request and return the whole answer, whatever its status."""
        response = await self.send(method, url, deadline_s=deadline_s, **kwargs)
        try:
            return Answer(response.status, response.headers, await response.read())
        except TimeoutError as exc:
            raise DeadlineExceeded(f"The answer was not complete within {deadline_s:g} s") from exc
        except aiohttp.ClientError as exc:
            raise NodeUnavailable(f"The answer was cut: {_reason(exc)}") from exc
        finally:
            response.release()

    async def json(self, method: str, url: str, *, deadline_s: float, **kwargs: Any) -> Any:
        """Send a request and return the parsed answer; an error answer is raised as its type."""
        answer = await self.fetch(method, url, deadline_s=deadline_s, **kwargs)
        parsed = answer.json()
        if answer.status >= 400:
            raise from_body(answer.status, parsed)
        return parsed

    async def relay(
        self,
        request: Request,
        url: str,
        *,
        deadline_s: float,
        params: Mapping[str, str],
        body: bytes | None = None,
    ) -> RelayedAnswer:
        """Forward a request with a JSON body and return the answer as it is, streamed."""
        kept = {
            name: request.headers[name]
            for name in FORWARDED_REQUEST_HEADERS
            if name in request.headers
        }
        if body is not None:
            kept["content-type"] = "application/json"
        answer = await self.send(
            request.method, url, deadline_s=deadline_s, params=params, body=body, headers=kept
        )
        return RelayedAnswer(answer)


class RelayedAnswer(Response):
    """An ASGI response that passes an upstream answer through, chunk by chunk."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.upstream_headers: Mapping[str, str] = answer.headers
        self.status_code = answer.status
        self.background = None
        self.body = b""
        self.raw_headers = [
            (name.encode(), answer.headers[name].encode())
            for name in FORWARDED_ANSWER_HEADERS
            if name in answer.headers
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; the upstream connection is given back whatever happens."""
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for chunk in self._answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._answer.release()


def _reason(exc: Exception) -> str:
    # aiohttp's messages carry host and port, which the caller has no use for.
    cause = exc.__cause__ or exc
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, asyncio.TimeoutError):
        return "timed out"
    return type(exc).__name__
