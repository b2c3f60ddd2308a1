"""The workloads, named and shaped after those of the OpenMessaging Benchmark; each returns figures, none judges.

Shapes and client settings are those of its `workloads` and `driver-kafka` folders (acks=all, linger.ms=1, batch.size of
1 MiB for throughput and 128 KiB for latency, max.partition.fetch.bytes of 10 MiB). Two things differ. Producing and
consuming at the greatest rate come one after the other, not at once, so that the cost of each can be told. And there is
one replica, on one machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from measure import Cost, finish, finish_json, measured, start_client, start_java
from systems import System

Figures = dict[str, float]

PRODUCER: Final = {"acks": "all", "linger.ms": 1, "batch.size": 1_048_576}
LATENCY_PRODUCER: Final = {"acks": "all", "linger.ms": 1, "batch.size": 131_072}
CONSUMER: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
FETCH_BYTES: Final = 10_485_760

LIBRDKAFKA_PRODUCER: Final = {
    **PRODUCER,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}
LIBRDKAFKA_CONSUMER: Final = {
    **CONSUMER,
    "group.id": "bench",
    "fetch.message.max.bytes": FETCH_BYTES,
    # Without these the client itself stops fetching for a second whenever it is ahead of its application.
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 262_144,
    "fetch.queue.backoff.ms": 5,
}

REQUEST_CONNECTIONS: Final = 64
POLLING_CONNECTIONS: Final = 5_000
PARTITIONS: Final = 10_000
PARTITIONS_A_TOPIC: Final = 1_000
PARTITIONS_SECONDS_MAX: Final = 240.0
GROUP_MEMBERS: Final = 1_000
LATENCY_WARM_UP_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 3.0
START_SECONDS_MAX: Final = 60.0
CREATE_SECONDS_MAX: Final = 60.0

NOMINAL_MB_S: Final = {100: 80, 1024: 250}
"""MB for each second of a run, by the size of a record: a fixed amount, so that both systems get the same."""


@dataclass(frozen=True)
class Workload:
    """One row of the plan. `run` measures a system that is up; those that `needs_fresh` get one that just began."""

    name: str
    about: str
    run: Callable[[System, str, float], Figures]
    """(system, a topic name nobody has used, seconds that a run should take) -> figures"""
    needs_fresh: bool = False
    is_quick: bool = True
    """Whether the quick form has it."""
    brokers: int = 1


def create_topic(system: System, topic: str, partitions: int, replicas: int = 1) -> None:
    """Make a topic and return once it has leaders."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(CREATE_SECONDS_MAX)
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
        time.sleep(0.05)


def delete_topic(system: System, topic: str) -> None:
    """Delete a topic: what it wrote need not go to the disk any more."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 3})
    admin.delete_topics([topic])[topic].result(30)


def start_and_idle(system: System, topic: str, _seconds: float) -> Figures:
    """From the start of the process to the first acknowledged record; then what it weighs and costs when idle."""
    from clients.requests import first_acknowledged

    started = time.perf_counter()
    first_acknowledged("127.0.0.1", system.port, topic, START_SECONDS_MAX)
    first_ack = time.perf_counter() - started
    time.sleep(IDLE_SECONDS)
    cpu_before, before = sum(system.tree.cpu_seconds().values()), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    cpu = sum(system.tree.cpu_seconds().values()) - cpu_before
    return {
        "first_ack_s": first_ack,
        "idle_rss_mb": system.tree.resident_mb(),
        "idle_pss_mb": system.tree.proportional_mb(),
        "idle_cpu": 100 * cpu / (time.perf_counter() - before),
    }


def throughput(
    client: str,
    partitions: int,
    record_bytes: int,
    system: System,
    topic: str,
    seconds: float,
    *,
    replicas: int = 1,
) -> Figures:
    """As much in as the producer can send, then as much out as the consumer can take."""
    records = int(NOMINAL_MB_S[record_bytes] * 1e6 * seconds / record_bytes)
    gigabytes = records * record_bytes / 1e9
    create_topic(system, topic, partitions, replicas)
    producing = _librdkafka_produce if client == "librdkafka" else _java_produce
    consuming = _librdkafka_consume if client == "librdkafka" else _java_consume
    with measured(system) as cost_in:
        seconds_in = producing(system, topic, record_bytes, records, cost_in)
    with measured(system) as cost_out:
        seconds_out = consuming(system, topic, partitions, records, cost_out)
    pss_mb = system.tree.proportional_mb()
    delete_topic(system, topic)
    return {
        "produce_mb_s": gigabytes * 1000 / seconds_in,
        "consume_mb_s": gigabytes * 1000 / seconds_out,
        "produce_cpu": cost_in.server_seconds / gigabytes,
        "consume_cpu": cost_out.server_seconds / gigabytes,
        "produce_client_cpu": cost_in.client_seconds / gigabytes,
        "consume_client_cpu": cost_out.client_seconds / gigabytes,
        "load_rss_mb": max(cost_in.resident_peak_mb, cost_out.resident_peak_mb),
        "load_pss_mb": pss_mb,
        **{f"in {name} s/GB": spent / gigabytes for name, spent in cost_in.by_service.items()},
        **{f"out {name} s/GB": spent / gigabytes for name, spent in cost_out.by_service.items()},
    }


def _librdkafka_produce(system: System, topic: str, record_bytes: int, records: int, cost: Cost) -> float:
    settings = {"bootstrap.servers": system.bootstrap, **LIBRDKAFKA_PRODUCER}
    client = start_client(
        "produce", topic=topic, settings=settings, record_bytes=record_bytes, records=records
    )
    return finish_json(client, cost)["seconds"]


def _librdkafka_consume(system: System, topic: str, partitions: int, records: int, cost: Cost) -> float:
    settings = {"bootstrap.servers": system.bootstrap, **LIBRDKAFKA_CONSUMER}
    client = start_client("consume", topic=topic, settings=settings, partitions=partitions, records=records)
    return finish_json(client, cost)["seconds"]


def _java_produce(system: System, topic: str, record_bytes: int, records: int, cost: Cost) -> float:
    """kafka-producer-perf-test; its first record leaves before its code is compiled, as in any Java program."""
    properties = {"bootstrap.servers": system.bootstrap, **PRODUCER}
    client = start_java(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *(
            "--throughput",
            "-1",
            "--command-property",
            *(f"{name}={value}" for name, value in properties.items()),
        ),
    )
    output = finish(client, cost)
    last = [line for line in output.splitlines() if "records sent" in line][-1]
    found = re.search(r"([\d.]+) records/sec", last)
    assert found, last
    assert last.startswith(f"{records} records sent"), last
    return records / float(found[1])


def _java_consume(system: System, topic: str, _partitions: int, records: int, cost: Cost) -> float:
    """kafka-consumer-perf-test; its `fetch.time`, which leaves out the forming of its group."""
    properties = {**CONSUMER, "max.partition.fetch.bytes": FETCH_BYTES}
    options = [
        word for name, value in properties.items() for word in ("--command-property", f"{name}={value}")
    ]
    client = start_java(
        "ConsumerPerformance",
        *("--bootstrap-server", system.bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--fetch-size", str(FETCH_BYTES), "--hide-header", *options),
    )
    fields = finish(client, cost).strip().splitlines()[-1].split(",")
    assert int(fields[4]) >= records, f"only {fields[4]} of {records} records came"
    return float(fields[7]) / 1000


def small_requests(system: System, topic: str, seconds: float) -> Figures:
    """64 connections, each with one produce request of one record of 100 B in flight: what each request costs."""
    create_topic(system, topic, 1)
    arguments = {"host": "127.0.0.1", "port": system.port, "topic": topic, "connections": REQUEST_CONNECTIONS}
    with measured(system) as cost:
        answer = finish_json(start_client("requests", **arguments, seconds=seconds), cost)
    delete_topic(system, topic)
    return {
        "requests_s": answer["requests"] / answer["seconds"],
        **percentiles(answer),
        "request_cpu": cost.server_seconds / answer["requests"] * 1e6,
        "client_cpu_percent": 100 * cost.client_seconds / answer["seconds"],
        **{f"{name} µs": spent / answer["requests"] * 1e6 for name, spent in cost.by_service.items()},
    }


def latency(per_second: int, system: System, topic: str, seconds: float, *, replicas: int = 1) -> Figures:
    """1 KiB records at a fixed rate; from the moment each was due to the consumer's poll that returned it."""
    create_topic(system, topic, 1, replicas)
    total_seconds = seconds + LATENCY_WARM_UP_SECONDS
    records = per_second * round(total_seconds * 1000) // 1000
    common: dict[str, Any] = {"topic": topic}
    with measured(system) as cost:
        consumer = start_client(
            "consume_latencies",
            **common,
            settings={
                "bootstrap.servers": system.bootstrap,
                **CONSUMER,
                "fetch.message.max.bytes": FETCH_BYTES,
            },
            partitions=1,
            records=records,
            warm_up_records=round(per_second * LATENCY_WARM_UP_SECONDS),
        )
        assert consumer.stdout is not None
        consumer.stdout.readline()  # it reads
        producer = start_client(
            "produce_at_rate",
            **common,
            settings={"bootstrap.servers": system.bootstrap, **LATENCY_PRODUCER},
            record_bytes=1024,
            per_second=per_second,
            seconds=total_seconds,
        )
        sent = finish_json(producer, cost)
        answer = finish_json(consumer, cost)
    delete_topic(system, topic)
    return {
        **percentiles(answer),
        "server_cpu_percent": 100 * cost.server_seconds / total_seconds,
        "client_cpu_percent": 100 * cost.client_seconds / total_seconds,
        "producer_behind_s": sent["behind_seconds"],
    }


def many_connections(connections: int, system: System, topic: str, seconds: float) -> Figures:
    """Connections that wait for records in long polls of half a second: what waiting costs."""
    create_topic(system, topic, 1)
    before_mb = system.tree.proportional_mb()
    arguments = {"host": "127.0.0.1", "port": system.port, "topic": topic, "connections": connections}
    with measured(system) as cost:
        answer = finish_json(start_client("long_polls", **arguments, seconds=seconds), cost)
    after_mb = system.tree.proportional_mb()
    delete_topic(system, topic)
    return {
        "poll_cpu": cost.server_seconds / answer["polls"] * 1e6,
        "poll_late_p50_ms": answer["late_p50"],
        "poll_late_p99_ms": answer["late_p99"],
        "connect_s": answer["connect_seconds"],
        "grown_pss_mb": after_mb - before_mb,
        **{f"{name} µs": spent / answer["polls"] * 1e6 for name, spent in cost.by_service.items()},
    }


def many_partitions(partitions: int, system: System, topic: str, _seconds: float) -> Figures:
    """Topics with a thousand partitions each: made, left alone, and there again after everything was killed."""
    from clients.requests import first_acknowledged

    first_acknowledged("127.0.0.1", system.port, "warm-up-first", START_SECONDS_MAX)
    started = time.perf_counter()
    topics = [f"{topic}-{number}" for number in range(partitions // PARTITIONS_A_TOPIC)]
    for name in topics:
        create_topic(system, name, PARTITIONS_A_TOPIC)
    wait_for_leaders(system, topics)
    created = time.perf_counter() - started
    time.sleep(IDLE_SECONDS)
    cpu_before, before = sum(system.tree.cpu_seconds().values()), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    cpu = sum(system.tree.cpu_seconds().values()) - cpu_before
    idle_cpu = 100 * cpu / (time.perf_counter() - before)
    memory = system.tree.proportional_mb()
    started = time.perf_counter()
    system.kill()
    system.start_again()
    # Asked of one partition until it answers: who asks for all of them again and again measures himself.
    first_acknowledged("127.0.0.1", system.port, "warm-up-first", PARTITIONS_SECONDS_MAX)
    wait_for_leaders(system, topics)
    first_acknowledged("127.0.0.1", system.port, topics[-1], PARTITIONS_SECONDS_MAX)
    return {
        "create_s": created,
        "restart_s": time.perf_counter() - started,
        "idle_cpu": idle_cpu,
        "idle_pss_mb": memory,
    }


def wait_for_leaders(system: System, topics: list[str]) -> None:
    """Return once every partition answers to a look-up of its end."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    end = time.perf_counter() + PARTITIONS_SECONDS_MAX
    missing = [TopicPartition(name, index) for name in topics for index in range(PARTITIONS_A_TOPIC)]
    while missing:
        found = admin.list_offsets({each: OffsetSpec.latest() for each in missing}, request_timeout=30)
        failed = {each: future.exception() for each, future in found.items()}
        missing = [each for each, error in failed.items() if error is not None]
        if missing:
            if time.perf_counter() > end:
                raise TimeoutError(f"{len(missing)} partitions do not answer: {failed[missing[0]]}")
            # librdkafka goes on with metadata that showed no leader, for minutes: it takes them as an answer.
            admin.list_topics(timeout=30)


def large_group(members: int, system: System, topic: str, seconds: float) -> Figures:
    """A classic group of members that only beat: formed, left alone, and rebalanced because one more came."""
    return form_group("group_members", system, topic, seconds, {"members": members})


def form_group(
    what: str, system: System, group_id: str, seconds: float, arguments: Mapping[str, Any]
) -> Figures:
    """What the forming of a group, its idling and the coming of one member take, by the client `what`."""
    arguments = {"host": "127.0.0.1", "port": system.port, "group_id": group_id, **arguments}
    with measured(system) as forming:
        client = start_client(what, **arguments, seconds=seconds)
        assert client.stdout is not None
        assert client.stdout.readline() == "formed\n"
    with measured(system) as idle:
        assert client.stdout.readline() == "idle\n"
    assert client.stdout.readline() == "joins\n"
    with measured(system) as joining:
        answer = finish_json(client, joining)
    return {
        "formed_s": answer["formed_seconds"],
        "joined_s": answer["joined_seconds"],
        "forming_cpu_s": forming.server_seconds,
        "joining_cpu_s": joining.server_seconds,
        "server_cpu_percent": 100 * idle.server_seconds / seconds,
    }


def percentiles(answer: dict[str, float]) -> Figures:
    return {"p50_ms": answer["p50"], "p99_ms": answer["p99"], "p999_ms": answer["p99.9"]}


def _throughput_workloads() -> list[Workload]:
    found = []
    for client in ("librdkafka", "java"):
        for record_bytes, size in ((100, "100b"), (1024, "1kb")):
            for partitions in (1, 16):
                plural = "s" if partitions > 1 else ""
                found.append(
                    Workload(
                        f"max-rate-1-topic-{partitions}-partition{plural}-1p-1c-{size}-{client}",
                        f"{client}, {partitions} partition{plural}, records of {record_bytes} B",
                        partial(throughput, client, partitions, record_bytes),
                        # The Java tools take a second to start: the quick form has two of their four.
                        is_quick=client == "librdkafka" or partitions == 1,
                    )
                )
    return found


WORKLOADS: Final = (
    Workload(
        "start-and-idle",
        "from the start of the process to the first acknowledged record; memory and CPU when idle",
        start_and_idle,
        needs_fresh=True,
    ),
    *_throughput_workloads(),
    Workload(
        f"{REQUEST_CONNECTIONS}-connections-1-request-in-flight-100b",
        "produce requests of one record over plain sockets, one in flight on each connection",
        small_requests,
    ),
    *(
        Workload(
            f"1-topic-1-partition-1kb-{per_second}-per-second",
            f"end to end latency at {per_second:,} records/s of 1 KiB, librdkafka",
            partial(latency, per_second),
        )
        for per_second in (1_000, 20_000)
    ),
    Workload(
        f"{POLLING_CONNECTIONS}-connections-polling",
        "connections that wait in long polls for records that do not come",
        partial(many_connections, POLLING_CONNECTIONS),
        is_quick=False,
    ),
    Workload(
        f"group-of-{GROUP_MEMBERS}-members",
        "a classic group formed, left alone, and rebalanced because one more member came",
        partial(large_group, GROUP_MEMBERS),
        is_quick=False,
    ),
    Workload(
        f"{PARTITIONS}-partitions",
        "partitions made, left alone, and there again after everything was killed",
        partial(many_partitions, PARTITIONS),
        needs_fresh=True,
        is_quick=False,
    ),
)
