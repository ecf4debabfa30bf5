"""The command `omniboxes`: its help, its flags, its light footprint."""

import asyncio
import sys

import pytest
from click.testing import CliRunner

from omniboxes import __version__
from omniboxes.browser import find_browser
from omniboxes.cli import main
from omniboxes.common.settings import Settings
from omniboxes.deploy.options import environment_of


def test_the_commands_are_listed() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    for command in ("serve", "install-browser"):
        assert command in shown.output


def test_the_version_is_shown() -> None:
    assert __version__ in CliRunner().invoke(main, ["--version"]).output


def test_every_setting_has_a_flag_but_the_keys() -> None:
    shown = CliRunner().invoke(main, ["serve", "--help"], terminal_width=200).output
    for name in Settings.model_fields:
        flag = "--" + name.replace("_", "-") + " "
        assert (flag in shown) == (name not in {"api_key", "node_key"}), name
    for flag in ("--host", "--master-port", "--node-port", "--instance-start-port", "--nginx"):
        assert flag in shown


def test_flags_become_variables() -> None:
    flags = {"slots_per_browser": "2", "enable_evaluate": True, "sandbox": None, "host": "x"}
    assert environment_of(flags) == {
        "OMNIBOX_SLOTS_PER_BROWSER": "2", "OMNIBOX_ENABLE_EVALUATE": "true"
    }  # fmt: skip


@pytest.mark.browser
def test_install_browser_prints_the_path() -> None:
    done = CliRunner().invoke(main, ["install-browser"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == find_browser().path


@pytest.mark.parametrize("module", ["fastapi", "playwright", "aiohttp", "pydantic", "uvicorn"])
async def test_the_supervisor_carries_no_server_library(module: str) -> None:
    code = f"import sys, omniboxes.deploy.process_manager; sys.exit({module!r} in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
