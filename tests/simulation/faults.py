"""Faults happen to machines, and pass."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from administrator import Administrator
from brief_topic import BriefTopic
from checks import image_of, is_only_about
from consumers import Reader
from copies import Copies
from fault_kinds import CLIENTS, UNHEARD, Fault
from history import TOPIC, History, Place
from machines import (
    STORE,
    ClientMachine,
    ControllerMachine,
    CoordinatingMachine,
    GatewayMachine,
    Machine,
    NodeMachine,
)
from membership_plan import ADMINISTERED
from refusing_disk import LOOK_SECONDS, LeadsOn
from unheard_elections import UnheardElections
from virtual_disk import DiskHealth
from virtual_network import LateMessage
from world import World

from barnabas.metadata.image import GROUP_METADATA_TOPIC

TAKES_A_NODE_OUT: Final = frozenset(
    {
        "kill",
        "stop",
        "power",
        "pause",
        "zombie",
        UNHEARD,
        "failing syncs",
        "failing disk",
        "full disk",
        "refusing disk",
    }
)

STOP_SECONDS_MAX: Final = 20.0
"""What a node that is asked to stop is given."""

LOSS_WAIT_SECONDS_MAX: Final = 3.0

LANDS_SECONDS: Final = 0.1
"""After which what was on its way to the store is there, and known."""

SOON_SECONDS: Final = 0.1

OWNER_WAIT_SECONDS_MAX: Final = 3.0
"""How long a coordinator is waited for that owns the group and writes."""


class Faults:
    """Owner of the faults that last."""

    def __init__(
        self,
        world: World,
        machines: Mapping[str, Machine],
        administrator: Administrator,
        brief_topic: BriefTopic | None,
        history: History,
        readers: Sequence[Reader],
    ) -> None:
        self._world = world
        self._machines = machines
        self._administrator = administrator
        self._brief_topic = brief_topic
        self._history = history
        self._readers = readers
        self._nodes = [each for each in machines.values() if isinstance(each, NodeMachine)]
        self._copies = Copies(world, self._nodes)
        self._unheard_elections = UnheardElections(world, machines, administrator, self._copies)
        self._frozen_writes = 0
        """Decisions that are made, and that nobody has heard of yet."""
        self._power_cuts = 0
        """Those that are about to come, or from which not all are back."""
        self._jumps = world.chance_of("clock jumps")
        self._rotting = world.chance_of("rot")
        self._outages = world.chance_of("outages")
        self._disks = world.chance_of("disks")

    async def run(self, plan: list[Fault], begins_at: float) -> None:
        """Let all of it happen, and return when it is over."""
        async with asyncio.TaskGroup() as tasks:
            for fault in plan:
                tasks.create_task(self._happen(fault, begins_at + fault.at))

    async def start_again(self, name: str, down_seconds: float) -> bool:
        """Whoever coordinates is killed, and started after so long; False for a broker that others need meanwhile."""
        machine = self._machines[name]
        if not self._copies.may_end(machine):
            self._world.trace.say("fault", f"{name} goes on, for nobody else has all records")
            return False
        machine.kill()
        if down_seconds:
            await asyncio.sleep(down_seconds)
        machine.start()
        return True

    async def _happen(self, fault: Fault, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._world.now))
        if fault.kind in TAKES_A_NODE_OUT and not self._copies.may_end(self._machines[fault.target]):
            self._world.trace.say("fault", f"does not happen, for nobody else has all records: {fault}")
            return
        self._world.trace.say("fault", f"begins: {fault}")
        if fault.kind in ADMINISTERED:
            self._administrator.ask(fault)
            return
        await getattr(self, "_" + fault.kind.replace(" ", "_"))(fault, self._machines[fault.target])
        self._world.trace.say("fault", f"is over: {fault}")

    async def _recreate(self, _: Fault, __: Machine) -> None:
        assert self._brief_topic is not None, "the plan has a brief topic"
        self._brief_topic.end_life()

    async def _join(self, _: Fault, machine: Machine) -> None:
        machine.is_away = False
        machine.start()

    async def _kill(self, fault: Fault, machine: Machine) -> None:
        machine.kill()
        await asyncio.sleep(fault.seconds)
        machine.start()

    async def _power(self, fault: Fault, machine: Machine) -> None:
        machine.lose_power()
        await asyncio.sleep(fault.seconds)
        machine.start()

    async def _power_cut(self, fault: Fault, _: Machine) -> None:
        """Within a moment of one another, as a rule in the midst of what each does; the store's machines are others."""
        machines = [each for each in self._machines.values() if not isinstance(each, ClientMachine)]
        if not await self._are_whole(fault):
            return
        spread = self._outages.choice((0.0, 0.02, 0.1))
        self._power_cuts += 1
        async with asyncio.TaskGroup() as tasks:
            for each in machines:
                tasks.create_task(
                    self._lose_power_at(each, self._outages.uniform(0.0, spread), fault.seconds)
                )
        self._power_cuts -= 1

    async def _lose_power_at(self, machine: Machine, after: float, seconds: float) -> None:
        await asyncio.sleep(after)
        machine.lose_power()
        await asyncio.sleep(seconds + self._outages.choice((0.0, 0.05, 1.0)) * self._outages.random())
        machine.start()

    async def _are_whole(self, fault: Fault) -> bool:
        """Wait for a moment in which no node lacks records that it had; False if none comes."""
        gives_up_at = self._world.now + LOSS_WAIT_SECONDS_MAX
        while not self._copies.are_whole:
            if self._world.now > gives_up_at:
                self._world.trace.say("fault", f"does not happen, for a node lacks records: {fault}")
                return False
            await asyncio.sleep(0.02)
        return True

    async def _blackout(self, fault: Fault, machine: Machine) -> None:
        """The machine itself is soon back, as a rule, and says to peers that the process is gone."""
        if await self._may_lose(fault, machine):
            if fault.seconds >= SOON_SECONDS:
                machine.kill()
            await self._power(fault, machine)

    async def _wipe(self, fault: Fault, machine: Machine) -> None:
        if await self._may_lose(fault, machine):
            machine.kill()
            machine.replace_disk()
            await asyncio.sleep(fault.seconds)
            machine.start()

    async def _rot(self, fault: Fault, machine: Machine) -> None:
        """Once somebody notices, the node stops, so that another one leads, and begins with an empty disk."""
        assert isinstance(machine, NodeMachine), fault.target
        if not await self._may_lose(fault, machine, loses=False):
            return
        own = re.compile(rf"{TOPIC}-\d+")  # and nothing of a move
        directories = [path for path in machine.directories() if own.fullmatch(os.path.basename(path))]
        path = machine.disk.rot(directories, self._rotting)
        if path is None:
            self._world.trace.say("fault", f"does not happen, for no segment is finished: {fault}")
            return
        self._world.trace.say("fault", f"{path} rots at {machine.name}")
        self._copies.on_rotten(machine)
        place = Place(TOPIC, int(os.path.dirname(path).rpartition("-")[2]))
        self._history.on_rotten(place)
        for each in self._readers:
            if each.place == place:
                each.rewind()
        await asyncio.sleep(fault.seconds)
        while not await self._ends_while_others_have_all(machine):
            if not self._copies.is_registered(machine):
                self._copies.on_drained(machine)
                return
            machine.start()  # somebody left an ISR in the midst of it: with this node's records it gets in again
        machine.replace_disk()
        self._copies.on_lost(machine)
        machine.start()

    async def _ends_while_others_have_all(self, machine: Machine) -> bool:
        """Whether others still have all when `machine` has stopped, or soon after."""
        while not self._copies.may_end(machine):
            await asyncio.sleep(0.02)
        await self._stop_in_time(machine)
        gives_up_at = self._world.now + LOSS_WAIT_SECONDS_MAX
        while not self._copies.may_lose(machine):
            if self._world.now > gives_up_at:
                return False
            await asyncio.sleep(0.02)
        return True

    async def _stop_in_time(self, machine: Machine) -> None:
        machine.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                while machine.is_up:
                    await asyncio.sleep(0.01)
        machine.kill()

    async def _wipe_last(self, fault: Fault, machine: Machine) -> None:
        """All others stop before `machine` does, whose disk it is, and each gets the time that it needs."""
        order = [each for each in self._nodes if each is not machine] + [machine]
        for each in order:
            each.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    while each.is_up:
                        await asyncio.sleep(0.01)
            await asyncio.sleep(fault.seconds / 2)
        may_lose = self._copies.are_all_sound and self._copies.may_lose(machine)
        if may_lose and not self._power_cuts and not any(each.is_up for each in order):
            machine.replace_disk()
            self._copies.on_lost(machine)
        for each in reversed(order) if fault.seconds < 0.1 else order:
            if each.is_stopping:
                each.kill()
            each.start()
            await asyncio.sleep(fault.seconds / 2)

    async def _may_lose(self, fault: Fault, machine: Machine, *, loses: bool = True) -> bool:
        """Wait for a moment in which others have all that `machine` has; False if none comes."""
        gives_up_at = self._world.now + LOSS_WAIT_SECONDS_MAX
        # A frozen decision may take those others out of the ISR when it lands: the metadata do not say who has all.
        # And where something rots, its node alone goes, when it can be spared. Where power fails everywhere, nobody
        # can be.
        while (
            self._frozen_writes
            or self._power_cuts
            or not (self._copies.are_all_sound and self._copies.may_lose(machine))
        ):
            if self._world.now > gives_up_at:
                self._world.trace.say("fault", f"does not happen, for others lack records: {fault}")
                return False
            await asyncio.sleep(0.02)
        if loses:
            self._copies.on_lost(machine)
        return True

    async def _stop(self, fault: Fault, machine: Machine) -> None:
        machine.stop()
        await asyncio.sleep(fault.seconds)
        while machine.is_up and machine.is_stopping and not self._copies.may_end(machine):
            await asyncio.sleep(0.02)
        if machine.is_up and machine.is_stopping:
            machine.kill()  # as who waits for a stop does in the end
        machine.start()

    async def _pause(self, fault: Fault, machine: Machine) -> None:
        machine.pause()
        await asyncio.sleep(fault.seconds)
        machine.resume()

    async def _cut(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, self._peers(fault, machine))

    async def _isolate(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, self._others(machine, "node-"))

    async def _zombie(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, self._others(machine, "node-", "controller-"))

    async def _unheard(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, [fault.peer, *self._others(machine, "controller-")])

    async def _led_past(self, fault: Fault, machine: Machine) -> None:
        assert isinstance(machine, NodeMachine), fault.target
        await self._unheard_elections.led_past(fault, machine)

    async def _takes_back_late(self, fault: Fault, machine: Machine) -> None:
        assert isinstance(machine, NodeMachine), fault.target
        await self._unheard_elections.takes_back_late(fault, machine)

    async def _late_write(self, fault: Fault, _: Machine) -> None:
        taken = await self._take_write(fault)
        if taken is not None:
            owner, late = taken
            ways = [(owner, other) for other in self._machines if other != owner]
            await self._cut_ways(fault, ways, is_both_ways=True)
            await self._come_late(late)

    async def _repeated_write(self, fault: Fault, _: Machine) -> None:
        taken = await self._take_write(fault)
        if taken is not None:
            await asyncio.sleep(fault.seconds)
            await self._come_late(taken[1])

    async def _island(self, fault: Fault, _: Machine) -> None:
        owner, _leader = self._owner()
        machines = [self._machines[each] for each in (owner, fault.peer) if each]
        ways = [(each.name, other) for each in machines for other in self._others(each, "controller-")]
        await self._cut_ways(fault, ways, is_both_ways=True)

    def _owner(self) -> tuple[str, str]:
        """The coordinator that owns the group's partition, and the node that leads it; nobody where there is none."""
        topic = image_of(self._world).topics.get(GROUP_METADATA_TOPIC)
        if topic is None or topic.partitions[0].leader < 0:
            return "", ""
        return topic.partitions[0].coordinator_id, f"node-{topic.partitions[0].leader}"

    async def _take_write(self, fault: Fault) -> tuple[str, LateMessage] | None:
        """Who owns the group, and what it writes next."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OWNER_WAIT_SECONDS_MAX):
                while not all(self._owner()):
                    await asyncio.sleep(0.05)
                owner, leader = self._owner()
                # No marker: one that comes late ends the next transaction, if that has the same epoch (KIP-890).
                is_wanted = is_only_about(self._world, GROUP_METADATA_TOPIC)
                late = await self._world.network.keep_back(owner, leader, "Append", is_wanted)
                self._world.trace.say("fault", f"what {owner} writes to {leader} is kept back")
                return owner, late
        self._world.trace.say("fault", f"does not happen, for nothing is written: {fault}")
        return None

    async def _come_late(self, late: LateMessage) -> None:
        """Whoever owns the group then begins again, with what the log says."""
        self._world.trace.say(
            "fault", "what was kept back comes" if late.deliver() else "nobody is there for it"
        )
        await asyncio.sleep(LANDS_SECONDS)
        owner, _ = self._owner()
        if owner:
            self._machines[owner].kill()
            self._machines[owner].start()

    def _peers(self, fault: Fault, machine: Machine) -> list[str]:
        gateways = [name for name, each in self._machines.items() if isinstance(each, GatewayMachine)]
        is_of_clients = fault.peer == CLIENTS and not isinstance(machine, GatewayMachine)
        return gateways if gateways and is_of_clients else [fault.peer]

    def _others(self, machine: Machine, *kinds: str) -> list[str]:
        return [name for name in self._machines if name.startswith(kinds) and name != machine.name]

    async def _cut_off(self, fault: Fault, machine: Machine, peers: list[str]) -> None:
        is_both_ways = fault.is_both_ways or fault.kind in ("zombie", UNHEARD)
        await self._cut_ways(fault, [(machine.name, peer) for peer in peers], is_both_ways=is_both_ways)

    async def _cut_ways(self, fault: Fault, ways: list[tuple[str, str]], *, is_both_ways: bool) -> None:
        if is_both_ways:
            ways = ways + [(peer, name) for name, peer in ways]
        for way in ways:
            self._world.network.cut(*way)
        await asyncio.sleep(fault.seconds)
        for way in ways:
            self._world.network.mend(*way)

    async def _store(self, fault: Fault, machine: Machine) -> None:
        self._world.network.cut(machine.name, STORE)
        await asyncio.sleep(fault.seconds)
        self._world.network.mend(machine.name, STORE)

    async def _frozen_write(self, fault: Fault, _: Machine) -> None:
        """Whichever controller writes first is the active one."""
        controllers = [each for each in self._machines.values() if isinstance(each, ControllerMachine)]
        frozen: asyncio.Future[ControllerMachine] = asyncio.get_running_loop().create_future()
        for each in controllers:
            each.frozen_write = frozen
        await asyncio.wait((frozen,), timeout=fault.seconds)
        for each in controllers:
            each.frozen_write = None
        if frozen.done():
            self._frozen_writes += 1
            await asyncio.sleep(fault.seconds)
            frozen.result().resume()
            await asyncio.sleep(LANDS_SECONDS)
            self._frozen_writes -= 1

    async def _break(self, fault: Fault, machine: Machine) -> None:
        for peer in self._peers(fault, machine):
            self._world.network.break_some(machine.name, peer)

    async def _slow_link(self, fault: Fault, machine: Machine) -> None:
        network, peers = self._world.network, self._peers(fault, machine)
        ways = [way for peer in peers for way in ((machine.name, peer), (peer, machine.name))]
        for way in ways:
            network.slow_down(*way, 200.0)
        await asyncio.sleep(fault.seconds)
        for way in ways:
            network.slow_down(*way, 1.0)

    async def _slow_network(self, fault: Fault, _: Machine) -> None:
        self._world.network.slowness = 80.0
        await asyncio.sleep(fault.seconds)
        self._world.network.slowness = 1.0

    async def _slow_disk(self, fault: Fault, machine: Machine) -> None:
        machine.disk.slowness = 100.0
        await asyncio.sleep(fault.seconds)
        machine.disk.slowness = 1.0

    async def _full_disk(self, fault: Fault, machine: Machine) -> None:
        health = self._one_disk(machine)
        health.is_full = True
        await asyncio.sleep(fault.seconds)
        health.is_full = False

    async def _failing_syncs(self, fault: Fault, machine: Machine) -> None:
        await self._fail(fault, machine, writes=False)

    async def _failing_disk(self, fault: Fault, machine: Machine) -> None:
        await self._fail(fault, machine, writes=True)

    async def _fail(self, fault: Fault, machine: Machine, *, writes: bool) -> None:
        """What a disk failed to sync stays offline until the node is started again."""
        health = self._one_disk(machine)
        health.fails_syncs, health.fails_writes = True, writes
        await asyncio.sleep(fault.seconds)
        health.fails_syncs = health.fails_writes = False
        machine.kill()
        machine.start()

    async def _refusing_disk(self, fault: Fault, machine: Machine) -> None:
        """Full or broken; the node comes back by itself."""
        assert isinstance(machine, NodeMachine), fault.target
        health, ends_at = self._one_disk(machine), self._world.now + fault.seconds
        is_full = self._disks.random() < 0.5
        health.is_full, health.fails_writes = is_full, not is_full
        leads_on = LeadsOn(self._world, machine, health, self._nodes)
        while self._world.now < ends_at:
            leads_on.look()
            await asyncio.sleep(LOOK_SECONDS)
        health.is_full = health.fails_writes = False

    def _one_disk(self, machine: Machine) -> DiskHealth:
        healths = machine.disk.healths
        return healths[0] if len(healths) == 1 else self._disks.choice(healths)

    async def _clock(self, fault: Fault, machine: Machine) -> None:
        """By less than an hour: records from further ahead are refused (message.timestamp.after.max.ms)."""
        jump = self._jumps.choice((-1, 1)) * self._jumps.choice((0.5, 5.0, 600.0, 3_000.0))
        self._put_forward(machine, jump)
        await asyncio.sleep(fault.seconds)
        self._put_forward(machine, -jump)

    def _put_forward(self, machine: Machine, seconds: float) -> None:
        machine.clock.ahead_seconds += seconds
        if isinstance(machine, CoordinatingMachine) and machine.coordinates:
            self._world.clock_jumped_at = self._world.now
