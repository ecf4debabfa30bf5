"""The parts of the OpenAPI that FastAPI cannot see: raw bodies, and answers that are no JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from omniboxes.common.framing import MEDIA_TYPE
from omniboxes.common.wire import CommandBody, StepOptions

# The keys that the master reads and does not forward.
_ROUTING: dict[str, Any] = {
    "node": {"type": "string", "minLength": 1, "maxLength": 2048},
    "instance_id": {"type": "string", "minLength": 1, "maxLength": 200},
}


def _inlined(model: type[BaseModel]) -> dict[str, Any]:
    # A schema inside openapi_extra cannot point at the document's components, so it has its own.
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(definitions[node["$ref"].rsplit("/", 1)[1]])
            return {key: resolved(value) for key, value in node.items()}
        return [resolved(item) for item in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = resolved(schema)
    return inlined


def _body(properties: dict[str, Any], *, routed: bool, commands: str) -> dict[str, Any]:
    commands_schema = _inlined(CommandBody)["properties"]
    named: dict[str, Any] = {}
    for name, schema in commands_schema.items():
        named[name] = next(part for part in schema["anyOf"] if part.get("type") == "object")
    routing = _ROUTING if routed else {}
    schema = {
        "type": "object",
        "properties": {**routing, **properties, **named},
        "required": sorted(routing),
        "additionalProperties": False,
        commands: [{"required": [name]} for name in named],
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def command_body(*, routed: bool = False) -> dict[str, Any]:
    """Describe the body of `/execute`: exactly one command; at the master also where it goes."""
    return _body({}, routed=routed, commands="oneOf")


def step_body(*, routed: bool = False) -> dict[str, Any]:
    """Describe the body of `/step`: at most one command and how to look at the page."""
    described = _body(_inlined(StepOptions)["properties"], routed=routed, commands="oneOf")
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    none = {"not": {"anyOf": [{"required": entry["required"]} for entry in schema["oneOf"]]}}
    schema["oneOf"] = [*schema["oneOf"], none]
    return described


def image_answer() -> dict[int | str, dict[str, Any]]:
    """Describe the answer of `/screenshot`."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {f"image/{kind}": binary for kind in ("png", "jpeg", "webp")}
    return {200: {"description": "The screenshot", "content": content}}


def step_answer() -> dict[int | str, dict[str, Any]]:
    """Describe the answer of `/step`."""
    content = {
        MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        "application/json": {"schema": {"type": "object", "additionalProperties": True}},
    }
    description = "A 4-byte big-endian length, that much JSON, the image; or JSON on request"
    return {200: {"description": description, "content": content}}
