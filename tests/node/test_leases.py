"""The ledger by itself, and ledger, desk and pool together under arbitrary histories."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from omniboxes.common.wire import InstanceId
from omniboxes.errors import InstanceCrashed, InstanceNotFound, OmniboxError, PoolExhausted
from omniboxes.node.desk import Desk
from omniboxes.node.leases import MAX_TOMBSTONES, TOMBSTONE_S, Lease, Ledger
from omniboxes.node.pool import EmbeddedPool

T = TypeVar("T")
MAX_S = 100.0
A, B, C = (InstanceId(f"{letter}:9000") for letter in "abc")
OTHER = InstanceId("d:9001")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Ledger:
    return Ledger([(9000, 3), (9001, 1)], max_lease_s=MAX_S, clock=clock)


def granted(ledger: Ledger, instance_id: InstanceId = A, idle_s: float = 10.0) -> Lease:
    ledger.ready(instance_id)
    lease = ledger.grant(instance_id, idle_s)
    assert lease is not None
    return lease


def test_session_is_granted_once(ledger: Ledger) -> None:
    lease = granted(ledger)
    assert (lease.uuid, lease.port) == ("a", 9000)
    assert ledger.grant(A, 10.0) is None
    assert repr(ledger) == "<Ledger [0 ready, 1 leased, 0 recycling of 4]>"


def test_session_is_announced_once(ledger: Ledger) -> None:
    assert ledger.ready(A)
    assert not ledger.ready(A)
    ledger.grant(A, 10.0)
    assert not ledger.ready(A)
    ledger.release(A)
    assert not ledger.ready(A)


@pytest.mark.parametrize(
    "instance_id", ["", ":", "a", "a:", "a:9000", "b:9000", "a:1", "a:²", "a:" + "9" * 5000, "\x00"]
)
def test_id_without_a_lease_is_refused(ledger: Ledger, instance_id: str) -> None:
    ledger.ready(A)
    for call in (ledger.find, ledger.begin, ledger.release):
        with pytest.raises(InstanceNotFound, match="not in use or already released"):
            call(InstanceId(instance_id))


def test_second_release_changes_nothing(ledger: Ledger) -> None:
    granted(ledger)
    ledger.release(A)
    before = ledger.counts()
    with pytest.raises(InstanceNotFound):
        ledger.release(A)
    assert ledger.counts() == before


def test_capacity_counts_what_is_being_recycled(ledger: Ledger) -> None:
    assert ledger.counts().capacity == 0
    granted(ledger)
    ledger.ready(B)
    assert ledger.counts().capacity == 2
    ledger.release(A)
    assert (ledger.counts().recycling, ledger.counts().capacity) == (1, 2)
    ledger.gone(A, comes_back=True)
    assert ledger.counts().capacity == 2
    ledger.ready(C)
    assert (ledger.counts().recycling, ledger.counts().capacity) == (0, 2)


def test_lease_expires_when_unused(ledger: Ledger, clock: Clock) -> None:
    assert ledger.next_expiry() == math.inf
    lease = granted(ledger, idle_s=10)
    assert ledger.next_expiry() == clock.now + 10
    clock.now += 9.9
    assert ledger.expire() == []
    clock.now += 0.1
    with pytest.raises(InstanceNotFound):
        ledger.begin(A)
    assert ledger.expire() == [lease]
    assert ledger.counts().recycling == 1
    assert ledger.next_expiry() == math.inf


def test_use_renews_a_lease_at_its_start_and_its_end(ledger: Ledger, clock: Clock) -> None:
    lease = granted(ledger, idle_s=10)
    clock.now += 9
    ledger.begin(A)
    clock.now += 50
    assert ledger.expire() == []
    assert ledger.find(A) is lease
    ledger.end(lease)
    clock.now += 9.9
    assert ledger.expire() == []
    clock.now += 0.1
    assert ledger.expire() == [lease]


def test_absolute_maximum_ends_a_lease_in_use(ledger: Ledger, clock: Clock) -> None:
    lease = granted(ledger, idle_s=MAX_S)
    ledger.begin(A)
    clock.now += MAX_S
    assert ledger.expire() == [lease]
    ledger.end(lease)
    with pytest.raises(InstanceNotFound):
        ledger.find(A)


def test_crash_of_a_lease_is_remembered_until_it_is_acknowledged(ledger: Ledger) -> None:
    lease = granted(ledger)
    assert ledger.gone(A, comes_back=False) is lease
    assert ledger.counts().capacity == 0
    for call in (ledger.find, ledger.begin, ledger.release):
        with pytest.raises(InstanceCrashed):
            call(A)
    ledger.forget(A)
    with pytest.raises(InstanceNotFound):
        ledger.find(A)


def test_crash_of_a_free_session_leaves_no_trace(ledger: Ledger) -> None:
    ledger.ready(A)
    assert ledger.gone(A, comes_back=False) is None
    assert not ledger.is_buried(A)
    assert ledger.counts().capacity == 0


def test_memory_of_crashes_is_bounded_and_fades(ledger: Ledger, clock: Clock) -> None:
    ids = [InstanceId(f"{number}:9000") for number in range(MAX_TOMBSTONES + 1)]
    for instance_id in ids:
        granted(ledger, instance_id)
        ledger.gone(instance_id, comes_back=False)
    assert [ledger.is_buried(instance_id) for instance_id in ids[:2]] == [False, True]
    clock.now += TOMBSTONE_S
    assert not ledger.is_buried(ids[-1])


def test_death_of_a_server_ends_all_its_sessions_and_no_other(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.ready(B)
    other = granted(ledger, OTHER)
    ready, crashed = ledger.down(9000)
    assert (ready, crashed) == ([B], [lease])
    assert ledger.is_buried(A)
    assert not ledger.is_buried(B)
    assert ledger.find(OTHER) is other
    assert ledger.is_outlived(lease)
    assert not ledger.is_outlived(other)
    assert ledger.counts().capacity == 1


def test_released_session_without_a_successor_is_overdue(ledger: Ledger, clock: Clock) -> None:
    granted(ledger)
    ledger.release(A)
    clock.now += 59
    assert ledger.overdue(60) == {}
    clock.now += 1
    assert ledger.overdue(60) == {9000: 1}
    assert ledger.is_idle(9000)


class Histories(RuleBasedStateMachine):
    """Any history of a node: sessions come, are leased, used, released, expire and crash."""

    SERVERS = ((9000, 2), (9001, 1))
    SIZE = 3
    IDLE_S = 10.0

    leased: Bundle[InstanceId] = Bundle("leased")
    over: Bundle[InstanceId] = Bundle("over")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.ledger = Ledger(self.SERVERS, max_lease_s=MAX_S, clock=self.clock)
        self.pool = EmbeddedPool()
        self.runner = asyncio.Runner()
        self.desk = self.run(self._make_desk())
        self.keeper = self.run(self._start_keeper())
        self.made = 0
        self.ever_over: set[InstanceId] = set()
        self.held: set[InstanceId] = set()

    async def _make_desk(self) -> Desk:
        return Desk(self.ledger, self.pool, wait_s=0)

    async def _start_keeper(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.desk.keep_in_step())

    def run(self, work: Awaitable[T]) -> T:
        async def run_and_let_the_keeper_work() -> T:
            result = await work
            for _ in range(5):
                await asyncio.sleep(0)
            return result

        return self.runner.run(run_and_let_the_keeper_work())

    def do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return self.run(act())

    def teardown(self) -> None:
        self.keeper.cancel()
        self.runner.close()

    def end(self, instance_id: InstanceId) -> InstanceId:
        self.held.discard(instance_id)
        self.ever_over.add(instance_id)
        return instance_id

    def up(self, port: int) -> int:
        return sum(
            str(instance_id).endswith(f":{port}")
            for group in self.ledger.state()
            for instance_id in group
        )

    @rule(server=st.sampled_from(SERVERS))
    def session_gets_ready(self, server: tuple[int, int]) -> None:
        port, slots = server
        if self.up(port) < slots:
            self.made += 1
            self.do(lambda: self.desk.ready(InstanceId(f"{self.made}:{port}")))

    @rule(target=leased)
    def lease(self) -> InstanceId | MultipleResults[InstanceId]:
        free = self.ledger.counts().ready
        try:
            lease = self.run(self.desk.take(self.IDLE_S))
        except PoolExhausted:
            assert free == 0
            return multiple()
        assert free > 0
        assert lease.instance_id not in self.held
        assert lease.instance_id not in self.ever_over
        self.held.add(lease.instance_id)
        return lease.instance_id

    @rule(target=over, instance_id=consumes(leased))
    def release(self, instance_id: InstanceId) -> InstanceId:
        was_held = instance_id in self.held
        try:
            self.run(self.desk.give_back(instance_id))
        except InstanceNotFound:
            assert not was_held
        return self.end(instance_id)

    @rule(instance_id=over)
    def release_again(self, instance_id: InstanceId) -> None:
        before = self.ledger.counts()
        with pytest.raises(InstanceNotFound):
            self.run(self.desk.give_back(instance_id))
        assert self.ledger.counts() == before

    @rule(instance_id=over)
    def use_after_the_end(self, instance_id: InstanceId) -> None:
        with pytest.raises(OmniboxError):
            self.ledger.begin(instance_id)

    @rule(instance_id=leased)
    def use(self, instance_id: InstanceId) -> None:
        if instance_id in self.held:
            self.ledger.end(self.ledger.begin(instance_id))
        else:
            with pytest.raises(OmniboxError):
                self.ledger.begin(instance_id)

    @rule(instance_id=leased)
    def crash(self, instance_id: InstanceId) -> None:
        self.do(lambda: self.desk.gone(instance_id, comes_back=False))
        if instance_id in self.held:
            with pytest.raises(InstanceCrashed):
                self.ledger.find(instance_id)
        self.end(instance_id)

    @rule(port=st.sampled_from([9000, 9001]))
    def server_dies(self, port: int) -> None:
        for lease in self.do(lambda: self.desk.down(port)):
            self.end(lease.instance_id)
        assert self.up(port) == 0

    @precondition(lambda self: self.ledger.state().available)
    @rule(data=st.data())
    def free_session_is_recycled(self, data: st.DataObject) -> None:
        instance_id = data.draw(st.sampled_from(sorted(self.ledger.state().available)))
        self.do(lambda: self.desk.gone(instance_id, comes_back=True))
        self.ever_over.add(instance_id)

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0, MAX_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        for lease in self.do(self.desk.expire):
            assert lease.instance_id in self.held
            self.end(lease.instance_id)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        available, in_use = self.run(self.pool.snapshot())
        assert (available, in_use) == self.ledger.state()
        assert in_use == self.held
        assert not available & in_use
        assert not (available | in_use) & self.ever_over

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.ledger.counts()
        assert counts.size == self.SIZE
        assert counts.leased == len(self.held)
        assert counts.leased + counts.ready <= counts.capacity <= counts.size
        assert counts.leasable == counts.size - counts.leased


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
