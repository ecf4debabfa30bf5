"""Settings of the tier: `OMNIBOX_*` variables, mirrored by the flags of `omniboxes serve`.

Every server of a deployment reads the same class, so that one environment configures all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from omniboxes.common.commands import first_problem
from omniboxes.errors import SetupError

ENV_PREFIX = "OMNIBOX_"

LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
]


class Settings(BaseSettings):
    """One value object with every knob of the browser tier."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    api_key: SecretStr | None = None
    """Key that clients send as `x-api-key`. Needed on a non-loopback bind."""
    api_key_file: Path | None = None
    """File that holds the key, instead of `OMNIBOX_API_KEY`."""
    node_key: SecretStr | None = None
    """Key between master and nodes; the API key when unset."""

    redis_url: str | None = None
    """Redis that holds the pool sets `available` and `in_use`; embedded pool when unset."""
    redis_prefix: str = ""
    """Prefix of the pool's keys, for several nodes on one Redis."""

    egress_allow: str = ""
    """Hosts, CIDRs and host:port that pages may reach although private or loopback."""
    enable_evaluate: bool = False
    """Accept `evaluate` (JavaScript in the page), needed for programmatic rewards."""

    browser: str | None = None
    """Path of the Chromium to use; discovered when unset."""
    sandbox: bool | None = None
    """Chromium's own sandbox; on when unset, unless the process is root."""
    slots_per_browser: int = Field(default=4, ge=1, le=32)
    """Sessions (isolated contexts) that share one Chromium."""
    spares_per_browser: int = Field(default=1, ge=0, le=8)
    """Warm contexts kept beyond the sessions, so that a released one is replaced at once."""
    recycle_after_leases: int = Field(default=500, ge=1)
    """Relaunch a Chromium after that many leases, when it is idle."""
    recycle_rss_mb: int = Field(default=4096, ge=256)
    """Relaunch a Chromium above that much memory, when it is idle."""
    max_tabs: int = Field(default=10, ge=1)
    """Pages one session may have open; what a site opens beyond is closed at once."""

    viewport_width: int = Field(default=1280, ge=100, le=4096)
    """Width of the page in CSS pixels."""
    viewport_height: int = Field(default=768, ge=100, le=4096)
    """Height of the page in CSS pixels."""
    settle_cap_s: float = Field(default=3.0, ge=0, le=60)
    """Longest wait for what an action started, before the screenshot is taken anyway."""
    command_timeout_s: float = Field(default=30.0, gt=0)
    """Deadline of one command, navigation included."""

    lease_max_mins: float = Field(default=240.0, gt=0)
    """Longest life of a lease, used or not; also the largest `lifetime_mins`."""
    get_wait_s: float = Field(default=5.0, ge=0)
    """How long `/get` waits for a session that is just being prepared."""
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Largest request body."""

    log_level: LogLevel = "INFO"
    """Level of the servers' logs; DEBUG adds one line per request."""

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Read the environment, where a value is not given as a flag.

        Raises SetupError with the sentence that names the variable.
        """
        try:
            return cls(**given)
        except ValidationError as exc:
            raise SetupError(f"The setting {ENV_PREFIX}{_capital(first_problem(exc))}.") from exc

    def resolved_api_key(self) -> str | None:
        """Return the clients' key from the variable or the file, None when there is none."""
        if self.api_key is not None:
            return self.api_key.get_secret_value() or None
        if self.api_key_file is not None:
            return _read_key(self.api_key_file)
        return None

    def resolved_node_key(self) -> str | None:
        """Return the key nodes accept: their own, or else the clients'."""
        if self.node_key is not None:
            return self.node_key.get_secret_value() or None
        return self.resolved_api_key()


def _read_key(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as exc:
        raise SetupError(f"The key file {path} cannot be read: {exc}") from exc


def _capital(problem: str) -> str:
    name, colon, rest = problem.partition(":")
    return name.upper() + colon + rest
