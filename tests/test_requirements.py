"""A marked test never goes missing unseen: it runs, says why it was skipped, or fails."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

HEADER = "import pytest\n\npytestmark = [pytest.mark.browser]\n\n"


def run_pytest(
    folder: Path, source: str, *, require: str = "", browser: str = sys.executable
) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser:\n    redis:\n")
    (folder / "test_inner.py").write_text(source)
    command = ["-m", "pytest", "-p", "tests._requirements", "-p", "no:cacheprovider", "-rs"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMNIBOX_BROWSER": browser,
        "WEBGYM_REQUIRE": require,
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_missing_browser_skips_with_the_sentence_to_follow(tmp_path: Path) -> None:
    source = HEADER + "def test_page():\n    assert False\n"
    status, output = run_pytest(tmp_path, source, browser="/nowhere/chromium")
    assert status == 0
    assert "1 skipped" in output
    assert "run `omniboxes install-browser`" in output


def test_missing_browser_fails_where_it_is_required(tmp_path: Path) -> None:
    source = HEADER + "def test_page():\n    pass\n"
    status, output = run_pytest(
        tmp_path, source, require="browser,redis", browser="/nowhere/chromium"
    )
    assert status == 1
    assert "run `omniboxes install-browser`" in output
    assert "A skip is a failure here: WEBGYM_REQUIRE includes browser." in output


def test_any_skip_of_a_required_test_fails_and_no_other_does(tmp_path: Path) -> None:
    source = (
        "import pytest\n\n"
        "@pytest.mark.browser\n"
        "def test_skipped_in_its_body():\n    pytest.skip('not today')\n\n"
        "@pytest.mark.browser\n"
        "@pytest.mark.skip(reason='not ever')\n"
        "def test_skipped_by_mark():\n    pass\n\n"
        "@pytest.mark.browser\n"
        "@pytest.mark.xfail(reason='known', strict=True)\n"
        "def test_known_to_fail():\n    assert False\n\n"
        "@pytest.mark.browser\n"
        "def test_that_runs():\n    pass\n\n"
        "def test_without_a_mark():\n    pytest.skip('needs another system')\n"
    )
    status, output = run_pytest(tmp_path, source, require="browser")
    assert status == 1
    assert "not today" in output
    assert "not ever" in output
    # A skip by mark ends in set-up, which pytest counts as an error.
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in output


def test_file_skipped_whole_fails_where_something_is_required(tmp_path: Path) -> None:
    source = "import pytest\n\npytest.skip('no such library', allow_module_level=True)\n"
    assert run_pytest(tmp_path, source)[0] == 5
    status, output = run_pytest(tmp_path, source, require="redis")
    assert status not in (0, 5)
    assert "no such library" in output


def test_unknown_requirement_is_refused(tmp_path: Path) -> None:
    status, output = run_pytest(tmp_path, "def test_it():\n    pass\n", require="browzer")
    assert status == 4
    assert "WEBGYM_REQUIRE names browzer; it knows browser, redis." in output
