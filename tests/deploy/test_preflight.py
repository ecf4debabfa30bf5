"""What is refused before anything starts: one sentence, status 2, and nothing else."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.tier import DEPLOY, ROOT, SERVE, Ended, free_ports, run


def sentence(ended: Ended) -> str:
    assert ended.status == 2, ended
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.stderr


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]
        # Whoever finds a port taken leaves it to its owner.
        sock.settimeout(0)
        with pytest.raises(BlockingIOError):
            sock.accept()


@pytest.mark.parametrize("flag", ["--master-port", "--node-port", "--instance-start-port"])
@pytest.mark.parametrize("command", [SERVE, DEPLOY])
async def test_a_busy_port_is_named(command: tuple[str, ...], flag: str, busy_port: int) -> None:
    first, second = map(str, free_ports(2))
    others = {"--master-port", "--node-port", "--instance-start-port"} - {flag}
    free = [part for pair in zip(sorted(others), (first, second), strict=True) for part in pair]
    said = sentence(await run(*command, "2", *free, flag, str(busy_port)))
    assert f"127.0.0.1:{busy_port}" in said
    assert "in use" in said


@pytest.mark.parametrize("sessions", ["0", "1000000"])
async def test_a_number_of_sessions_that_cannot_be_served(sessions: str) -> None:
    assert sessions in sentence(await run(*SERVE, sessions))


async def test_a_public_address_needs_a_key() -> None:
    said = sentence(await run(*SERVE, "2", "--host", "0.0.0.0"))
    assert "0.0.0.0 without a key" in said
    assert "OMNIBOX_API_KEY" in said


async def test_nginx_needs_a_key() -> None:
    said = sentence(await run(*SERVE, "2", "--nginx"))
    assert "OMNIBOX_API_KEY" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--master-port", "9000"], "master's port 9000"),
        (["--node-port", "9001", "--slots-per-browser", "2"], "node's port 9001"),
        (["--master-port", "8080"], "both have port 8080"),
        (["--master-port", "0"], "0 is not a port"),
        (["--instance-start-port", "65535", "--slots-per-browser", "1"], "65538 is not a port"),
        (["--slots-per-browser", "many"], "OMNIBOX_SLOTS_PER_BROWSER"),
        (["--settle-cap-s", "-1"], "OMNIBOX_SETTLE_CAP_S"),
        (["--log-level", "loud"], "OMNIBOX_LOG_LEVEL"),
        (["--api-key-file", "/nowhere/key"], "/nowhere/key"),
    ],
)
async def test_flags_that_do_not_fit(flags: list[str], words: str) -> None:
    assert words in sentence(await run(*SERVE, "4", *flags))


async def test_a_browser_that_is_not_there() -> None:
    master, node, instance = map(str, free_ports(3))
    ports = ["--master-port", master, "--node-port", node, "--instance-start-port", instance]
    said = sentence(await run(*SERVE, "1", *ports, "--browser", "/nowhere/chromium"))
    assert "/nowhere/chromium" in said


async def test_flags_win_over_the_environment() -> None:
    ended = await run(*SERVE, "4", "--slots-per-browser", "many", OMNIBOX_SLOTS_PER_BROWSER="2")
    assert "OMNIBOX_SLOTS_PER_BROWSER" in sentence(ended)
    ended = await run(*SERVE, "4", "--master-port", "0", OMNIBOX_MASTER_PORT="7000")
    assert "0 is not a port" in sentence(ended)


async def test_deploy_py_runs_by_path_from_anywhere(tmp_path: Path) -> None:
    # A module of the user's own must not stand in for one that the tier imports.
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')")
    ended = await run("-S", *DEPLOY, "--help", cwd=tmp_path, PYTHONPATH=_site_packages())
    assert ended.status == 0, ended.stderr
    for flag in ("--nginx", "--master-port", "--node-port", "--instance-start-port"):
        assert flag in ended.stdout
    for flag in ("--redis-port", "--disable-recovery"):
        assert flag in ended.stdout


def _site_packages() -> str:
    # Without the site module nothing points at an installed webgym but the script's own path.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    assert str(ROOT) not in folders
    return ":".join(folders)
