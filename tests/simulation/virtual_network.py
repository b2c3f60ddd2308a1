"""A network between machines: connections whose messages take time, get stuck and get lost.

What goes over it is bytes: nobody shares an object with a peer. Messages of one stream arrive in the order in which
they were sent, those of different streams in any order. A way between two machines may be cut in one direction or in
both: what is sent meanwhile is stuck, as in a kernel's buffers, and either arrives when the way is open again or goes
with its connection, which is given up after a while by whoever hears nothing. One connection may stand still in one
direction while others between the same machines go on. Of what is under way when a connection breaks, chance decides
how much still arrives. One message may be kept back until long after its sender has lost the connection, as by a proxy
on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from virtual_loop import Life

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trace_of_run import Trace

SILENCE_SECONDS_MAX: Final = 3.0
"""A connection on which nothing comes is given up then: KEEPALIVE_MS and KEEPALIVE_TIMEOUT_MS of `rpc.limits`."""

CONNECT_SECONDS_MAX: Final = 2.0
"""As CONNECT_TIMEOUT_MS."""

DELAY_SECONDS_MAX: Final = 1.0
"""Of one message on a way that is slow for several reasons; what takes longer is a way that is cut."""

LATE_SECONDS_MAX: Final = 1.0
"""How long after the way is open again a kernel sends once more what was stuck."""

LEFT: Final = 0.5
"""How often a client gives up a silent connection well before the server does."""

BYTES_A_SECOND: Final = 200e6

TO_SERVER: Final = 0
TO_CLIENT: Final = 1

Arrive = Callable[..., None]


class End(Protocol):
    """One end of a connection."""

    def on_broken(self, reason: str) -> None:
        """Nothing more comes."""
        ...


class Listener(Protocol):
    """Who takes connections at an address."""

    life: Life
    host: str

    def accept(self, connection: Connection) -> End:
        """Somebody has connected."""
        ...


class Stream:
    """When the last message of one stream, in one direction, arrives: the next one does not overtake it."""

    __slots__ = ("arrives_at", "call")

    def __init__(self, call: str = "") -> None:
        """`call` is the name of the call that it is of, if of one."""
        self.arrives_at = 0.0
        self.call = call


class Connection:
    """Owner of what is under way between two processes."""

    def __init__(self, network: VirtualNetwork, hosts: tuple[str, str], lives: tuple[Life, Life]) -> None:
        """`hosts` and `lives` are the client's and the server's."""
        self.network = network
        self.hosts = hosts
        self.lives = lives
        self.ends: list[End | None] = [None, None]
        self.is_broken = False
        self.is_kept_alive = True
        """Whether its ends ask after one another, and give it up when they hear nothing."""
        self.is_left = False
        """Whether the client has given it up, and the server has not."""
        self._stuck: list[tuple[int, Stream, int, Arrive, tuple[Any, ...]]] = []
        self._under_way: dict[int, asyncio.TimerHandle] = {}
        self._next_number = 0

    def way(self, direction: int) -> tuple[str, str]:
        client, server = self.hosts
        return (client, server) if direction == TO_SERVER else (server, client)

    def send(self, direction: int, stream: Stream, size_bytes: int, arrive: Arrive, *message: Any) -> None:
        """Have `arrive(*message)` called in the other process, unless the connection breaks before."""
        if self.is_broken:
            return
        if size_bytes and self.network.keeps_back(self, direction, stream, arrive, message):
            return
        if self.network.is_cut(*self.way(direction)) or self.network.stands_still(self, direction):
            self._stuck.append((direction, stream, size_bytes, arrive, message))
            return
        loop = asyncio.get_running_loop()
        seconds = self.network.seconds(*self.way(direction)) + size_bytes / BYTES_A_SECOND
        if self.is_left:
            seconds += self.network.chance.uniform(0.0, LATE_SECONDS_MAX)
        stream.arrives_at = max(stream.arrives_at, loop.time() + seconds)
        receiver = self.lives[1 - direction]
        number, self._next_number = self._next_number, self._next_number + 1
        self._under_way[number] = loop.call_at(
            stream.arrives_at, self._arrive, number, arrive, message, context=receiver.context
        )

    def _arrive(self, number: int, arrive: Arrive, message: tuple[Any, ...]) -> None:
        if self._under_way.pop(number, None) is not None:
            arrive(*message)

    def on_open_way(self) -> None:
        """A way is open again: what was stuck on it goes on."""
        stuck, self._stuck = self._stuck, []
        for direction, stream, size_bytes, arrive, message in stuck:
            self.send(direction, stream, size_bytes, arrive, *message)

    def break_off(self, reason: str, *, seconds: tuple[float, float] | None = None) -> None:
        """Both ends hear of it, each after its `seconds`; of what is under way some still arrives."""
        if self.is_broken:
            return
        self.is_broken = True
        self.network.forget(self)
        chance, loop = self.network.chance, asyncio.get_running_loop()
        kept = chance.randint(0, len(self._under_way))
        for timer in list(self._under_way.values())[kept:]:
            timer.cancel()
        self._stuck.clear()
        ends_at = max(
            (timer.when() for timer in self._under_way.values() if not timer.cancelled()), default=0
        )
        for side, end in enumerate(self.ends):
            if end is not None:
                later = self.network.seconds(*self.hosts) if seconds is None else seconds[side]
                at = max(loop.time() + later, ends_at)
                loop.call_at(at, end.on_broken, reason, context=self.lives[side].context)

    def leave(self, reason: str, server_seconds: float) -> None:
        """The client gives it up, and the server so much later: what is stuck until then may come, behind what the
        client sends on another connection.
        """
        self.lose_client(reason)
        loop = asyncio.get_running_loop()
        loop.call_later(server_seconds, self.break_off, reason, context=self.network.trace.context)

    def lose_client(self, reason: str) -> None:
        """The client's end is gone, and the server does not know."""
        end = self.ends[0]
        self.is_left, self.ends[0] = True, None
        if end is not None:
            asyncio.get_running_loop().call_soon(end.on_broken, reason, context=self.lives[0].context)

    @property
    def may_be_left(self) -> bool:
        """Whether something of the client's is stuck."""
        return not self.is_left and any(direction == TO_SERVER for direction, *_ in self._stuck)

    def touches(self, host: str) -> bool:
        return host in self.hosts


class LateMessage:
    """Owner of a message that is kept back. Whoever sent it has lost the connection; the receiver has not."""

    def __init__(self, connection: Connection, arrive: Arrive, message: tuple[Any, ...]) -> None:
        self._connection = connection
        self._arrive = arrive
        self._message = message

    def deliver(self) -> bool:
        """Have it arrive now; False where nobody is there any more to whom it was sent."""
        connection = self._connection
        receiver = connection.lives[1]
        if connection.is_broken or receiver.is_ended:
            return False
        loop = asyncio.get_running_loop()
        loop.call_soon(self._arrive, *self._message, context=receiver.context)
        loop.call_later(
            LATE_SECONDS_MAX,
            connection.break_off,
            "no answer to keep-alive: the client is gone",
            context=connection.network.trace.context,
        )
        return True


class _Wanted(NamedTuple):
    """Who waits for a message that is to be kept back."""

    message: asyncio.Future[LateMessage]
    is_wanted: Callable[[bytes], bool]


class VirtualNetwork:
    """Owner of the ways between machines, the addresses that are listened at, and the connections."""

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        self.chance = chance
        self.trace = trace
        self.listeners: dict[str, Listener] = {}
        self.balanced: dict[str, str] = {}
        """To which address clients' new connections go instead of the one that they want: as a balancer in front of all
        gateways has them, of which any serves any request.
        """
        self._connections: dict[Connection, None] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        """How many faults keep a way cut."""
        self._still: set[tuple[str, str, int]] = set()
        """Clients, servers and the direction in which nothing comes on their connections."""
        self._slow: dict[tuple[str, str], float] = {}
        self.slowness = 1.0
        """Of all ways."""
        self._kept_back: dict[tuple[str, str, str], list[_Wanted]] = defaultdict(list)
        """Who waits for the next message of a call on a way."""

    def seconds(self, sender: str, receiver: str) -> float:
        """How long a message takes, this time."""
        chance = self.chance
        usual = chance.uniform(0.0001, 0.0008)
        if chance.random() < 0.02:
            usual += chance.uniform(0.002, 0.04)
        return min(usual * self.slowness * self._slow.get((sender, receiver), 1.0), DELAY_SECONDS_MAX)

    # -- ways ---------------------------------------------------------------------------------------------------

    def is_cut(self, sender: str, receiver: str) -> bool:
        return self._cuts.get((sender, receiver), 0) > 0

    def cut(self, sender: str, receiver: str) -> None:
        way = sender, receiver
        self._cuts[way] = self._cuts.get(way, 0) + 1
        for connection in list(self._connections):
            if way in (connection.way(TO_SERVER), connection.way(TO_CLIENT)):
                self._await_life(connection, f"{sender} is not heard")

    def mend(self, sender: str, receiver: str) -> None:
        way = sender, receiver
        self._cuts[way] -= 1
        if not self._cuts[way]:
            for connection in list(self._connections):
                connection.on_open_way()

    @contextlib.contextmanager
    def standstill(self, client: str, server: str, direction: int) -> Iterator[None]:
        """Nothing comes on the connections that `client` has to `server`, in one direction: what was lost on its way is
        sent again, and all that is behind it waits. Those that `server` has to `client` go on.
        """
        self._still.add((client, server, direction))
        try:
            yield
        finally:
            self._still.discard((client, server, direction))
            for connection in list(self._connections):
                connection.on_open_way()

    def stands_still(self, connection: Connection, direction: int) -> bool:
        return bool(self._still) and (*connection.hosts, direction) in self._still

    def slow_down(self, sender: str, receiver: str, factor: float) -> None:
        self._slow[sender, receiver] = factor

    async def keep_back(
        self, client: str, server: str, call: str, is_wanted: Callable[[bytes], bool] = bool
    ) -> LateMessage:
        """The next message that `client` sends in a call of that name, taken off the way: of those, as bytes, that are
        wanted. Its connection breaks for the client; the server hears nothing of it, nor of anything else that happens
        to the client.
        """
        kept = _Wanted(asyncio.get_running_loop().create_future(), is_wanted)
        waiting = self._kept_back[client, server, call]
        waiting.append(kept)
        try:
            return await kept.message
        finally:
            waiting.remove(kept)

    def keeps_back(
        self, connection: Connection, direction: int, stream: Stream, arrive: Arrive, message: tuple[Any, ...]
    ) -> bool:
        """Whether somebody waits for this one, who gets it: of several, who waits longest."""
        waiting = self._kept_back.get((*connection.hosts, stream.call)) if self._kept_back else None
        if not waiting or direction != TO_SERVER:
            return False
        *_, payload = message
        kept = next((each for each in waiting if not each.message.done() and each.is_wanted(payload)), None)
        if kept is None:
            return False
        self.forget(connection)
        connection.lose_client("connection reset")
        kept.message.set_result(LateMessage(connection, arrive, message))
        return True

    def _await_life(self, connection: Connection, reason: str) -> None:
        """Give the connection up unless its ends hear of one another in time."""
        seconds = SILENCE_SECONDS_MAX - self.chance.uniform(0.0, 1.0)
        asyncio.get_running_loop().call_later(
            seconds, self._look, connection, reason, context=self.trace.context
        )

    def _look(self, connection: Connection, reason: str) -> None:
        is_silent = any(
            self.is_cut(*connection.way(direction)) for direction in (TO_SERVER, TO_CLIENT)
        ) or any(life.is_paused for life in connection.lives)
        has_ended = any(life.is_ended for life in connection.lives)
        if connection.is_broken or not (has_ended or (is_silent and connection.is_kept_alive)):
            return
        if not has_ended and connection.may_be_left and self.chance.random() < LEFT:
            connection.leave(f"no answer to keep-alive: {reason}", self.chance.uniform(0.5, 3.0))
        else:
            later = self.chance.uniform(0.0, 0.5), self.chance.uniform(0.0, 0.5)
            connection.break_off(f"no answer to keep-alive: {reason}", seconds=later)

    # -- processes ----------------------------------------------------------------------------------------------

    def on_pause(self, life: Life) -> None:
        for connection in list(self._connections):
            if life in connection.lives:
                self._await_life(connection, f"{life.name} is frozen")

    def on_end(self, life: Life, *, silently: bool) -> None:
        """The process is gone: the kernel says so to its peers, unless the whole machine is (`silently`)."""
        for address in [each for each, listener in self.listeners.items() if listener.life is life]:
            del self.listeners[address]
        for connection in list(self._connections):
            if life in connection.lives:
                if silently or any(self.is_cut(*connection.way(each)) for each in (TO_SERVER, TO_CLIENT)):
                    self._await_life(connection, f"{life.name} is gone")
                else:
                    connection.break_off("connection reset by peer")

    # -- connections --------------------------------------------------------------------------------------------

    def connect(
        self, host: str, life: Life, address: str, on_open: Callable[[Connection], End], on_failed: Arrive
    ) -> None:
        """Call `on_open` with the connection, or `on_failed` with the reason that there is none."""
        loop = asyncio.get_running_loop()
        server = address.partition(":")[0]
        tried = [False]

        def fail(reason: str) -> None:
            if not tried[0]:
                tried[0] = True
                on_failed(reason)

        def reach() -> None:
            listener = self.listeners.get(address)
            back = self.seconds(server, host)
            if self.is_cut(server, host) or self.is_cut(host, server) or life.is_ended:
                return  # nobody answers
            if listener is None:
                loop.call_later(back, fail, "Connection refused", context=life.context)
            elif not listener.life.is_paused:
                loop.call_later(back, answered, listener, context=life.context)

        def answered(listener: Listener) -> None:
            if tried[0]:
                return
            if listener.life.is_ended or self.listeners.get(address) is not listener:
                fail("connection reset by peer")
                return
            tried[0] = True
            connection = Connection(self, (host, server), (life, listener.life))
            self._connections[connection] = None
            connection.ends = [on_open(connection), listener.accept(connection)]

        loop.call_later(CONNECT_SECONDS_MAX, fail, "no answer", context=life.context)
        if not self.is_cut(host, server):
            loop.call_later(self.seconds(host, server), reach, context=self.trace.context)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def break_some(self, first: str, second: str) -> int:
        """Break the connections between two machines; how many there were."""
        broken = [each for each in self._connections if each.touches(first) and each.touches(second)]
        for connection in broken:
            connection.break_off("connection reset")
        return len(broken)

    @property
    def connections(self) -> Iterable[Connection]:
        return self._connections
