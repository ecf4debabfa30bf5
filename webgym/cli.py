"""The `webgym` command."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from omniboxes.errors import SetupError
from webgym import __version__


@click.group()
@click.version_option(__version__)
def cli() -> None:
    """Collect, judge and train on trajectories of visual web agents."""


@cli.command()
@click.option(
    "--site",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("tests/site"),
    show_default=True,
    help="Folder of pages to browse.",
)
@click.option("--sessions", default=8, show_default=True, type=click.IntRange(1, 64))
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1))
@click.option(
    "--out",
    default=Path("demo-output"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where screenshots go.",
)
def demo(site: Path, sessions: int, seconds: float, out: Path) -> None:
    """Drive real browsers over a folder of pages and show how fast they go."""
    from webgym.demo import run_demo

    asyncio.run(run_demo(site, sessions=sessions, seconds=seconds, out=out))


def main() -> None:
    """Run the command; a wrong set-up is one sentence, Ctrl-C no traceback."""
    try:
        cli()
    except SetupError as exc:
        click.echo(f"webgym: {exc}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
