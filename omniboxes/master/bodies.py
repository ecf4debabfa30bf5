"""Bodies of `/execute` and `/step` at the master: two routing keys beside what the node gets."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

from pydantic import BaseModel, Field, ValidationError

from omniboxes.common.commands import MAX_SLEEP_S, Sleep, first_problem
from omniboxes.errors import InvalidRequest

_LARGE_BODY_BYTES = 256 * 1024


class Route(BaseModel):
    """The keys that say whose command it is; they are not forwarded."""

    node: str = Field(min_length=1, max_length=2048)
    """The `node` of the lease."""
    instance_id: str = Field(min_length=1, max_length=200)
    """The `instance_id` of the lease."""


class RoutedCommand(NamedTuple):
    """A parsed body: where it goes, what goes there and how much longer it may take."""

    node: str
    instance_id: str
    body: bytes
    extra_s: float


async def read_command(raw: bytes) -> RoutedCommand:
    """Parse a body; one large enough to hold up the event loop is parsed in a thread."""
    if len(raw) > _LARGE_BODY_BYTES:
        return await asyncio.to_thread(parse_command, raw)
    return parse_command(raw)


def parse_command(raw: bytes) -> RoutedCommand:
    """Split the routing keys off a body; raises InvalidRequest that names the field."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest(f"body: not JSON ({_reason(exc)})") from exc
    if not isinstance(fields, dict):
        raise InvalidRequest(f"body: must be a JSON object, not {_json_name(fields)}")
    try:
        route = Route.model_validate(fields)
    except ValidationError as exc:
        raise InvalidRequest(first_problem(exc)) from exc
    rest = {name: value for name, value in fields.items() if name not in Route.model_fields}
    extra_s = MAX_SLEEP_S if Sleep.name in rest else 0.0
    return RoutedCommand(route.node, route.instance_id, json.dumps(rest).encode(), extra_s)


def _reason(exc: Exception) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at character {exc.pos}"
    return "nested too deeply" if isinstance(exc, RecursionError) else "not UTF-8 or a huge number"


def _json_name(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
