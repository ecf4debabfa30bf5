"""What every server of the tier is built from: key check, body limit, request log, error bodies.

Handlers hold no logic: they raise `OmniboxError`, and the table here renders it. The guard is pure
ASGI, so streamed answers and context variables pass through it untouched.
"""

from __future__ import annotations

import hmac
import json
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omniboxes import __version__
from omniboxes.common import logs
from omniboxes.common.wire import ErrorBody, Health
from omniboxes.errors import (
    BodyTooLarge,
    InternalFault,
    InvalidRequest,
    MethodNotAllowed,
    OmniboxError,
    RouteNotFound,
    Unauthorized,
)

logger = logging.getLogger(__name__)

API_KEY_HEADER = "x-api-key"
REQUEST_ID_HEADER = "x-request-id"
OPEN_PATHS = frozenset({"/healthz"})

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def create_app(*, title: str, key: str | None, max_body_bytes: int, lifespan: Lifespan) -> FastAPI:
    """Build a FastAPI application with the guard, the error table and `/healthz`."""
    app = FastAPI(
        title=title,
        version=__version__,
        lifespan=lifespan,
        responses={401: {"model": ErrorBody, "description": "The key is missing or wrong"}},
    )
    app.add_middleware(Guard, key=key, max_body_bytes=max_body_bytes)
    app.add_exception_handler(OmniboxError, _render_error)
    app.add_exception_handler(RequestValidationError, _render_validation)
    app.add_exception_handler(HTTPException, _render_http_exception)
    app.add_exception_handler(Exception, _render_fault)

    @app.get("/healthz", tags=["operations"], responses={401: {"description": "Never"}})
    async def healthz() -> Health:
        """Answer as soon as the server serves; the only route that needs no key."""
        return Health()

    return app


async def json_object(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object; InvalidRequest when it is anything else."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest("body: must be valid JSON") from exc
    if not isinstance(body, dict):
        raise InvalidRequest("body: must be a JSON object")
    return body


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries for the error statuses a route can answer."""
    return {status: {"model": ErrorBody} for status in statuses}


class Guard:
    """Check key and body size, give the request its id, log one line at DEBUG."""

    def __init__(self, app: ASGIApp, *, key: str | None, max_body_bytes: int) -> None:
        self._app = app
        self._key = key.encode() if key else None
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identifier = headers.get(REQUEST_ID_HEADER, "")[:64] or uuid.uuid4().hex[:12]
        token = logs.request_id.set(identifier)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = identifier
            await send(message)

        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is not None:
                await _response(refusal)(scope, receive, send_with_id)
            else:
                await self._app(scope, self._limited(receive), send_with_id)
        finally:
            if logger.isEnabledFor(logging.DEBUG):
                elapsed_ms = (time.monotonic() - started) * 1000
                fields = {"status": status, "ms": elapsed_ms}
                logger.debug("%s %s", scope["method"], scope["path"], extra={"fields": fields})
            logs.request_id.reset(token)

    def _refusal(self, path: str, headers: Headers) -> OmniboxError | None:
        if self._key is not None and path not in OPEN_PATHS:
            given = headers.get(API_KEY_HEADER)
            if given is None:
                return Unauthorized("API Key is missing")
            if not hmac.compare_digest(given.encode(), self._key):
                return Unauthorized("Invalid API Key.")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._max_body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The request body is larger than {self._max_body_bytes} bytes")

    def _limited(self, receive: Receive) -> Receive:
        # A chunked body announces no length, so it is counted as it comes.
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return counted


def _response(error: OmniboxError) -> JSONResponse:
    headers = {"Retry-After": "1"} if error.retryable else None
    return JSONResponse(error.to_body(), status_code=error.status, headers=headers)


async def _render_error(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, OmniboxError)
    return _response(exc)


async def _render_validation(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    problem = exc.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return _response(InvalidRequest(f"{where}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"))


async def _render_http_exception(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    if isinstance(exc.__cause__, OmniboxError):
        # FastAPI wraps what the reading of a body raises; our own refusal keeps its status.
        return _response(exc.__cause__)
    known: dict[int, OmniboxError] = {
        404: RouteNotFound(f"There is no route {request.url.path}"),
        405: MethodNotAllowed(f"{request.url.path} does not take {request.method}"),
    }
    error = known.get(exc.status_code, InvalidRequest(str(exc.detail)))
    response = _response(error)
    response.headers.update(exc.headers or {})
    return response


async def _render_fault(_: Request, exc: Exception) -> JSONResponse:
    # Starlette raises the exception again after this answer, so the server logs its traceback.
    return _response(InternalFault(f"An unexpected {type(exc).__name__}; the server's log has it"))
