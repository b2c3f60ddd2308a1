"""The workloads of three brokers: three replicas, acks=all, min.insync.replicas=2, each named three-brokers-..."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Final

from clients.failover import acknowledged, pause, wait_for, wait_until_named
from systems import System
from workloads import (
    IDLE_SECONDS,
    PARTITIONS_A_TOPIC,
    PARTITIONS_SECONDS_MAX,
    START_SECONDS_MAX,
    Figures,
    Workload,
    create_topic,
    delete_topic,
    latency,
    throughput,
)

REPLICAS: Final = 3
KILLS: Final = 5
LEADER_PARTITIONS: Final = 2_000


def leader_killed(system: System, topic: str, _seconds: float) -> Figures:
    """A partition's leader is killed, five times: how long nothing is acknowledged."""
    assert system.kill_broker is not None
    create_topic(system, topic, 1, REPLICAS)
    pauses = []
    for _ in range(KILLS):
        wait_for(system.ports, [topic], lambda led: led.in_sync == REPLICAS)
        killed: list[int] = []

        def kill(broker: int, killed: list[int] = killed) -> None:
            killed.append(broker)
            system.kill_broker(broker)  # type: ignore[misc]

        pauses.append(pause(system.ports, topic, kill))
        if system.restore_broker is not None:
            system.restore_broker(killed[0])
    wait_for(system.ports, [topic], lambda led: led.in_sync == REPLICAS)
    delete_topic(system, topic)
    return {"pause_s": statistics.median(pauses), "pause_worst_s": max(pauses)}


def many_replicated_partitions(partitions: int, system: System, topic: str, _seconds: float) -> Figures:
    """Partitions with three replicas each: made, left alone, one broker killed, everything killed."""
    assert system.kill_broker is not None
    wait_for_brokers(system)
    topics = [f"{topic}-{number}" for number in range(partitions // PARTITIONS_A_TOPIC)]
    started = time.perf_counter()
    for name in topics:
        create_topic(system, name, PARTITIONS_A_TOPIC, REPLICAS)
    wait_for(system.ports, topics, lambda led: led.leader > 0 and led.in_sync == REPLICAS)
    created = time.perf_counter() - started
    time.sleep(IDLE_SECONDS)
    cpu_before, before = sum(system.tree.cpu_seconds().values()), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    idle_cpu = 100 * (sum(system.tree.cpu_seconds().values()) - cpu_before) / (time.perf_counter() - before)
    memory = system.tree.proportional_mb()
    gone = max(system.ports)
    others = {broker: port for broker, port in system.ports.items() if broker != gone}
    started = time.perf_counter()
    system.kill_broker(gone)
    wait_for(others, topics, lambda led: led.leader in others, PARTITIONS_SECONDS_MAX)
    failover = time.perf_counter() - started
    if system.restore_broker is not None:
        system.restore_broker(gone)
    wait_for(others, topics, lambda led: led.in_sync == REPLICAS, PARTITIONS_SECONDS_MAX)
    refilled = time.perf_counter() - started
    started = time.perf_counter()
    system.kill_and_start()
    wait_for(system.ports, topics, lambda led: led.leader > 0, PARTITIONS_SECONDS_MAX)
    acknowledged(system.ports, topics[-1], PARTITIONS_SECONDS_MAX)
    return {
        "create_s": created,
        "failover_s": failover,
        "refilled_s": refilled,
        "restart_s": time.perf_counter() - started,
        "idle_cpu": idle_cpu,
        "idle_pss_mb": memory,
    }


def wait_for_brokers(system: System) -> None:
    """Return once every broker tells clients of all of them, and takes records."""
    wait_until_named(system.ports, START_SECONDS_MAX)
    create_topic(system, "all-brokers", 1, REPLICAS)
    acknowledged(system.ports, "all-brokers", START_SECONDS_MAX)


REPLICATED_WORKLOADS: Final = (
    *(
        Workload(
            f"three-brokers-max-rate-1-topic-6-partitions-1p-1c-{size}",
            f"librdkafka, 6 partitions of three replicas, acks=all, records of {record_bytes} B",
            partial(throughput, "librdkafka", 6, record_bytes, replicas=REPLICAS),
            is_quick=False,
            brokers=3,
        )
        for record_bytes, size in ((100, "100b"), (1024, "1kb"))
    ),
    Workload(
        "three-brokers-1-topic-1-partition-1kb-1000-per-second",
        "end to end latency at 1,000 records/s of 1 KiB, three replicas, acks=all",
        partial(latency, 1_000, replicas=REPLICAS),
        is_quick=False,
        brokers=3,
    ),
    Workload(
        "three-brokers-leader-killed",
        f"a partition whose leader is killed, {KILLS} times: how long nothing is acknowledged",
        leader_killed,
        is_quick=False,
        brokers=3,
    ),
    Workload(
        f"three-brokers-{LEADER_PARTITIONS}-partitions",
        "partitions of three replicas made, left alone, one broker killed, everything killed",
        partial(many_replicated_partitions, LEADER_PARTITIONS),
        needs_fresh=True,
        is_quick=False,
        brokers=3,
    ),
)
