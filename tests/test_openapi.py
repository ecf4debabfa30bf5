"""Every tier answers what its OpenAPI says, whatever is sent to it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from omniboxes.common.settings import Settings
from omniboxes.master.server import create_app as create_master_app
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.host import BrowserHost
from omniboxes.node.instance_server import create_instance_app
from omniboxes.node.node import NodeConfig
from omniboxes.node.server import create_app as create_node_app
from tests.conftest import API_KEY
from webgym.environment.local_tier import LocalTier

pytestmark = pytest.mark.browser

# A fuzzed page may take any time to settle; the answer must come all the same.
HEADERS = {"x-api-key": API_KEY, "x-omnibox-deadline-s": "3"}

AnyCase = Case[Any]

fuzzed = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def _schema(app: FastAPI) -> OpenApiSchema:
    # The coverage phase sends thousands of requests, each of which may touch a real page.
    config = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
    return schemathesis.openapi.from_dict(app.openapi(), config=config)


# The applications describe themselves without being run.
_policy = EgressPolicy.parse("", guarded_ports=[])
master = _schema(create_master_app(Settings()))
node = _schema(create_node_app(NodeConfig(Settings(), 1)))
instance = _schema(create_instance_app(Settings(), BrowserHost(Settings(), 1, _policy), None))


def _call(method: str, url: str) -> Any:
    request = urllib.request.Request(url, method=method, headers=HEADERS)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _check(case: AnyCase, url: str) -> None:
    """Call, and judge by the schema: an unknown id or a full pool is no failure."""
    answer = case.call(base_url=url, headers=HEADERS)
    assert answer.status_code != 500, answer.text
    case.validate_response(
        answer, excluded_checks=[not_a_server_error, positive_data_acceptance], headers=HEADERS
    )
    if case.path == "/get" and answer.status_code == 200:
        lease = "&".join(f"{name}={value}" for name, value in answer.json().items())
        # A fuzzed lifetime may be over already.
        with contextlib.suppress(urllib.error.HTTPError):
            _call("POST", f"{url}/reset?{lease}")


def _at_a_live_session(case: AnyCase, routing: dict[str, str]) -> None:
    """Send it to a real session, so that more than the check of the id is met."""
    is_valid = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if case.path == "/reset" or not is_valid:
        return
    for part in (case.query, case.body):
        if isinstance(part, dict):
            part.update({name: value for name, value in routing.items() if name in part})


@pytest.fixture(scope="module")
def master_lease(tier: LocalTier) -> Iterator[dict[str, str]]:
    lease = _call("POST", f"{tier.url}/get")
    yield lease
    _call("POST", f"{tier.url}/reset?instance_id={lease['instance_id']}&node={lease['node']}")


@pytest.fixture(scope="module")
def node_url(tier: LocalTier) -> str:
    url: str = _call("GET", f"{tier.url}/info")["nodes"][0]["url"]
    return url


@pytest.fixture(scope="module")
def instance_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "omniboxes.node.instance_server", "--end-with-parent"]
    environment = {
        **os.environ,
        "OMNIBOX_INSTANCE_KEY": API_KEY,
        "TMPDIR": str(tmp_path_factory.mktemp("instance")),
    }
    with subprocess.Popen(
        [*command, "--port", str(port), "--slots", "1"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        while b'"ready"' not in process.stdout.readline():
            assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def instance_lease(instance_url: str) -> dict[str, str]:
    lease: dict[str, str] = _call("POST", f"{instance_url}/get")
    return lease


@master.parametrize()
@fuzzed
def test_the_master_answers_what_it_says(
    case: AnyCase, tier: LocalTier, master_lease: dict[str, str]
) -> None:
    _at_a_live_session(case, master_lease)
    _check(case, tier.url)


@node.parametrize()
@fuzzed
def test_the_node_answers_what_it_says(
    case: AnyCase, node_url: str, master_lease: dict[str, str]
) -> None:
    _at_a_live_session(case, {"instance_id": master_lease["instance_id"]})
    _check(case, node_url)


@instance.parametrize()
@fuzzed
def test_the_instance_server_answers_what_it_says(
    case: AnyCase, instance_url: str, instance_lease: dict[str, str]
) -> None:
    _at_a_live_session(case, instance_lease)
    _check(case, instance_url)
