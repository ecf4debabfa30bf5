"""The slots of one Chromium: which sessions may be leased, which are, which are spare.

Every change is one synchronous step that also says what became of the ids, so that the node hears
of each of them exactly once. Opening and closing browsers is done elsewhere.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from omniboxes.errors import InstanceCrashed, InstanceNotFound, PoolExhausted

if TYPE_CHECKING:
    from collections.abc import Callable

CRASHED_KEPT = 1000

GoneReason = Literal["crashed", "released", "recycled"]
S = TypeVar("S")


@dataclass(slots=True)
class Slot(Generic[S]):
    """A session under the id by which it is, or can be, leased."""

    id: str
    session: S
    leased: bool = False


class Slots(Generic[S]):
    """At most `size` exposed sessions and `spares` warm ones behind them."""

    def __init__(
        self,
        size: int,
        spares: int,
        *,
        on_ready: Callable[[str], None],
        on_gone: Callable[[str, GoneReason], None],
    ) -> None:
        self.size = size
        self.leases_granted = 0
        self._max_spares = spares
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._slots: dict[str, Slot[S]] = {}
        self._spares: list[S] = []
        self._crashed: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Slots [{self.leased} leased, {self.ready} ready, {len(self._spares)} spare]>"

    @property
    def ready(self) -> int:
        """How many sessions wait to be leased."""
        return sum(not slot.leased for slot in self._slots.values())

    @property
    def leased(self) -> int:
        """How many sessions are leased."""
        return sum(slot.leased for slot in self._slots.values())

    @property
    def wants_session(self) -> bool:
        """Whether one more session is needed."""
        return len(self._slots) + len(self._spares) < self.size + self._max_spares

    def add(self, session: S) -> None:
        """Take in a fresh session, as a slot or as a spare."""
        self._spares.append(session)
        self._promote()

    def get(self, instance_id: str) -> Slot[S]:
        """Return a leased slot; raises what became of it otherwise."""
        slot = self._slots.get(instance_id)
        if slot is not None and slot.leased:
            return slot
        if instance_id in self._crashed:
            raise InstanceCrashed("The browser of this session crashed")
        raise InstanceNotFound(f"Invalid instance UUID: {instance_id[:100]}")

    def lease(self, instance_id: str | None) -> Slot[S]:
        """Lease the slot named, or any; raises when it is not to be had."""
        if instance_id is None:
            slot = next((s for s in self._slots.values() if not s.leased), None)
            if slot is None:
                raise PoolExhausted("No instances available")
        else:
            slot = self._slots.get(instance_id)
            if slot is None:
                raise InstanceNotFound(f"Invalid instance UUID: {instance_id[:100]}")
            if slot.leased:
                raise InstanceNotFound("Instance is already in lease")
        slot.leased = True
        self.leases_granted += 1
        return slot

    def release(self, instance_id: str) -> S | None:
        """End a lease and return the session to close, None when it crashed before."""
        if instance_id in self._crashed:
            del self._crashed[instance_id]
            return None
        slot = self.get(instance_id)
        del self._slots[instance_id]
        self._on_gone(instance_id, "released")
        self._promote()
        return slot.session

    def give_up(self, slot: Slot[S]) -> S | None:
        """End a lease that was never handed out; None when it ended meanwhile."""
        return self.release(slot.id) if self._slots.get(slot.id) is slot else None

    def replace(self, slot: Slot[S], session: S) -> S:
        """Put another session into a leased slot and return the one to close.

        That is the new one when the lease has ended meanwhile.
        """
        if self._slots.get(slot.id) is not slot:
            return session
        slot.session, replaced = session, slot.session
        return replaced

    def drop(self, session: S) -> None:
        """Forget a session that crashed, whatever it was."""
        if session in self._spares:
            self._spares.remove(session)
        for slot in [slot for slot in self._slots.values() if slot.session is session]:
            del self._slots[slot.id]
            if slot.leased:
                self._remember_crash(slot.id)
            self._on_gone(slot.id, "crashed")
        self._promote()

    def withdraw(self) -> list[S]:
        """Take back every session that is not leased and return them to be closed."""
        taken, self._spares = self._spares, []
        for slot in [slot for slot in self._slots.values() if not slot.leased]:
            del self._slots[slot.id]
            self._on_gone(slot.id, "recycled")
            taken.append(slot.session)
        return taken

    def sessions(self) -> list[S]:
        """Return every session there is."""
        return [*self._spares, *(slot.session for slot in self._slots.values())]

    def _promote(self) -> None:
        while self._spares and len(self._slots) < self.size:
            slot = Slot(str(uuid.uuid4()), self._spares.pop(0))
            self._slots[slot.id] = slot
            self._on_ready(slot.id)

    def _remember_crash(self, instance_id: str) -> None:
        self._crashed[instance_id] = None
        while len(self._crashed) > CRASHED_KEPT:
            self._crashed.popitem(last=False)
