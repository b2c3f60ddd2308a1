"""The workloads of the coordinators: transactions, and a large group of the newer protocol (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from measure import finish_json, measured, start_client
from systems import System
from workloads import (
    CONSUMER,
    FETCH_BYTES,
    GROUP_MEMBERS,
    LATENCY_PRODUCER,
    LATENCY_WARM_UP_SECONDS,
    Figures,
    Workload,
    create_topic,
    delete_topic,
    form_group,
    percentiles,
)

TRANSACTION_PARTITIONS: Final = 3
TRANSACTIONAL_PRODUCER: Final = {"linger.ms": 0}
COPIED_PER_SECOND: Final = 1_000
GROUP_PARTITIONS: Final = 1_000


def transactions(producers: int, system: System, topic: str, seconds: float) -> Figures:
    """Transactions of ten records over three partitions, each producer one after the other."""
    create_topic(system, topic, TRANSACTION_PARTITIONS)
    arguments: dict[str, Any] = {
        "topic": topic,
        "settings": {"bootstrap.servers": system.bootstrap, **TRANSACTIONAL_PRODUCER},
        "partitions": TRANSACTION_PARTITIONS,
        "producers": producers,
    }
    with measured(system) as cost:
        answer = finish_json(start_client("transactions", **arguments, seconds=seconds), cost)
    delete_topic(system, topic)
    return {
        "transactions_s": answer["transactions"] / answer["seconds"],
        **percentiles(answer),
        # The second of warming up costs as much as the others, and is not counted among the transactions.
        "transaction_cpu": cost.server_seconds / cost.wall_seconds * seconds / answer["transactions"] * 1e6,
        "client_cpu_percent": 100 * cost.client_seconds / cost.wall_seconds,
    }


def read_process_write(system: System, topic: str, seconds: float) -> Figures:
    """Records of 1 KiB at a fixed rate, copied in transactions with their offsets to a topic that a consumer reads:
    from the moment each was due to the poll that returned its committed copy.
    """
    copies, total_seconds = f"{topic}-copies", seconds + LATENCY_WARM_UP_SECONDS
    create_topic(system, topic, 1)
    create_topic(system, copies, 1)
    records = round(COPIED_PER_SECOND * total_seconds)
    consuming = {
        "bootstrap.servers": system.bootstrap,
        **CONSUMER,
        "fetch.message.max.bytes": FETCH_BYTES,
        "isolation.level": "read_committed",
    }
    with measured(system) as cost:
        consumer = start_client(
            "consume_latencies",
            topic=copies,
            settings=consuming,
            partitions=1,
            records=records,
            warm_up_records=round(COPIED_PER_SECOND * LATENCY_WARM_UP_SECONDS),
        )
        copier = start_client(
            "copy_in_transactions",
            source=topic,
            target=copies,
            consumer_settings={**consuming, "group.id": topic},
            producer_settings={"bootstrap.servers": system.bootstrap, **TRANSACTIONAL_PRODUCER},
            records=records,
        )
        for each in (consumer, copier):
            assert each.stdout is not None
            each.stdout.readline()  # it reads
        producer = start_client(
            "produce_at_rate",
            topic=topic,
            settings={"bootstrap.servers": system.bootstrap, **LATENCY_PRODUCER},
            record_bytes=1024,
            per_second=COPIED_PER_SECOND,
            seconds=total_seconds,
        )
        sent = finish_json(producer, cost)
        copied = finish_json(copier, cost)
        answer = finish_json(consumer, cost)
    delete_topic(system, topic)
    delete_topic(system, copies)
    return {
        **percentiles(answer),
        "copied_records": copied["records"] / copied["transactions"],
        "server_cpu_percent": 100 * cost.server_seconds / total_seconds,
        "client_cpu_percent": 100 * cost.client_seconds / total_seconds,
        "producer_behind_s": sent["behind_seconds"],
    }


def large_consumer_group(
    members: int, partitions: int, system: System, topic: str, seconds: float
) -> Figures:
    """A group of KIP-848 whose members only beat: formed, left alone, and one more came."""
    create_topic(system, topic, partitions)
    arguments = {"topic": topic, "partitions": partitions, "members": members}
    figures = form_group("consumer_group_members", system, topic, seconds, arguments)
    delete_topic(system, topic)
    return figures


COORDINATOR_WORKLOADS: Final = (
    *(
        Workload(
            f"transactions-of-{producers}-producer{'s' if producers > 1 else ''}",
            f"{producers} librdkafka, each one transaction of ten records of 100 B after the other",
            partial(transactions, producers),
        )
        for producers in (1, 16)
    ),
    Workload(
        f"read-process-write-{COPIED_PER_SECOND}-per-second",
        "records copied in transactions with their offsets, librdkafka: latency from end to end",
        read_process_write,
    ),
    Workload(
        f"consumer-group-of-{GROUP_MEMBERS}-members-{GROUP_PARTITIONS}-partitions",
        "a group of KIP-848 formed, left alone, and one more member came",
        partial(large_consumer_group, GROUP_MEMBERS, GROUP_PARTITIONS),
        is_quick=False,
    ),
)
