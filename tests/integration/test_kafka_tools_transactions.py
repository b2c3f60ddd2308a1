"""kafka-transactions: listed, described, ended by force; and a transaction that hangs, found and aborted.

A transaction hangs where records are part of one that no coordinator knows of. Leaders that ask the coordinator take no
such records, so it is made as it came to be before KIP-890: with that switched off, by a client of those days.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kafka_tools import Output, ToolsInOneJvm
from raw_client import RawConnection, Topic
from raw_transactions import RawTransaction
from running_cluster import Cluster

from barnabas.kernel.errors import ErrorCode

pytestmark = pytest.mark.integration

UNVERIFIED: Final = ("--override", "transaction.partition.verification.enable=false")
BEFORE_VERIFICATION: Final = 11
"""The last version of Produce whose clients add partitions by themselves, or forget to."""

AT_ONCE: Final = ("--max-transaction-timeout", "0")
"""A search for what hangs looks at every transaction, not only at those that are open for a quarter of an hour."""


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolsInOneJvm]:
    with Cluster(flags=UNVERIFIED) as running, ToolsInOneJvm(running.bootstrap) as tools:
        yield tools


@pytest.fixture
def connection(tools: ToolsInOneJvm) -> Iterator[RawConnection]:
    with RawConnection(port_of(tools)) as opened:
        yield opened


@pytest.fixture
def topic(tools: ToolsInOneJvm) -> Topic:
    return Topic(port_of(tools))


def port_of(tools: ToolsInOneJvm) -> int:
    return int(tools.bootstrap.partition(":")[2])


def table(output: Output) -> list[dict[str, str]]:
    """The rows of a printed table, by its headings."""
    heading, *rows = ([cell.strip() for cell in line.split("\t")] for line in output.lines)
    return [dict(zip(heading, row, strict=True)) for row in rows]


def stable_end(connection: RawConnection, topic: Topic) -> int:
    """Where readers of committed records may read up to."""
    stable: int = topic.fetch(connection, 16, {0: 0}, max_wait=0, isolation_level=1)[0].last_stable_offset
    return stable


def test_transactions_are_listed(tools: ToolsInOneJvm, connection: RawConnection, topic: Topic) -> None:
    ended = RawTransaction(connection, f"listed-ended-{topic.name}")
    open_one = RawTransaction(connection, f"listed-open-{topic.name}")
    for each in (ended, open_one):
        assert each.produce(topic, b"v") == 0
    assert ended.end(committed=True) == 0
    ended.wait_for("CompleteCommit")

    def listed(*flags: str) -> dict[str, str]:
        pattern = ("--transactional-id-pattern", f"listed-.*{topic.name}")
        rows = table(tools("transactions", "list", *pattern, *flags))
        assert {row["Coordinator"] for row in rows} <= {"1"}
        return {row["TransactionalId"]: row["TransactionState"] for row in rows}

    both = {ended.transactional_id: "CompleteCommit", open_one.transactional_id: "Ongoing"}
    assert listed() == both
    assert listed("--duration-filter", "-1") == both
    assert listed("--duration-filter", "0") == both, (
        "a duration is the time since it began, whether it ended or not"
    )
    assert listed("--duration-filter", "600000") == {}
    bad = tools("transactions", "list", "--transactional-id-pattern", "(", status=1)
    assert "Failed to list transactions" in bad.stderr
    assert open_one.end(committed=False) == 0


def test_transactions_are_described(tools: ToolsInOneJvm, connection: RawConnection, topic: Topic) -> None:
    mine = RawTransaction(connection, f"described-{topic.name}")

    def described() -> dict[str, str]:
        (row,) = table(tools("transactions", "describe", "--transactional-id", mine.transactional_id))
        return row

    empty = described()
    assert (empty["TransactionState"], empty["CurrentTransactionStartTimeMs"]) == ("Empty", "None")
    assert mine.produce(topic, b"v") == 0
    begun = described()
    assert begun["TransactionState"] == "Ongoing"
    assert begun["TopicPartitions"] == f"{topic.name}-0"
    assert (int(begun["ProducerId"]), int(begun["ProducerEpoch"])) == (mine.producer_id, mine.epoch)
    assert begun["TransactionTimeoutMs"] == "60000"
    assert 0 <= int(begun["TransactionDurationMs"]) < 60_000
    (producer,) = table(
        tools("transactions", "describe-producers", "--topic", topic.name, "--partition", "0")
    )
    assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (str(mine.producer_id), "0")
    unknown = tools("transactions", "describe", "--transactional-id", "nobody", status=1)
    assert "Failed to describe transaction state of transactional-id `nobody`" in unknown.stderr
    assert mine.end(committed=False) == 0


def test_a_transaction_is_ended_by_force(
    tools: ToolsInOneJvm, connection: RawConnection, topic: Topic
) -> None:
    mine = RawTransaction(connection, f"forced-{topic.name}")
    assert mine.produce(topic, b"v") == 0
    tools("transactions", "forceTerminateTransaction", "--transactionalId", mine.transactional_id)
    mine.wait_for("Empty")
    assert stable_end(connection, topic) == 2
    assert mine.end(committed=True) == ErrorCode.producer_fenced


def test_a_hanging_transaction_is_found_and_aborted(
    tools: ToolsInOneJvm, connection: RawConnection, topic: Topic
) -> None:
    known = RawTransaction(connection, f"known-{topic.name}")
    hanging = RawTransaction(connection, f"hanging-{topic.name}")
    assert hanging.produce(topic, b"hangs", version=BEFORE_VERIFICATION) == 0
    assert known.produce(topic, b"known") == 0
    assert known.end(committed=True) == 0
    known.wait_for("CompleteCommit")
    assert known.produce(topic, b"open") == 0
    time.sleep(0.01)  # what began in this very millisecond is not looked at

    def found(*flags: str) -> list[Any]:
        rows = table(tools("transactions", "find-hanging", *flags))
        return [(row["Topic"], row["Partition"], row["ProducerId"], row["StartOffset"]) for row in rows]

    def abort(*flags: str, status: int = 0) -> Output:
        where = ("--topic", topic.name, "--partition", "0")
        return tools("transactions", "abort", *where, *flags, status=status)

    here = (topic.name, "0", str(hanging.producer_id), "0")
    assert here not in found("--broker-id", "1")
    assert found("--topic", topic.name, *AT_ONCE) == [here]
    assert here in found("--broker-id", "1", *AT_ONCE)
    assert stable_end(connection, topic) == 0

    nothing = abort("--start-offset", "1", status=1)
    assert "Could not find any open transactions starting at offset 1" in nothing.stderr
    abort("--start-offset", "0")
    assert found("--topic", topic.name, *AT_ONCE) == []
    # hangs, known, its marker; then the other's open transaction, and the marker of what was aborted.
    assert stable_end(connection, topic) == 3
    assert known.end(committed=True) == 0
    known.wait_for("CompleteCommit")
    assert stable_end(connection, topic) == 6
    again = abort("--start-offset", "0", status=1)
    assert "Could not find any open transactions starting at offset 0" in again.stderr


def test_a_hanging_transaction_is_aborted_as_tools_of_old_do(
    tools: ToolsInOneJvm, connection: RawConnection, topic: Topic
) -> None:
    hanging = RawTransaction(connection, f"old-{topic.name}")
    assert hanging.produce(topic, b"hangs", version=BEFORE_VERIFICATION) == 0
    where = ("--topic", topic.name, "--partition", "0")
    named = ("--producer-id", str(hanging.producer_id), "--producer-epoch", str(hanging.epoch))
    tools("transactions", "abort", *where, *named, "--coordinator-epoch", "-1")
    assert stable_end(connection, topic) == 2
