"""Two elections in a row, of which a node hears the second when it has not heard of the first, or has not done what
that asks for. Times that a seed draws seldom meet those moments, so what happens waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from administrator import Administrator
from copies import Copies
from fault_kinds import CLIENTS, Fault
from history import TOPIC
from machines import ControllerMachine, GatewayMachine, Machine, NodeMachine
from membership_plan import GIVE_BACK, PREFER
from virtual_threads import Halt
from world import World

from barnabas.storage.replica.replica import Replica

LOOK_SECONDS: Final = 0.002

WAIT_SECONDS_MAX: Final = 0.7
"""How long each moment is waited for: nobody gives up a connection before the end."""

SLOW: Final = 100.0

Way = tuple[str, str]
Key = tuple[bytes, int]


class UnheardElections:
    """Has them happen."""

    def __init__(
        self, world: World, machines: Mapping[str, Machine], administrator: Administrator, copies: Copies
    ) -> None:
        self._world = world
        self._administrator = administrator
        self._copies = copies
        self._controllers = [each.name for each in machines.values() if isinstance(each, ControllerMachine)]
        self._nodes = [each for each in machines.values() if isinstance(each, NodeMachine)]
        gateways = [each.name for each in machines.values() if isinstance(each, GatewayMachine)]
        self._clients = [CLIENTS, *gateways]

    # -- a leader that is led past ------------------------------------------------------------------------------

    async def led_past(self, fault: Fault, target: NodeMachine) -> None:
        """`leader` does not hear that its follower is one no longer, nor perhaps that another one leads, before all is
        as it was, but for the follower's log, which begins anew.
        """
        leader, follower, _ = self._cast(target, fault.peer)
        with self._cut((each, leader.name) for each in self._clients):
            if not await self._comes(lambda: bool(_led_whole(leader, follower))):
                self._say(f"does not happen, for the follower has not all: {fault}")
                return
            keys = _led_whole(leader, follower)
            # Neither of these hears of the follower again, nor does it get anything.
            with self._cut((follower.name, each.name) for each in self._nodes if each is not follower):
                with self._cut(self._both_ways(leader)):
                    self._ask(GIVE_BACK, leader, follower)
                    await self._comes(lambda: _is_new_at(follower, keys, leader))
                    for each in self._controllers:
                        self._world.network.break_some(leader.name, each)
                await self._comes(lambda: _has_heard(leader, follower, keys))
                self._administrator.client.avoided = ""
                await asyncio.sleep(fault.seconds)

    # -- a leader that still takes back what it had as a follower -------------------------------------------------

    async def takes_back_late(self, fault: Fault, target: NodeMachine) -> None:
        """Another one is elected without the last records of `leader`, which takes them back, and goes in the midst of
        that: `leader` leads again, with a follower that has them still.
        """
        leader, first, third = self._cast(target, fault.peer)
        with self._cut([(first.name, third.name), (third.name, first.name)]):
            keys = await self._elect_without_the_last(first, leader, third)
            if not keys:
                self._say(f"does not happen, for nobody lacks a record: {fault}")
                return
            with self._halted_truncations(leader, keys) as halt:
                # It hears of the election now.
                if not await self._comes(lambda: len(halt) > 0) or not self._copies.may_end(first):
                    self._say(f"does not happen, for nothing is taken back: {fault}")
                    return
                first.kill()
                if not await self._comes(lambda: _is_written_to(leader, keys)):
                    self._say(f"comes to nothing, for nothing is written meanwhile: {fault}")
                third.disk.slowness = SLOW
        await asyncio.sleep(fault.seconds)
        third.disk.slowness = 1.0
        first.start()

    async def _elect_without_the_last(
        self, first: NodeMachine, leader: NodeMachine, third: NodeMachine
    ) -> list[Key]:
        """The partitions that `first` has come to lead, of which `leader` does not know it yet."""
        with self._cut((each, leader.name) for each in self._controllers):
            with self._cut([(leader.name, first.name)]):
                if not await self._comes(lambda: bool(_led_ahead(leader, first, third))):
                    return []
                self._ask(PREFER, first, leader)
                await self._comes(lambda: bool(_led_by_both(first, leader)))
                keys = _led_by_both(first, leader)
            await asyncio.sleep(LOOK_SECONDS)  # what was stuck comes to nothing
        self._administrator.client.avoided = ""
        return keys

    @contextlib.contextmanager
    def _halted_truncations(self, node: NodeMachine, keys: Sequence[Key]) -> Iterator[Halt]:
        """Those of these logs stop when they have begun."""
        halt, logs = Halt(), []
        for replica in _replicas(node, keys):
            logs.append(replica.log)
            _halt(replica, halt)
        node.disk.may_halt = True
        try:
            yield halt
        finally:
            node.disk.may_halt = False
            halt.end()
            for each in logs:
                vars(each).pop("truncate_to")

    # -- for both -------------------------------------------------------------------------------------------------

    def _cast(self, target: NodeMachine, peer: str) -> tuple[NodeMachine, NodeMachine, NodeMachine]:
        """Who leads, and two others that are in sync: those that the plan names, if they do now. Who came back would be
        elected last.
        """
        nodes = sorted(self._nodes, key=lambda each: (each.starts > 1, each is not target, each.name != peer))
        leader = next((each for each in nodes if _led(each)), target)
        isr = next((each.record.isr for each in _led(leader)), [each.node_id for each in nodes])
        followers = [each for each in nodes if each is not leader and each.node_id in isr]
        return leader, followers[0], followers[1]

    def _ask(self, kind: str, target: NodeMachine, peer: NodeMachine) -> None:
        """The administrator does not ask whoever is cut off from the controllers."""
        self._administrator.client.avoided = (target if kind == GIVE_BACK else peer).name
        self._administrator.ask(Fault(0.0, kind, target.name, 0.0, peer.name))

    def _both_ways(self, node: NodeMachine) -> list[Way]:
        return [way for each in self._controllers for way in ((each, node.name), (node.name, each))]

    @contextlib.contextmanager
    def _cut(self, ways: Iterator[Way] | Sequence[Way]) -> Iterator[None]:
        cut = list(ways)
        for way in cut:
            self._world.network.cut(*way)
        try:
            yield
        finally:
            for way in cut:
                self._world.network.mend(*way)

    async def _comes(self, is_so: Callable[[], bool]) -> bool:
        """Whether a moment comes in which it is so, before long."""
        gives_up_at = self._world.now + WAIT_SECONDS_MAX
        while not is_so():
            if self._world.now > gives_up_at:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def _say(self, what: str) -> None:
        self._world.trace.say("fault", what)


def _halt(replica: Replica, halt: Halt) -> None:
    opened = replica.log
    assert opened is not None, "it leads"
    truncate = opened.truncate_to

    def halted(offset: int) -> int:
        halt.pause()
        return truncate(offset)

    vars(opened)["truncate_to"] = halted


def _replicas(node: NodeMachine, keys: Sequence[Key] | None = None) -> list[Replica]:
    """Those whose logs are open, of these partitions or of all."""
    by_partition = {} if node.replicas is None else node.replicas.by_partition
    found = by_partition.values() if keys is None else map(by_partition.get, keys)
    return [each for each in found if each is not None and each.log is not None and each.topic == TOPIC]


def _key(replica: Replica) -> Key:
    return replica.topic_id, replica.index


def _end(node: NodeMachine, replica: Replica) -> int:
    own = _replicas(node, [_key(replica)])
    return own[0].log.log_end_offset if own and own[0].log is not None else -1


def _led(leader: NodeMachine, *followers: NodeMachine) -> list[Replica]:
    """What it leads, where these are in sync, and one more than a leader needs."""
    return [
        each
        for each in _replicas(leader)
        if each.is_leader
        and len(each.record.isr) > 2
        and {follower.node_id for follower in followers} <= set(each.record.isr)
    ]


def _led_whole(leader: NodeMachine, follower: NodeMachine) -> list[Key]:
    """Where the follower has all that there is."""
    return [
        _key(each)
        for each in _led(leader, follower)
        if each.high_watermark == _end(leader, each) == _end(follower, each) > 0
    ]


def _is_new_at(follower: NodeMachine, keys: Sequence[Key], leader: NodeMachine) -> bool:
    """Whether the follower is one again, of all of them."""
    return sum(
        follower.node_id in each.record.adding_replicas and each.record.leader == leader.node_id
        for each in _replicas(follower, keys)
    ) == len(keys)


def _has_heard(leader: NodeMachine, follower: NodeMachine, keys: Sequence[Key]) -> bool:
    return all(follower.node_id in each.record.adding_replicas for each in _replicas(leader, keys))


def _led_ahead(leader: NodeMachine, first: NodeMachine, third: NodeMachine) -> list[Key]:
    """Where `third` has more than `first`."""
    return [_key(each) for each in _led(leader, first, third) if _end(third, each) > _end(first, each)]


def _led_by_both(first: NodeMachine, leader: NodeMachine) -> list[Key]:
    """What `first` leads, and `leader` as it believes."""
    led = {_key(each) for each in _replicas(leader) if each.is_leader}
    return [key for each in _replicas(first) if each.is_leader and (key := _key(each)) in led]


def _is_written_to(leader: NodeMachine, keys: Sequence[Key]) -> bool:
    """Whether it leads one of them, has heard how much of it the follower has, and has something to append behind what
    it is at.
    """
    return any(
        each.leader is not None
        and each.leader.replicated(_end(leader, each)) > each.high_watermark
        and each.queue is not None
        and len(each.queue.items) > 1
        for each in _replicas(leader, keys)
    )
