"""Faults happen to machines, and pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fault_plan import Fault
from machines import STORE, Machine
from world import World


class Faults:
    """Owner of the faults that last."""

    def __init__(self, world: World, machines: Mapping[str, Machine]) -> None:
        self._world = world
        self._machines = machines

    async def run(self, plan: list[Fault], begins_at: float) -> None:
        """Let all of it happen, and return when it is over."""
        async with asyncio.TaskGroup() as tasks:
            for fault in plan:
                tasks.create_task(self._happen(fault, begins_at + fault.at))

    async def _happen(self, fault: Fault, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._world.now))
        self._world.trace.say("fault", f"begins: {fault}")
        await getattr(self, "_" + fault.kind.replace(" ", "_"))(fault, self._machines[fault.target])
        self._world.trace.say("fault", f"is over: {fault}")

    async def _kill(self, fault: Fault, machine: Machine) -> None:
        machine.kill()
        await asyncio.sleep(fault.seconds)
        machine.start()

    async def _power(self, fault: Fault, machine: Machine) -> None:
        machine.lose_power()
        await asyncio.sleep(fault.seconds)
        machine.start()

    async def _stop(self, fault: Fault, machine: Machine) -> None:
        machine.stop()
        await asyncio.sleep(fault.seconds)
        if machine.is_up and machine.is_stopping:
            machine.kill()  # as who waits for a stop does in the end
        machine.start()

    async def _pause(self, fault: Fault, machine: Machine) -> None:
        machine.pause()
        await asyncio.sleep(fault.seconds)
        machine.resume()

    async def _cut(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, [fault.peer])

    async def _isolate(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, self._others(machine, "node-"))

    async def _zombie(self, fault: Fault, machine: Machine) -> None:
        await self._cut_off(fault, machine, self._others(machine, "node-", "controller-"))

    def _others(self, machine: Machine, *kinds: str) -> list[str]:
        return [name for name in self._machines if name.startswith(kinds) and name != machine.name]

    async def _cut_off(self, fault: Fault, machine: Machine, peers: list[str]) -> None:
        ways = [(machine.name, peer) for peer in peers]
        if fault.is_both_ways or fault.kind == "zombie":
            ways += [(peer, machine.name) for peer in peers]
        for way in ways:
            self._world.network.cut(*way)
        await asyncio.sleep(fault.seconds)
        for way in ways:
            self._world.network.mend(*way)

    async def _store(self, fault: Fault, machine: Machine) -> None:
        self._world.network.cut(machine.name, STORE)
        await asyncio.sleep(fault.seconds)
        self._world.network.mend(machine.name, STORE)

    async def _break(self, fault: Fault, machine: Machine) -> None:
        self._world.network.break_some(machine.name, fault.peer)

    async def _slow_link(self, fault: Fault, machine: Machine) -> None:
        network, ways = self._world.network, ((machine.name, fault.peer), (fault.peer, machine.name))
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
        machine.disk.is_full = True
        await asyncio.sleep(fault.seconds)
        machine.disk.is_full = False

    async def _failing_syncs(self, fault: Fault, machine: Machine) -> None:
        """What a disk failed to sync stays offline until the node is started again."""
        machine.disk.fails_syncs = True
        await asyncio.sleep(fault.seconds)
        machine.disk.fails_syncs = False
        machine.kill()
        machine.start()
