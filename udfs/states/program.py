"""A program that publishes states and holds replicas, as a state machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stackcast.udfs.states.messages import Signal, SignalKind, is_later
from stackcast.udfs.states.segments import after, check_size


@dataclass(frozen=True, slots=True)
class Update:
    """An update of a state. ``publisher``: the name of who published it, ``vnf`` its number."""

    state: str
    publisher: str
    vnf: int
    number: int
    data: bytes

    def is_newer(self, other: Update) -> bool:
        """Whether it is the state's value rather than another: the later number, or of the same
        number that of the greater VNF_ID."""
        if self.number == other.number:
            return self.vnf > other.vnf
        return is_later(self.number, other.number)


@dataclass
class _Published:
    state: int = 0
    next: int = 0
    #: Not acknowledged yet, with the numbers that they have on this connection.
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)


class Program:
    """What a program called ``name`` publishes and holds, over one connection after another.

    What was published and is not acknowledged when a connection ends is published again on the
    next, by a new VNF_ID: nothing is lost with a middleware, and the last update of a name is that
    of its greatest VNF_ID. Not for several threads at once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.vnf = 0
        self._is_connected = False
        self._published: dict[str, _Published] = {}
        self._wanted: dict[str, int] = {}
        self._by_number: dict[int, str] = {}
        self._latest: dict[str, dict[int, Update]] = {}
        self._names: dict[tuple[int, int], str] = {}

    @property
    def unacknowledged(self) -> int:
        """How many updates the replica controller is not known to have."""
        return sum(len(published.waiting) for published in self._published.values())

    def values(self, state: str) -> dict[str, Update]:
        """Returns by name of the publisher the last update that this replica has."""
        found: dict[str, Update] = {}
        for vnf, update in self._latest.get(state, {}).items():
            name = update.publisher or str(vnf)
            if name not in found or update.is_newer(found[name]):
                found[name] = update
        return found

    def value(self, state: str) -> Update | None:
        """Returns the state's value: the newest of its publishers' last updates."""
        newest: Update | None = None
        for update in self.values(state).values():
            if newest is None or update.is_newer(newest):
                newest = update
        return newest

    def subscribe(self, state: str) -> list[Signal]:
        """Asks for a replica of a state."""
        if state in self._wanted:
            return []
        self._wanted[state] = 0
        return self._tell(Signal(SignalKind.SUB_REG, data=state.encode()))

    def unsubscribe(self, state: str) -> list[Signal]:
        """Gives a replica up; what it has stays readable."""
        number = self._wanted.pop(state, 0)
        self._by_number.pop(number, None)
        return self._tell(Signal(SignalKind.SUB_REM, state=number)) if number else []

    def publish(self, state: str, data: bytes) -> list[Signal]:
        """Publishes an update. Raises StateError ``TOO_LARGE``: over 4,095 segments."""
        check_size(data)
        published = self._published.get(state)
        if published is None:
            published = self._published[state] = _Published()
            published.waiting.append((0, data))
            return self._tell(Signal(SignalKind.INIT_PUB, data=state.encode()))
        published.waiting.append((published.next, data))
        if not published.state:
            return []
        return [self._numbered(published, data)]

    def connected(self) -> list[Signal]:
        """Learns that there is a connection."""
        self._is_connected = True
        return [Signal(SignalKind.INIT_VNF, data=self.name.encode())]

    def disconnected(self) -> None:
        """Learns that there is none any more."""
        self._is_connected, self.vnf = False, 0
        for published in self._published.values():
            published.state = 0
        self._wanted = dict.fromkeys(self._wanted, 0)
        self._by_number.clear()
        self._names.clear()

    def take(self, signal: Signal) -> tuple[list[Signal], Update | None]:
        """Takes a signal of the middleware. Returns answers, and the update that it brought."""
        text = signal.data.decode(errors="replace") if len(signal.data) < 1024 else ""
        match signal.kind:
            case SignalKind.INIT_VNF:
                self.vnf = signal.vnf
                ours = [Signal(SignalKind.SUB_REG, data=s.encode()) for s in self._wanted]
                return [
                    *ours,
                    *(Signal(SignalKind.INIT_PUB, data=s.encode()) for s in self._published),
                ], None
            case SignalKind.INIT_PUB if text in self._published:
                return self._begin(self._published[text], signal), None
            case SignalKind.SUB_REG:
                if text not in self._wanted:
                    return [Signal(SignalKind.SUB_REM, state=signal.state)], None
                self._wanted[text] = signal.state
                self._by_number[signal.state] = text
            case SignalKind.ACKNOWLEDGED:
                for published in self._published.values():
                    if published.state == signal.state:
                        while published.waiting and not is_later(
                            published.waiting[0][0], signal.update
                        ):
                            published.waiting.popleft()
            case SignalKind.SUMMARY:
                self._names[signal.state, signal.vnf] = text
            case SignalKind.PUBLISH:
                return [], self._update(signal)
        return [], None

    def _begin(self, published: _Published, signal: Signal) -> list[Signal]:
        published.state, published.next = signal.state, signal.update
        waiting = [data for _, data in published.waiting]
        published.waiting.clear()
        found: list[Signal] = []
        for data in waiting:
            published.waiting.append((published.next, data))
            found.append(self._numbered(published, data))
        return found

    def _numbered(self, published: _Published, data: bytes) -> Signal:
        signal = Signal(SignalKind.PUBLISH, 0, published.state, published.next, data=data)
        published.next = after(published.next)
        return signal

    def _update(self, signal: Signal) -> Update | None:
        state = self._by_number.get(signal.state)
        if state is None:
            return None
        latest = self._latest.setdefault(state, {})
        held = latest.get(signal.vnf)
        name = self._names.get((signal.state, signal.vnf), "")
        is_same = held is not None and held.publisher == name
        if held is not None and is_same and not is_later(signal.update, held.number):
            return None
        update = latest[signal.vnf] = Update(state, name, signal.vnf, signal.update, signal.data)
        return update

    def _tell(self, signal: Signal) -> list[Signal]:
        return [signal] if self._is_connected and self.vnf else []
