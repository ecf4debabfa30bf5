"""What an installed WebGym contains and needs, and what its repository must not say."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, requires, version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

import omniboxes
import webgym

ROOT = Path(__file__).parents[1]
PACKAGES = ("omniboxes", "webgym")
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!-]*")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of a wheel, built from a copy so that the checkout stays as it is."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tree / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=50)
    (wheel,) = out.glob("*.whl")
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_every_file_of_both_packages(wheel_names: set[str]) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"omniboxes/py.typed", "webgym/py.typed"} <= files
    assert files - wheel_names == set()


def test_wheel_holds_nothing_but_the_packages_and_their_metadata(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert tops == {*PACKAGES, f"webgym-{omniboxes.__version__}.dist-info"}


def test_both_packages_tell_the_installed_version() -> None:
    assert omniboxes.__version__ == webgym.__version__ == version("webgym")


@pytest.mark.parametrize("command", PACKAGES)
def test_console_command_can_be_called(command: str) -> None:
    (script,) = entry_points(group="console_scripts", name=command)
    assert callable(script.load())


def test_browser_box_needs_neither_ml_nor_test_tools() -> None:
    needed = [Requirement(line) for line in requires("webgym") or []]
    base = {one.name for one in needed if one.marker is None or "extra" not in str(one.marker)}
    assert {"playwright", "fastapi", "redis"} <= base
    assert not base & {"datasets", "numpy", "pytest", "ray", "ruff", "torch", "transformers"}


def test_constraints_pin_each_direct_requirement_by_name_and_version_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not PIN.fullmatch(pin)] == []
    pinned = {normalised(pin.split("==")[0]) for pin in pins}
    assert {normalised(one.name) for one in direct_requirements()} - {"webgym"} <= pinned


def direct_requirements() -> list[Requirement]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_file_of_the_repository_names_the_machine_it_was_written_on() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    words = [str(ROOT).encode(), *(host.encode() for host in package_index_hosts())]
    found = [
        f"{path.relative_to(ROOT)}: {word.decode()}"
        for path in files
        if path.is_file()
        for word in words
        if word in path.read_bytes()
    ]
    assert found == []


def package_index_hosts() -> set[str]:
    """The hosts that this machine's pip is told to ask; the public one when it is told none."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    indexes = [line for line in settings.stdout.splitlines() if "index-url" in line]
    hosts = set(re.findall(r"https?://(?:[^/@\s']*@)?([^/:\s']+)", "\n".join(indexes)))
    return hosts or {"pypi" + ".org"}
