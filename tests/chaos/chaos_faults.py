"""How each fault happens. A call returns once the fault is over: everything runs and can be reached."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from chaos_clients import PARTITIONS
from chaos_cluster import ChaosCluster
from chaos_plan import CONTROL, Fault
from chaos_processes import wait_for
from chaos_state import ClusterState

BREAKS: Final = 5


class Faults:
    """Does them to one cluster."""

    def __init__(self, cluster: ChaosCluster, state: ClusterState, topics: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._state = state
        self._topics = topics
        self._how: Mapping[str, Callable[[Fault], None]] = {
            "kill a node": self._kill,
            "kill a service": self._kill,
            "kill an etcd member": self._kill,
            "kill etcd's leader": lambda fault: self._kill(fault, cluster.etcd_leader()),
            "kill the active controller": lambda fault: self._kill(fault, cluster.active_controller()),
            "freeze a node": self._freeze,
            "freeze a service": self._freeze,
            "freeze a node for long": self._freeze,
            "freeze the active controller": lambda fault: self._freeze(fault, cluster.active_controller()),
            "freeze etcd's leader": lambda fault: self._freeze(fault, cluster.etcd_leader()),
            "cut connections": self._cut,
            "cut off from controllers": self._cut_off_from_controllers,
            "break connections": self._break,
            "full disk": self._full_disk,
            "stop a service": self._stop,
            "rolling restart": self._rolling_restart,
            "reassign": self._reassign,
            "elect leaders": self._elect,
            "empty a node": self._empty,
            CONTROL: self._start_others,
        }

    def do(self, fault: Fault) -> None:
        self._how[fault.kind](fault)

    def _kill(self, fault: Fault, name: str = "") -> None:
        self._restart(name or fault.target, signal.SIGKILL, fault.seconds)

    def _stop(self, fault: Fault) -> None:
        self._restart(fault.target, signal.SIGTERM, fault.seconds)

    def _restart(self, name: str, number: signal.Signals, seconds: float) -> None:
        program = self._cluster.programs[name]
        program.end(number)
        time.sleep(seconds)
        program.start()
        program.wait_ready()

    def _freeze(self, fault: Fault, name: str = "") -> None:
        program = self._cluster.programs[name or fault.target]
        program.freeze()
        try:
            time.sleep(fault.seconds)
        finally:
            program.thaw()

    def _cut(self, fault: Fault) -> None:
        links = self._cluster.links
        self._silence(links.matching([f">{fault.target}"]), fault.seconds)

    def _cut_off_from_controllers(self, fault: Fault) -> None:
        links = self._cluster.links
        self._silence(links.matching([f"{fault.target}>controller"]), fault.seconds)

    def _silence(self, names: list[str], seconds: float) -> None:
        links = self._cluster.links
        assert names
        links.silence(*names)
        try:
            time.sleep(seconds)
        finally:
            links.heal(*names)

    def _break(self, fault: Fault) -> None:
        names = self._cluster.links.matching([f">{fault.target}", f"{fault.target}>"])
        chance = random.Random(fault.number)
        for _ in range(BREAKS):
            self._cluster.links.break_all(*names)
            time.sleep(chance.uniform(0.0, 0.3))

    def _full_disk(self, fault: Fault) -> None:
        disk = self._cluster.disks[fault.target]
        ends = time.monotonic() + fault.seconds
        try:
            while time.monotonic() < ends:
                disk.fill()  # what retention or a checkpoint gave back, too
                time.sleep(0.1)
        finally:
            disk.free()

    def _rolling_restart(self, fault: Fault) -> None:
        for name in self._cluster.programs:
            if name.startswith(fault.target):
                self._restart(name, signal.SIGTERM, 0.0)
                self._state.wait_in_sync()

    def _start_others(self, fault: Fault) -> None:
        for name, program in self._cluster.programs.items():
            if name.startswith(fault.target):
                program.start_beside()
                self._state.wait_in_sync()

    def _reassign(self, fault: Fault) -> None:
        chance = random.Random(fault.number)
        topic, partition = chance.choice(self._topics), chance.randrange(PARTITIONS)
        replicas = [1, 2, 3]
        chance.shuffle(replicas)
        if chance.random() < 0.7:
            self._state.reassign(topic, partition, replicas[:2])
            time.sleep(min(fault.seconds, 1.0))
        self._state.reassign(topic, partition, replicas)

    def _elect(self, fault: Fault) -> None:
        del fault
        self._state.elect_preferred_leaders()

    def _empty(self, fault: Fault) -> None:
        self._state.wait_in_sync()
        program = self._cluster.programs[fault.target]
        program.end(signal.SIGKILL if fault.number % 2 else signal.SIGTERM)
        # What only it had in sync is decided by then: the others lead, and it is no longer among them.
        wait_for(lambda: self._state.is_led_without(fault.target), "others lead", 30.0, self._state.describe)
        self._cluster.disks[fault.target].empty()
        time.sleep(fault.seconds)
        program.start()
        program.wait_ready()
