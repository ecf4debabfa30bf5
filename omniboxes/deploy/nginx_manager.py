"""The nginx site `omnibox-master`: port 80 of this machine, passed on to the master.

Nothing is left half done: a site that nginx refuses is taken back, and the site that was there
before, Debian's default one included, is put back.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

from omniboxes.errors import BodyTooLarge, NodeUnavailable, SetupError

SITE = "omnibox-master"
DEFAULT_SITE = "default"
HTTP_PORT = 80
COMMAND_TIMEOUT_S = 30.0

_SITE_TEMPLATE = Template("""\
# Written by `omniboxes serve --nginx`.
upstream omnibox_master {
    server $master;
    keepalive 64;
}

server {
    listen $listen_port;
    server_name _;
    client_max_body_size $max_body_bytes;

    location / {
        proxy_pass http://omnibox_master;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $$host;
        proxy_set_header X-Forwarded-For $$proxy_add_x_forwarded_for;
        proxy_buffering off;
        proxy_request_buffering off;
        proxy_connect_timeout 600s;
        proxy_send_timeout 600s;
        proxy_read_timeout 600s;
    }

    error_page 413 @too_large;
    location @too_large {
        default_type application/json;
        return 413 '$too_large';
    }

    error_page 502 504 =503 @unavailable;
    location @unavailable {
        default_type application/json;
        add_header Retry-After 1 always;
        return 503 '$unavailable';
    }
}
""")


def site_config(master: str, *, max_body_bytes: int, listen_port: int = HTTP_PORT) -> str:
    """Return the site; what nginx itself refuses has the body of our own errors."""
    too_large = BodyTooLarge(f"The request body is larger than {max_body_bytes} bytes")
    unavailable = NodeUnavailable("The master does not answer")
    return _SITE_TEMPLATE.substitute(
        master=master,
        listen_port=listen_port,
        max_body_bytes=max_body_bytes,
        too_large=json.dumps(too_large.to_body()),
        unavailable=json.dumps(unavailable.to_body()),
    )


class NginxSite:
    """The site in one nginx: the system's, or another with its own configuration folder."""

    def __init__(self, folder: Path = Path("/etc/nginx"), *, listen_port: int = HTTP_PORT) -> None:
        self._folder = folder
        self._listen_port = listen_port

    def install(self, master: str, *, max_body_bytes: int) -> Path:
        """Write the site for the master at `host:port`, have nginx test and load it.

        Raises SetupError with the sentence that says what is missing, refused or not running.
        """
        program = _program()
        text = site_config(master, max_body_bytes=max_body_bytes, listen_port=self._listen_port)
        path, link = self._places()
        try:
            with _restored_on_error([path, *filter(None, [link, self._default_site()])]):
                self._write(path, link, text)
                self._nginx(program, "-t", "refuses the site, and the old one is back")
        except OSError as exc:
            raise SetupError(
                f"--nginx cannot write {exc.filename or path} ({exc.strerror}): run it as root, or "
                "without --nginx."
            ) from exc
        reload = f"has the site {path} but did not load it; start nginx and try again"
        self._nginx(program, "-s", reload)
        return path

    def _places(self) -> tuple[Path, Path | None]:
        available, enabled = self._folder / "sites-available", self._folder / "sites-enabled"
        if available.is_dir() and enabled.is_dir():
            return available / SITE, enabled / SITE
        if (self._folder / "conf.d").is_dir():
            return self._folder / "conf.d" / f"{SITE}.conf", None
        raise SetupError(
            f"--nginx finds neither sites-available nor conf.d in {self._folder}: is nginx set up?"
        )

    def _default_site(self) -> Path | None:
        # Debian's default site claims every request to port 80; as a link it is easily put back.
        path = self._folder / "sites-enabled" / DEFAULT_SITE
        return path if path.is_symlink() else None

    def _write(self, path: Path, link: Path | None, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        if link is not None:
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        if (default := self._default_site()) is not None:
            default.unlink()

    def _nginx(self, program: str, action: str, trouble: str) -> None:
        arguments = ["-s", "reload"] if action == "-s" else [action]
        command = [program, "-c", str(self._folder / "nginx.conf"), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise SetupError(f"nginx {trouble}: no answer for {COMMAND_TIMEOUT_S:.0f} s") from exc
        if done.returncode != 0:
            raise SetupError(f"nginx {trouble}: {_reason(done.stderr)}")


def _program() -> str:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SetupError("--nginx needs nginx: install the package nginx.")
    return program


@contextmanager
def _restored_on_error(paths: list[Path]) -> Iterator[None]:
    """Put files and links back as they were when the block fails."""
    before = [(path, *_remembered(path)) for path in paths]
    try:
        yield
    except BaseException:
        for path, target, content in before:
            path.unlink(missing_ok=True)
            if target is not None:
                path.symlink_to(target)
            elif content is not None:
                path.write_bytes(content)
        raise


def _remembered(path: Path) -> tuple[Path | None, bytes | None]:
    if path.is_symlink():
        return path.readlink(), None
    return None, path.read_bytes() if path.exists() else None


def _reason(stderr: str) -> str:
    """Return what nginx names as the cause: the first line of the worst level."""
    lines = [line.removeprefix("nginx: ").strip() for line in stderr.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("[emerg]", "[error]"))]
    return (causes or lines or ["it does not say why"])[0]
