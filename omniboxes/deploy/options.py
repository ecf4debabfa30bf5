"""The flags of `omniboxes serve` and `deploy.py`; each mirrors a variable `OMNIBOX_*`, and wins.

Keys have no flag: a command line is public on its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from omniboxes.common.settings import ENV_PREFIX, Settings

_METAVARS: dict[Any, str] = {int: "INTEGER", float: "NUMBER", Path | None: "FILE"}

Command = TypeVar("Command", bound=Callable[..., Any])


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{ENV_PREFIX}{name}".upper()


def setting_options(command: Command) -> Command:
    """Add a flag for each setting but the keys."""
    for name, field in reversed(Settings.model_fields.items()):
        if not _is_a(field, SecretStr):
            command = _setting_option(name, field)(command)
    return command


def _setting_option(name: str, field: FieldInfo) -> Callable[[Command], Command]:
    flag = "--" + name.replace("_", "-")
    default = "" if field.default in (None, "") else f"; default: {field.default}"
    meaning = f"{field.description}  [{variable(name)}{default}]"
    if _is_a(field, bool):
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=meaning)
    # The value stays text: the servers read it from the environment and check it there.
    return click.option(flag, name, metavar=_METAVARS.get(field.annotation), help=meaning)


def _is_a(field: FieldInfo, kind: type) -> bool:
    return field.annotation in (kind, kind | None)


def environment_of(flags: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that the given setting flags mean."""
    given = {name: flags[name] for name in Settings.model_fields if flags.get(name) is not None}
    return {variable(name): _text(value) for name, value in given.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def deployment_options(command: Command) -> Command:
    """Add the number of sessions and the flags that say where the servers listen."""
    for option in (
        click.option("--nginx", is_flag=True, help="Let nginx pass port 80 on to the master."),
        _option("instance_start_port", 9000, "First port of the instance servers, on loopback."),
        _option("node_port", 8080, "Port of the node, on loopback."),
        _option("master_port", 7000, "Port of the master, which clients talk to."),
        _option("host", "127.0.0.1", "Address the master listens on."),
        click.argument("sessions", type=int),
    ):
        command = option(command)
    return command


def _option(name: str, default: object, meaning: str) -> Callable[[Command], Command]:
    return click.option(
        "--" + name.replace("_", "-"),
        default=default,
        envvar=variable(name),
        help=f"{meaning}  [{variable(name)}; default: {default}]",
    )
