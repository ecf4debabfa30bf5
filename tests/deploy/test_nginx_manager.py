"""The nginx site, with a real nginx that has a configuration folder of its own."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from omniboxes.common import framing
from omniboxes.deploy.nginx_manager import SITE, NginxSite, site_config
from omniboxes.errors import SetupError
from tests.deploy.tier import free_ports
from tests.master.running import serve_master, serve_node
from tests.master.small_node import PNG, STEP_FIELDS, SmallNode

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is missing")

MAX_BODY_BYTES = 4096
CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/{sites}/*;
}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepared(tmp_path, "sites-enabled")


def prepared(folder: Path, sites: str) -> Path:
    names = ["sites-available", "sites-enabled"] if sites == "sites-enabled" else [sites]
    for name in names:
        (folder / name).mkdir()
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, sites=sites))
    return folder


@pytest.fixture
def running(folder: Path) -> Iterator[Path]:
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf")]) as process:
        deadline = time.monotonic() + 10
        while not (folder / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield folder
        process.terminate()


@asynccontextmanager
async def through_nginx(port: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of nginx, once its reload has taken effect."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as client:
        async with asyncio.timeout(10):
            while True:
                try:
                    async with client.get("/healthz"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
        yield client


def install_at(folder: Path, master: str, port: int = 0) -> Path:
    site = NginxSite(folder, listen_port=port or free_ports(1)[0])
    return site.install(master, max_body_bytes=MAX_BODY_BYTES)


async def test_the_tier_answers_through_nginx(running: Path) -> None:
    [port] = free_ports(1)
    async with serve_node(SmallNode()) as url, serve_master([url]) as direct:
        base = direct._base_url
        assert base is not None
        await asyncio.to_thread(install_at, running, f"127.0.0.1:{base.port}", port)
        async with through_nginx(port) as client:
            async with client.post("/get") as answer:
                handle = await answer.json()
            async with client.post("/step", json={**handle, "back": {}}) as answer:
                assert await answer.read() == framing.encode(STEP_FIELDS, PNG)
            async with client.get("/probe", params={**handle, "node": "x"}) as answer:
                assert (await answer.json())["code"] == "node_not_found"
            async with client.post("/execute", data=b"x" * (MAX_BODY_BYTES + 1)) as answer:
                assert (answer.status, (await answer.json())["code"]) == (413, "body_too_large")


async def test_a_master_that_is_down_is_503_in_our_words(running: Path) -> None:
    port, dead = free_ports(2)
    await asyncio.to_thread(install_at, running, f"127.0.0.1:{dead}", port)
    async with through_nginx(port) as client, client.get("/info") as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert await answer.json() == {
            "detail": "The master does not answer", "code": "node_unavailable", "retryable": True
        }  # fmt: skip


def test_the_default_site_makes_room(running: Path) -> None:
    default = running / "sites-enabled" / "default"
    (running / "sites-available" / "default").write_text("# the default\n")
    default.symlink_to(running / "sites-available" / "default")
    path = install_at(running, "127.0.0.1:7000")
    assert path == running / "sites-available" / SITE
    assert (running / "sites-enabled" / SITE).resolve() == path
    assert not default.is_symlink()
    assert (running / "sites-available" / "default").exists()
    install_at(running, "127.0.0.1:7001")
    assert "127.0.0.1:7001" in path.read_text()


def test_what_nginx_refuses_is_taken_back(folder: Path) -> None:
    available, enabled = folder / "sites-available", folder / "sites-enabled"
    (available / SITE).write_text("# the old site\n")
    (available / "default").write_text("nonsense;\n")
    (available / "other").write_text("nonsense;\n")
    for name in (SITE, "default", "other"):
        (enabled / name).symlink_to(available / name)
    with pytest.raises(SetupError, match=r'the old one is back: .*unknown directive "nonsense"'):
        install_at(folder, "127.0.0.1:7000")
    assert (available / SITE).read_text() == "# the old site\n"
    assert {path.name for path in enabled.iterdir()} == {SITE, "default", "other"}
    assert (enabled / SITE).readlink() == available / SITE


def test_a_first_site_that_is_refused_leaves_no_trace(folder: Path) -> None:
    (folder / "sites-enabled" / "other").write_text("nonsense;\n")
    with pytest.raises(SetupError):
        install_at(folder, "127.0.0.1:7000")
    assert list((folder / "sites-available").iterdir()) == []
    assert [path.name for path in (folder / "sites-enabled").iterdir()] == ["other"]


def test_an_nginx_that_does_not_run_is_a_sentence(folder: Path) -> None:
    with pytest.raises(SetupError, match="start nginx and try again"):
        install_at(folder, "127.0.0.1:7000")


def test_conf_d_is_used_where_there_are_no_sites(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "conf.d")
    with pytest.raises(SetupError, match="start nginx"):
        install_at(folder, "127.0.0.1:7000")
    assert (folder / "conf.d" / f"{SITE}.conf").exists()


def test_a_folder_that_is_not_nginx_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="neither sites-available nor conf"):
        install_at(tmp_path, "127.0.0.1:7000")


def test_the_error_bodies_in_the_site_are_json() -> None:
    text = site_config("127.0.0.1:7000", max_body_bytes=MAX_BODY_BYTES)
    bodies = [line.split("'")[1] for line in text.splitlines() if " return " in f" {line.strip()}"]
    assert {json.loads(body)["code"] for body in bodies} == {"body_too_large", "node_unavailable"}
