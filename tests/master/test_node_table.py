"""The node table: which node a lease is asked of, and who is known."""

import pytest

from omniboxes.common.redis_registry import node_url
from omniboxes.common.wire import NodeId, NodeInfo
from omniboxes.errors import NodeNotFound
from omniboxes.master.node_table import Node, NodeTable, node_id

A, B, C = "http://a:8080", "http://b:8080", "http://c:8080"


def table_of(**available: int) -> NodeTable:
    table = NodeTable([f"http://{name}:8080" for name in available])
    for node, count in zip(table, available.values(), strict=True):
        table.record(node, NodeInfo(available=count, capacity=max(count, 4), in_use=[]))
    return table


def order(table: NodeTable) -> list[str]:
    tried: list[NodeId] = []
    while True:
        with table.choose(tried) as node:
            if node is None:
                return [table.find(name).url for name in tried]
            tried.append(node.id)


def test_most_room_first_and_full_nodes_last() -> None:
    assert order(table_of(a=0, b=2, c=5)) == [C, B, A]


def test_a_burst_spreads_before_any_answer() -> None:
    table = table_of(a=3, b=3)
    asked: list[Node] = []
    blocks = [table.choose([]) for _ in range(6)]
    for block in blocks:
        node = block.__enter__()
        assert node is not None
        asked.append(node)
    assert sorted(node.url for node in asked) == [A] * 3 + [B] * 3
    assert repr(table) == "<NodeTable [2 nodes, 2 healthy, 0 free]>"
    for block in blocks:
        block.__exit__(None, None, None)
    assert repr(table) == "<NodeTable [2 nodes, 2 healthy, 6 free]>"


def test_a_request_that_fails_is_no_longer_counted() -> None:
    table = table_of(a=1)
    with pytest.raises(RuntimeError), table.choose([]):
        raise RuntimeError
    assert repr(table) == "<NodeTable [1 nodes, 1 healthy, 1 free]>"


def test_equal_nodes_take_turns() -> None:
    table = table_of(a=4, b=4, c=4)
    chosen = []
    for _ in range(6):
        with table.choose([]) as node:
            assert node is not None
            chosen.append(node.url)
    assert chosen == [A, B, C, A, B, C]


def test_unhealthy_nodes_are_asked_only_when_none_is_healthy() -> None:
    table = table_of(a=4, b=4)
    table.record_failure(table.find(A))
    assert order(table) == [B]
    table.record_failure(table.find(B))
    assert sorted(order(table)) == [A, B]


def test_a_hash_and_any_spelling_of_the_url_name_a_node() -> None:
    table = NodeTable(["http://A:8080/"])
    node = table.find(node_id(A))
    assert len(node.id) == 16
    assert table.find(A) is node
    assert table.find("http://a:8080/") is node


@pytest.mark.parametrize("name", ["", "nope", "http://other:8080", "http://[broken", "://"])
def test_an_unknown_name_is_not_found(name: str) -> None:
    with pytest.raises(NodeNotFound) as caught:
        NodeTable([A]).find(name)
    assert caught.value.detail == f"Node {name} is not found"


def test_a_node_that_is_down_keeps_its_name() -> None:
    table = table_of(a=1)
    table.record_failure(table.find(A))
    assert table.find(node_id(A)).state().model_dump() == {
        "url": A, "hash": node_id(A), "healthy": False, "capacity": 0, "available": 0,
        "instances": [],
    }  # fmt: skip


def test_the_registry_adds_and_removes_but_static_nodes_stay() -> None:
    table = NodeTable([A])
    assert [node.url for node in table.sync([A, B])] == [B]
    assert table.sync([B]) == []
    assert [node.url for node in table] == [A, B]
    table.sync([])
    assert [node.url for node in table] == [A]


@pytest.mark.parametrize("header", [None, "", "many", "-1", "1.5"])
def test_a_count_that_is_none_is_ignored(header: str | None) -> None:
    table = table_of(a=3)
    table.record_available(table.find(A), header)
    assert table.find(A).reported == 3


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.7:8080", "ftp://a", "http://", "http://u:p@a", "http://a?x=1", "http://a:x"],
)
def test_what_is_no_node_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        node_url(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (" HTTP://Host:80/ ", "http://host:80"),
        ("https://host/nodes/7/", "https://host/nodes/7"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_a_node_url_has_one_spelling(text: str, url: str) -> None:
    assert node_url(text) == url
