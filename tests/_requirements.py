"""What marked tests need from the machine: skip them with a reason, or fail where it is required.

A test marked `browser` or `redis` is skipped where there is none, with the sentence that says what
to install. `WEBGYM_REQUIRE=browser,redis` (CI sets it) turns every skip of such a test into a
failure, whatever caused it, so that a green run has really used both.
"""

import functools
import os
import shutil
from collections.abc import Callable, Generator

import pytest

from omniboxes.browser import find_browser
from omniboxes.errors import SetupError

VARIABLE = "WEBGYM_REQUIRE"


def _browser_trouble() -> str:
    try:
        find_browser()
    except SetupError as exc:
        return str(exc)
    return ""


def _redis_trouble() -> str:
    if shutil.which("redis-server"):
        return ""
    return "redis-server is missing: install the package redis-server."


_CHECKS: dict[str, Callable[[], str]] = {
    "browser": functools.cache(_browser_trouble),
    "redis": functools.cache(_redis_trouble),
}


def required() -> set[str]:
    """Return the requirements that may not be missing in this run."""
    names = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")} - {""}
    if unknown := names - _CHECKS.keys():
        raise pytest.UsageError(
            f"{VARIABLE} names {', '.join(sorted(unknown))}; it knows {', '.join(_CHECKS)}."
        )
    return names


def _needs(item: pytest.Item) -> set[str]:
    return {name for name in _CHECKS if item.get_closest_marker(name)}


def pytest_configure(config: pytest.Config) -> None:
    required()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in sorted(_needs(item)):
        if trouble := _CHECKS[name]():
            pytest.skip(trouble)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_skip = report.skipped and not hasattr(report, "wasxfail")
    if is_skip and (names := _needs(item) & required()):
        _fail(report, f"{VARIABLE} includes {', '.join(sorted(names))}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    # Whether a file that was skipped whole holds marked tests cannot be known, so none may be.
    if report.skipped and required():
        _fail(report, f"{VARIABLE} is set and this file may hold such tests")
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport, why: str) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{reason}\nA skip is a failure here: {why}."
