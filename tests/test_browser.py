import os
import subprocess
import sys
from pathlib import Path

import pytest

from omniboxes._bounded import run_bounded
from omniboxes._fonts import has_fonts
from omniboxes.browser import (
    Browser,
    BrowserNotFound,
    find_browser,
    install_browser,
    sandbox_decision,
)
from omniboxes.errors import SetupError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing installed: an empty PATH and an empty home."""
    for name in ("OMNIBOX_BROWSER", "PLAYWRIGHT_BROWSERS_PATH", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("bin", "home"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    return tmp_path


def make_executable(path: Path, script: str = "exit 0") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def put_on_path(machine: Path, *names: str) -> None:
    for name in names:
        make_executable(machine / "bin" / name)


def download_shell(
    cache: Path, revision: str, inner: str = "chrome-headless-shell-linux64/chrome-headless-shell"
) -> str:
    """Lay out what Playwright leaves after a complete download."""
    folder = cache / f"chromium_headless_shell-{revision}"
    path = make_executable(folder / inner)
    (folder / "INSTALLATION_COMPLETE").touch()
    return path


def playwright_cache(machine: Path) -> Path:
    mac = sys.platform == "darwin"
    return machine / "home" / ("Library/Caches" if mac else ".cache") / "ms-playwright"


def test_headless_shell_on_path_comes_before_any_other(machine: Path) -> None:
    download_shell(playwright_cache(machine), "1254")
    put_on_path(machine, "google-chrome", "chromium", "chromium-headless-shell")
    expected = str(machine / "bin" / "chromium-headless-shell")
    assert find_browser() == Browser(expected, "headless-shell")


def test_playwrights_headless_shell_comes_before_a_full_chromium(machine: Path) -> None:
    put_on_path(machine, "chromium", "google-chrome")
    shell = download_shell(playwright_cache(machine), "1254")
    assert find_browser() == Browser(shell, "headless-shell")


def test_newest_of_playwrights_shells_is_taken_by_number(machine: Path) -> None:
    cache = playwright_cache(machine)
    download_shell(cache, "999", "chrome-linux/headless_shell")
    newest = download_shell(cache, "1254")
    download_shell(cache, "1180", "chrome-mac/headless_shell")
    assert find_browser().path == newest


def test_download_cut_short_is_passed_over(machine: Path) -> None:
    cache = playwright_cache(machine)
    complete = download_shell(cache, "1180")
    download_shell(cache, "1254")
    (cache / "chromium_headless_shell-1254" / "INSTALLATION_COMPLETE").unlink()
    assert find_browser().path == complete


def test_playwrights_own_folder_setting_is_followed(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download_shell(playwright_cache(machine), "1254")
    elsewhere = download_shell(machine / "browsers", "1100")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(machine / "browsers"))
    assert find_browser().path == elsewhere


def test_browsers_inside_the_playwright_package_are_looked_for_there(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download_shell(playwright_cache(machine), "1254")
    put_on_path(machine, "chromium")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "0")
    # The package of this environment holds none, so the next kind is taken, not the cache's.
    assert find_browser().kind == "chromium"


@pytest.mark.parametrize(
    "names",
    [
        ("chromium", "google-chrome"),
        ("chromium-browser", "google-chrome"),
        ("google-chrome", "google-chrome-stable"),
        ("google-chrome-stable",),
    ],
)
def test_full_chromium_is_the_last_choice(machine: Path, names: tuple[str, ...]) -> None:
    put_on_path(machine, *names)
    assert find_browser() == Browser(str(machine / "bin" / names[0]), "chromium")


def test_argument_wins_over_variable_and_variable_over_discovery(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(machine, "chromium-headless-shell")
    argument = make_executable(machine / "mine" / "chrome")
    variable = make_executable(machine / "theirs" / "headless_shell")
    monkeypatch.setenv("OMNIBOX_BROWSER", variable)
    assert find_browser(argument) == Browser(argument, "chromium")
    assert find_browser() == Browser(variable, "headless-shell")


def test_chosen_path_that_does_not_exist_is_an_error_even_with_a_browser_installed(
    machine: Path,
) -> None:
    put_on_path(machine, "chromium")
    with pytest.raises(BrowserNotFound, match="/no/such/chrome does not exist"):
        find_browser("/no/such/chrome")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_chosen_path_that_cannot_be_run_is_an_error(
    machine: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = machine / "chrome"
    path.touch(mode=0o644) if kind == "file" else path.mkdir()
    monkeypatch.setenv("OMNIBOX_BROWSER", str(path))
    with pytest.raises(BrowserNotFound, match=r"is not an executable file: .*OMNIBOX_BROWSER"):
        find_browser()


@pytest.mark.skipif(sys.platform == "darwin", reason="an installed app is found anywhere")
def test_no_browser_says_which_command_gets_one(machine: Path) -> None:
    with pytest.raises(BrowserNotFound, match="omniboxes install-browser"):
        find_browser()


def test_sandbox_is_on_for_an_ordinary_user_and_off_for_root() -> None:
    assert sandbox_decision(None, is_root=False) == (True, "Chromium's sandbox is on.")
    enabled, reason = sandbox_decision(None, is_root=True)
    assert not enabled
    assert "root" in reason


def test_sandbox_of_this_process_follows_its_user() -> None:
    assert sandbox_decision(None)[0] is (os.geteuid() != 0)


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("setting", [True, False])
def test_sandbox_setting_is_obeyed_and_named(setting: bool, is_root: bool) -> None:
    enabled, reason = sandbox_decision(setting, is_root=is_root)
    assert enabled is setting
    assert "OMNIBOX_SANDBOX" in reason


def test_fonts_are_counted_by_fontconfig_where_it_is_installed(machine: Path) -> None:
    make_executable(machine / "bin" / "fc-list", "exit 0")
    assert not has_fonts()
    make_executable(machine / "bin" / "fc-list", "echo /some/font.ttf: Some Font")
    assert has_fonts()


@pytest.mark.skipif(sys.platform == "darwin", reason="the system's own fonts are found")
def test_fonts_are_searched_in_folders_without_fontconfig(machine: Path) -> None:
    assert not has_fonts()
    folder = machine / "share" / "fonts" / "truetype"
    folder.mkdir(parents=True)
    (folder / "readme.txt").touch()
    assert not has_fonts()
    (folder / "Some.TTF").touch()
    assert has_fonts()


def test_installing_where_all_is_there_does_nothing(machine: Path) -> None:
    put_on_path(machine, "chromium-headless-shell")
    make_executable(machine / "bin" / "fc-list", "echo /some/font.ttf: Some Font")
    lines: list[str] = []
    assert install_browser(lines.append).kind == "headless-shell"
    assert lines == []


def test_installing_over_a_chosen_browser_that_does_not_start_says_why(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'error while loading shared libraries: libnss3.so' >&2; exit 127"
    monkeypatch.setenv("OMNIBOX_BROWSER", make_executable(machine / "chrome", script))
    with pytest.raises(BrowserNotFound, match=r"does not start \(error while .* libnss3\.so\)"):
        install_browser()


def test_driver_that_does_not_start_says_what_it_lacks(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(machine, "chromium-headless-shell")
    script = "echo 'error while loading shared libraries: libatomic.so.1' >&2; exit 127"
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", make_executable(machine / "node", script))
    with pytest.raises(SetupError, match=r"driver does not start .* `apt-get install libatomic1`"):
        install_browser()


@pytest.mark.skipif(sys.platform == "darwin", reason="the system's own fonts are found")
def test_browser_without_fonts_says_which_to_install(machine: Path) -> None:
    put_on_path(machine, "chromium-headless-shell")  # and no apt-get, so none can be installed
    with pytest.raises(SetupError, match=r"No font was found.*fonts-liberation"):
        install_browser()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.skipif(sys.platform == "darwin", reason="the system's own fonts are found")
def test_fonts_are_installed_beside_a_browser_that_lacks_them(machine: Path) -> None:
    put_on_path(machine, "chromium-headless-shell")
    make_executable(machine / "bin" / "apt-get", f'echo "$@" >>"{machine}/calls"')
    install_browser()
    update, install = (machine / "calls").read_text().splitlines()
    assert "update" in update
    assert "fonts-liberation" in install
    assert "chromium" not in install


def test_find_prints_the_path_and_nothing_else(machine: Path) -> None:
    path = make_executable(machine / "chrome")
    status, output, errors = run_module("find", OMNIBOX_BROWSER=path)
    assert (status, output, errors) == (0, f"{path}\n", "")


def test_find_without_a_browser_prints_one_sentence_and_no_traceback() -> None:
    status, output, errors = run_module("find", OMNIBOX_BROWSER="/no/such/chrome")
    assert (status, output) == (2, "")
    assert errors.startswith("The browser /no/such/chrome does not exist: ")
    assert errors.count("\n") == 1


def run_module(command: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "omniboxes.browser", command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_program_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    finished = run_bounded(
        ["/bin/sh", "-c", f'exec 3>"{pipe}"; echo alive >&3; sleep 600 & wait'], timeout_s=1
    )
    assert not finished.ok
    assert finished.trouble == "no end after 1 s"
    # The pipe ends when the last process that holds it does.
    os.set_blocking(reader, True)
    with open(reader, encoding="utf-8") as held:
        assert held.read() == "alive\n"


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo some words >&2; exit 3", "some words"),
        ("echo 'Error: no net' >&2; echo '    at line 1' >&2; exit 1", "Error: no net"),
        ("exit 3", "exit status 3"),
    ],
)
def test_trouble_of_a_failed_program_is_the_line_that_says_it(script: str, trouble: str) -> None:
    assert run_bounded(["/bin/sh", "-c", script], timeout_s=10).trouble == trouble


def test_program_that_is_missing_is_trouble_too() -> None:
    assert run_bounded(["/no/such/program"], timeout_s=10).trouble.startswith("/no/such/program")
