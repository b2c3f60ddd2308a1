"""The disk with the only replica of `__transaction_state` is lost: what is open on other disks stays open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, Final

import pytest
from command_line import CommandLine
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from confluent_kafka_client import WAIT_SECONDS, admin_of, produce
from test_transactions import COMMITTED, UNCOMMITTED, read_to_end, transactional

pytestmark = pytest.mark.integration

STATE: Final = "__transaction_state"
ID: Final = "payments"
ONE_REPLICA: Final = (
    *("--override", "transaction.state.log.replication.factor=1"),
    *("--override", "transaction.state.log.num.partitions=1"),
)


@pytest.mark.parametrize(
    ("flags", "prefix"), [((), "broker"), (("--separate",), "storage")], ids=["brokers", "separate"]
)
def test_what_was_open_on_other_disks_is_open_until_somebody_aborts_it(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], prefix: str
) -> None:
    """Apart from its log a coordinator lives on, and knows what it knew until it writes again."""
    cluster = make_cluster(nodes=2, flags=(*flags, *ONE_REPLICA))
    run, admin = CommandLine(cluster.bootstrap), admin_of(cluster)
    first = transactional(cluster, ID, transaction_timeout_ms=600_000)
    (lost,) = admin.list_topics(STATE, timeout=WAIT_SECONDS).topics[STATE].partitions[0].replicas
    elsewhere = NewTopic("orders", 1, replica_assignment=[[3 - lost]])
    admin.create_topics([elsewhere])["orders"].result(WAIT_SECONDS)
    for value in ("whole", "open"):
        first.begin_transaction()
        first.produce("orders", value)
        assert first.flush(WAIT_SECONDS) == 0
        if value == "whole":
            first.commit_transaction(WAIT_SECONDS)
    produce(cluster, "orders", 2)
    (begun,) = run("transactions", "list", "--output", "json").data
    assert (begun["transactionalId"], begun["state"]) == (ID, "Ongoing")

    cluster.stop_service(f"{prefix}-{lost}", kill=True)
    shutil.rmtree(cluster.data_dir / f"node-{lost}")
    cluster.start_service(f"{prefix}-{lost}")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_SECONDS)
    assert raised.value.args[0].code() == KafkaError.INVALID_PRODUCER_ID_MAPPING
    assert run("transactions", "list", "--output", "json").data == []
    second = transactional(cluster, ID)  # which would end what the first left, if anybody knew of it
    second.begin_transaction()
    second.produce("orders", "next")
    second.commit_transaction(WAIT_SECONDS)
    assert read_to_end(cluster, "orders", **COMMITTED) == ["whole"]
    assert read_to_end(cluster, "orders", **UNCOMMITTED) == ["whole", "open", "0", "1", "next"]

    find = ("transactions", "find-hanging", "--max-transaction-timeout", "0", "--output", "json")
    (hanging,) = run(*find).data
    assert (hanging["topic"], hanging["partition"]) == ("orders", 0)
    begins = ("--partition", "0", "--start-offset", str(hanging["startOffset"]))
    run("transactions", "abort", "orders", *begins)
    assert run(*find).data == []
    assert read_to_end(cluster, "orders", **COMMITTED) == ["whole", "0", "1", "next"]
