"""The slots of one Chromium, with plain words in the place of sessions."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omniboxes.errors import InstanceCrashed, InstanceNotFound, PoolExhausted
from omniboxes.node.slots import CRASHED_KEPT, GoneReason, Slots


class Node:
    """What the node hears: every id once when it is ready and once when it is gone."""

    def __init__(self, size: int, spares: int) -> None:
        self.ready: list[str] = []
        self.gone: dict[str, GoneReason] = {}
        self.slots: Slots[str] = Slots(size, spares, on_ready=self._ready, on_gone=self._gone)

    def _ready(self, instance_id: str) -> None:
        assert instance_id not in self.ready
        self.ready.append(instance_id)

    def _gone(self, instance_id: str, reason: GoneReason) -> None:
        assert instance_id in self.ready
        assert instance_id not in self.gone
        self.gone[instance_id] = reason

    @property
    def alive(self) -> list[str]:
        return [one for one in self.ready if one not in self.gone]


@pytest.fixture
def node() -> Node:
    node = Node(size=2, spares=1)
    for name in ("a", "b", "c"):
        node.slots.add(name)
    return node


def test_sessions_fill_the_slots_first_and_then_the_spares(node: Node) -> None:
    assert repr(node.slots) == "<Slots [0 leased, 2 ready, 1 spare]>"
    assert len(node.ready) == 2
    assert not node.slots.wants_session


def test_lease_takes_any_slot_or_the_one_named(node: Node) -> None:
    second = node.ready[1]
    assert node.slots.lease(second).id == second
    assert node.slots.lease(None).id == node.ready[0]
    assert (node.slots.leased, node.slots.ready) == (2, 0)


def test_no_slot_is_leased_twice(node: Node) -> None:
    first = node.slots.lease(None)
    with pytest.raises(InstanceNotFound, match="already in lease"):
        node.slots.lease(first.id)
    node.slots.lease(None)
    with pytest.raises(PoolExhausted, match="No instances available"):
        node.slots.lease(None)


def test_unknown_id_is_refused(node: Node) -> None:
    for call in (node.slots.get, node.slots.lease, node.slots.release):
        with pytest.raises(InstanceNotFound, match="Invalid instance UUID: nobody"):
            call("nobody")
    # An id that is ready is nobody's lease.
    with pytest.raises(InstanceNotFound):
        node.slots.get(node.ready[0])


def test_released_slot_is_replaced_by_a_spare_at_once(node: Node) -> None:
    slot = node.slots.lease(None)
    assert node.slots.release(slot.id) == "a"
    assert node.gone == {slot.id: "released"}
    assert repr(node.slots) == "<Slots [0 leased, 2 ready, 0 spare]>"
    assert node.slots.wants_session
    with pytest.raises(InstanceNotFound):
        node.slots.release(slot.id)


def test_crashed_lease_is_said_to_be_crashed_until_it_is_released(node: Node) -> None:
    slot = node.slots.lease(None)
    node.slots.drop("a")
    assert node.gone == {slot.id: "crashed"}
    assert node.slots.ready == 2
    with pytest.raises(InstanceCrashed):
        node.slots.get(slot.id)
    assert node.slots.release(slot.id) is None
    with pytest.raises(InstanceNotFound):
        node.slots.release(slot.id)


def test_crashed_idle_slot_is_nobodys_crash(node: Node) -> None:
    idle = node.ready[0]
    node.slots.drop("a")
    assert node.gone == {idle: "crashed"}
    with pytest.raises(InstanceNotFound):
        node.slots.get(idle)


def test_crashed_spare_is_forgotten(node: Node) -> None:
    node.slots.drop("c")
    assert node.gone == {}
    assert node.slots.wants_session
    node.slots.drop("c")
    node.slots.drop("never there")


def test_memory_of_crashes_is_bounded() -> None:
    node = Node(size=1, spares=0)
    for number in range(CRASHED_KEPT + 1):
        session = str(number)
        node.slots.add(session)
        node.slots.lease(None)
        node.slots.drop(session)
    with pytest.raises(InstanceNotFound):
        node.slots.get(node.ready[0])
    with pytest.raises(InstanceCrashed):
        node.slots.get(node.ready[1])


def test_withdrawing_takes_all_that_is_not_leased(node: Node) -> None:
    slot = node.slots.lease(None)
    assert sorted(node.slots.withdraw()) == ["b", "c"]
    assert list(node.gone.values()) == ["recycled"]
    assert node.slots.sessions() == ["a"]
    assert node.slots.get(slot.id).session == "a"
    assert node.slots.wants_session


def test_leased_slot_gets_another_session(node: Node) -> None:
    slot = node.slots.lease(None)
    assert node.slots.replace(slot, "own") == "a"
    assert node.slots.get(slot.id).session == "own"
    assert node.gone == {}


def test_session_that_comes_too_late_for_its_lease_is_the_one_to_close(node: Node) -> None:
    released, crashed = node.slots.lease(None), node.slots.lease(None)
    node.slots.release(released.id)
    node.slots.drop("b")
    assert node.slots.replace(released, "late") == "late"
    assert node.slots.replace(crashed, "late") == "late"
    assert node.slots.give_up(released) is None
    assert "late" not in node.slots.sessions()


def test_lease_that_is_given_up_frees_its_slot(node: Node) -> None:
    slot = node.slots.lease(None)
    assert node.slots.give_up(slot) == "a"
    assert node.gone == {slot.id: "released"}
    assert node.slots.ready == 2


class SlotMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: no session is lost, no id is told twice."""

    @initialize(size=st.integers(1, 3), spares=st.integers(0, 2))
    def start(self, size: int, spares: int) -> None:
        self.node = Node(size, spares)
        self.made = 0
        self.sessions: set[str] = set()
        self.leases: list[str] = []  # in their order: ids are drawn by place, not by name

    @precondition(lambda self: self.node.slots.wants_session)
    @rule()
    def add(self) -> None:
        self.made += 1
        session = f"session {self.made}"
        self.sessions.add(session)
        self.node.slots.add(session)

    @precondition(lambda self: self.node.slots.ready > 0)
    @rule()
    def lease(self) -> None:
        self.leases.append(self.node.slots.lease(None).id)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.leases.remove(lease)
        session = self.node.slots.release(lease)
        if session is not None:
            self.sessions.remove(session)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        self.sessions.remove(session)
        self.node.slots.drop(session)

    @rule()
    def recycle(self) -> None:
        self.sessions -= set(self.node.slots.withdraw())

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "node"):
            return
        slots = self.node.slots
        assert set(slots.sessions()) == self.sessions
        assert len(self.node.alive) == slots.leased + slots.ready <= slots.size
        # A slot is never empty while a spare waits.
        spares = len(self.sessions) - slots.leased - slots.ready
        assert spares == 0 or slots.leased + slots.ready == slots.size


SlotMachine.TestCase.settings = settings(max_examples=60, deadline=None, derandomize=True)
TestSlotMachine = SlotMachine.TestCase
