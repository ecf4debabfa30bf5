"""Run a helper program to its end, or end it with everything it started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_GRACE_S = 10.0


class Finished(NamedTuple):
    """What a program left behind."""

    ok: bool
    stdout: str
    trouble: str
    """Why it is not ok, in a few words; empty when it is."""


def run_bounded(
    command: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None
) -> Finished:
    """Run `command`, `env` added to the environment, for `timeout_s` at most.

    A program that fails or is missing is a `Finished` that is not ok, never an exception. It gets a
    process group of its own: installers start downloaders and those keep our
    pipes open, so ending the first process alone would leave us waiting for the rest.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except OSError as exc:
        return Finished(False, "", f"{command[0]}: {exc.strerror}")
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Finished(False, "", f"no end after {timeout_s:.0f} s")
    except BaseException:
        _end(process)
        raise
    if process.returncode == 0:
        return Finished(True, stdout, "")
    return Finished(False, stdout, _gist(stderr) or f"exit status {process.returncode}")


def _gist(stderr: str) -> str:
    """Return the line of `stderr` that says what went wrong: the first to say so, else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    return (errors or lines[-1:] or [""])[0]


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.communicate()
        return
