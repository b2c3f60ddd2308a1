"""The workloads of three brokers: three replicas, acks=all, min.insync.replicas=2; named three-brokers-..., and
quiet-three-brokers-... where nothing is to happen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from clients.failover import Led, acknowledged, all_acknowledged, pause, wait_for, wait_until_named
from systems import System
from workloads import (
    IDLE_SECONDS,
    PARTITIONS_A_TOPIC,
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
QUIET_PARTITIONS: Final = 10_000
QUIET_SECONDS: Final = 60.0
"""How long is counted, however long a run should take: what is done once a minute is in it."""
SETTLING_SECONDS: Final = 20.0
"""How long a cluster is left alone before that: what follows a start, or new partitions, is over by then."""
MANY_SECONDS_MAX: Final = 900.0
"""A broker that had to be killed looks through its logs, and three of them share a machine's cores and disk."""


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
    """Partitions with three replicas each: made, left alone, one broker killed, all stopped and started, all killed."""
    wait_for_brokers(system)
    counts = {f"{topic}-{number}": PARTITIONS_A_TOPIC for number in range(partitions // PARTITIONS_A_TOPIC)}
    topics = [*counts]
    started = time.perf_counter()
    for name, count in counts.items():
        create_topic(system, name, count, REPLICAS)
    wait_for(system.ports, topics, _is_whole, MANY_SECONDS_MAX)
    created = time.perf_counter() - started
    all_acknowledged(system.ports, counts, MANY_SECONDS_MAX)
    time.sleep(IDLE_SECONDS)
    cpu_before, before = sum(system.tree.cpu_seconds().values()), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    idle_cpu = 100 * (sum(system.tree.cpu_seconds().values()) - cpu_before) / (time.perf_counter() - before)
    memory = system.tree.proportional_mb()
    return {
        "create_s": created,
        "idle_cpu": idle_cpu,
        "idle_pss_mb": memory,
        **_one_killed(system, counts),
        **_all_started(system, counts),
    }


def quiet_partitions(partitions: int, system: System, topic: str, _seconds: float) -> Figures:
    """What a cluster costs in which nothing happens: with one partition, and with many that have a record each."""
    wait_for_brokers(system)
    empty_cpu = _quiet_cpu(system)
    counts = {f"{topic}-{number}": PARTITIONS_A_TOPIC for number in range(partitions // PARTITIONS_A_TOPIC)}
    started = time.perf_counter()
    for name, count in counts.items():
        create_topic(system, name, count, REPLICAS)
    wait_for(system.ports, [*counts], _is_whole, MANY_SECONDS_MAX)
    created = time.perf_counter() - started
    all_acknowledged(system.ports, counts, MANY_SECONDS_MAX)
    quiet_cpu = _quiet_cpu(system)
    wait_for(system.ports, [*counts], _is_whole, 1.0)  # else it was not quiet
    return {
        "empty_cpu": empty_cpu,
        "quiet_cpu": quiet_cpu,
        "partitions_cpu": quiet_cpu - empty_cpu,
        "create_s": created,
        "idle_pss_mb": system.tree.proportional_mb(),
    }


def _quiet_cpu(system: System) -> float:
    """Percent of a core that all processes take together, while nobody asks anything of them."""
    time.sleep(SETTLING_SECONDS)
    cpu_before, before = sum(system.tree.cpu_seconds().values()), time.perf_counter()
    time.sleep(QUIET_SECONDS)
    seconds = time.perf_counter() - before
    return 100 * (sum(system.tree.cpu_seconds().values()) - cpu_before) / seconds


def _is_whole(led: Led) -> bool:
    return led.leader > 0 and led.in_sync == REPLICAS


def _one_killed(system: System, counts: Mapping[str, int]) -> Figures:
    """One broker is killed: until every partition takes records, and until every replica is in sync again."""
    assert system.kill_broker is not None
    gone = max(system.ports)
    others = {broker: port for broker, port in system.ports.items() if broker != gone}
    started = time.perf_counter()
    system.kill_broker(gone)
    all_acknowledged(system.ports, counts, MANY_SECONDS_MAX)
    failover = time.perf_counter() - started
    if system.restore_broker is not None:
        system.restore_broker(gone)
    wait_for(others, [*counts], _is_whole, MANY_SECONDS_MAX)
    return {"failover_s": failover, "refilled_s": time.perf_counter() - started}


def _all_started(system: System, counts: Mapping[str, int]) -> Figures:
    """All are stopped in order and started, then killed and started: until every partition takes records."""
    figures = {}
    for ended, end in (("stopped_start_s", system.stop), ("killed_start_s", system.kill)):
        end()
        started = time.perf_counter()
        system.start_again()
        all_acknowledged(system.ports, counts, MANY_SECONDS_MAX)
        figures[ended] = time.perf_counter() - started
        wait_for(system.ports, [*counts], _is_whole, MANY_SECONDS_MAX)
    return figures


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
        "partitions of three replicas made, left alone, one broker killed, all stopped and started, all killed",
        partial(many_replicated_partitions, LEADER_PARTITIONS),
        needs_fresh=True,
        is_quick=False,
        brokers=3,
    ),
    Workload(
        f"quiet-three-brokers-{QUIET_PARTITIONS}-partitions",
        "three brokers with nothing to do: with one partition, and with many of three replicas that have nothing new",
        partial(quiet_partitions, QUIET_PARTITIONS),
        needs_fresh=True,
        is_quick=False,
        brokers=3,
    ),
)
