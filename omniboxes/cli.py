"""The command `omniboxes`: serve browsers, install one."""

from __future__ import annotations

from typing import Any

import click

from omniboxes import __version__
from omniboxes.browser import install_browser
from omniboxes.common.entry import one_sentence
from omniboxes.deploy.deploy import deploy
from omniboxes.deploy.options import deployment_options, setting_options


@click.group()
@click.version_option(__version__, prog_name="omniboxes")
def main() -> None:
    """Serve pools of real, isolated browser sessions behind one HTTP API."""


@main.command()
@deployment_options
@setting_options
def serve(**flags: Any) -> None:
    """Serve SESSIONS browser sessions on this machine until Ctrl-C."""
    with one_sentence():
        deploy(flags)


@main.command("install-browser")
def install() -> None:
    """Get a browser and fonts where they are missing, and print the browser's path."""
    with one_sentence():
        browser = install_browser(lambda line: click.echo(line, err=True))
    click.echo(browser.path)
