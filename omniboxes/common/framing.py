"""The answer of `/step`: a 4-byte big-endian length, that many bytes of JSON, then the image."""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

MEDIA_TYPE = "application/x-omnibox-step"
_LENGTH = struct.Struct(">I")


class Frame(NamedTuple):
    """A decoded answer."""

    fields: dict[str, Any]
    image: bytes


def to_json(fields: dict[str, Any]) -> bytes:
    """Encode an answer; half a surrogate pair, which pages may hold, becomes U+FFFD."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def encode(fields: dict[str, Any], image: bytes) -> bytes:
    """Join the JSON part and the image bytes into one body."""
    head = to_json(fields)
    return b"".join((_LENGTH.pack(len(head)), head, image))


def decode(body: bytes) -> Frame:
    """Split a body; raises ValueError when it is not a whole frame."""
    if len(body) < _LENGTH.size:
        raise ValueError(f"a step answer has at least {_LENGTH.size} bytes, this one {len(body)}")
    (size,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + size
    if len(body) < end:
        raise ValueError(
            f"the step answer was cut: {end} bytes of head announced, {len(body)} came"
        )
    fields = json.loads(body[_LENGTH.size : end])
    if not isinstance(fields, dict):
        raise ValueError("the head of a step answer is a JSON object")
    return Frame(fields, body[end:])
