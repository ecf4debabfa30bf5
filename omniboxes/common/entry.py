"""What all entry points share: a set-up error ends the process with one sentence and status 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from omniboxes.errors import SetupError

SETUP_STATUS = 2


@contextmanager
def one_sentence() -> Iterator[None]:
    """Print a SetupError without a traceback and exit with status 2."""
    try:
        yield
    except SetupError as exc:
        click.echo(str(exc), err=True)
        raise SystemExit(SETUP_STATUS) from exc
