"""One line per event on stderr: time, level, logger, message, then `key=value` fields.

The request id travels in a context variable, so that every line written while a request is served
carries it. Keys, cookies and page content are never logged.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


class LineFormatter(logging.Formatter):
    """Render a record and its `fields` as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on lines of its own."""
        line = super().format(record)
        fields: dict[str, object] = dict(getattr(record, "fields", {}))
        if (current := request_id.get()) is not None:
            fields["request_id"] = current
        head, newline, rest = line.partition("\n")
        pairs = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
        return head + pairs + newline + rest


def _quoted(value: object) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return repr(text) if not text or any(c.isspace() or c in "=\"'" for c in text) else text


def configure(tier: str, level: str) -> None:
    """Send all logs of this process to stderr, marked with the tier; for entry points only."""
    handler = logging.StreamHandler(sys.stderr)
    pattern = f"%(asctime)s %(levelname)s [{tier}] %(name)s: %(message)s"
    handler.setFormatter(LineFormatter(pattern))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Third parties at DEBUG drown our one line per request.
    for noisy in ("asyncio", "uvicorn", "aiohttp", "websockets"):
        logging.getLogger(noisy).setLevel(max(logging.INFO, logging.getLevelName(level.upper())))
