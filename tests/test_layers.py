"""Imports point one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "omniboxes": ("webgym", "tests", "benchmarks"),
    "omniboxes/common": ("omniboxes.master", "omniboxes.node", "omniboxes.deploy"),
    "omniboxes/master": ("omniboxes.node",),
    "omniboxes/node": ("omniboxes.master",),
    "webgym": ("tests", "benchmarks"),
}


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_layer_does_not_know_those_above_it(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in _imports(path)
        if name.startswith(FORBIDDEN[folder])
    ]
    assert wrong == []


@pytest.mark.parametrize("module", ["policy.py", "_address.py", "_rule.py"])
def test_the_egress_policy_does_no_io(module: str) -> None:
    names = _imports(ROOT / "omniboxes" / "node" / "egress" / module)
    assert not names & {"asyncio", "aiohttp", "socketserver", "http"}
