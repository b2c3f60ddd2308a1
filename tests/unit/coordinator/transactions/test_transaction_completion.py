"""From a decision to its completion: who is told when, and what survives a new coordinator."""

from __future__ import annotations

import pytest
from transaction_driver import PRODUCER, TransactionDriver, a_transaction, partitions

from barnabas.coordinator.transactions.core.completion import left_to_mark, on_marked
from barnabas.coordinator.transactions.core.describe import describe
from barnabas.coordinator.transactions.core.shard import EndedTransaction
from barnabas.coordinator.transactions.core.states import TransactionState
from barnabas.coordinator.transactions.core.transaction import Transaction


@pytest.fixture
def driver() -> TransactionDriver:
    driver = TransactionDriver()
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    driver.add("t-0", "t-1", "u-0")
    return driver


def test_nobody_is_told_before_the_decision_is_in_the_log(driver: TransactionDriver) -> None:
    driver.holds = True
    driver.end("commit")
    assert driver.shard.take_ready_to_mark() == []
    assert driver.times_ready == 0
    driver.commit()
    assert driver.times_ready == 1
    assert driver.shard.take_ready_to_mark() == [
        EndedTransaction(
            "payments",
            PRODUCER,
            6,
            committed=True,
            transaction_version=2,
            partitions=partitions("t-0", "t-1", "u-0"),
        )
    ]
    assert driver.shard.take_ready_to_mark() == [], "each is given out once"


def test_it_is_heard_once_of_all_that_is_ready(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.ONGOING), "orders")
    driver.end("abort", name="orders")
    driver.end("commit")
    assert driver.times_ready == 1
    assert [each.transactional_id for each in driver.shard.take_ready_to_mark()] == ["orders", "payments"]
    driver.given(a_transaction(TransactionState.ONGOING), "visits")
    driver.end("abort", name="visits")
    assert driver.times_ready == 2


def test_it_is_complete_when_every_partition_has_its_marker(driver: TransactionDriver) -> None:
    driver.end("commit")
    (ended,) = driver.shard.take_ready_to_mark()
    assert not on_marked(driver.shard, ended, partitions("t-0"))
    assert not on_marked(driver.shard, ended, partitions("t-0", "t-1"))
    assert not driver.complete(ended).records, "u-0 has no marker"
    assert _described(driver) == {"u": [0]}
    assert on_marked(driver.shard, ended, partitions("u-0"))
    driver.clock.advance(500)
    driver.complete(ended)
    assert driver.at() == f"CompleteCommit {PRODUCER}/6"
    assert driver.now().partitions == frozenset()
    assert driver.now().last_update_ms == driver.clock.now_ms()
    assert driver.now().start_ms == driver.clock.now_ms() - 500, "it is told how long it took"
    assert not driver.complete(ended).records, "once is enough"


def test_only_who_lacks_the_marker_of_this_very_transaction_is_to_be_told(driver: TransactionDriver) -> None:
    driver.end("commit")
    (ended,) = driver.shard.take_ready_to_mark()
    aborted = EndedTransaction("payments", PRODUCER, 6, False, 2, ended.partitions)
    assert left_to_mark(driver.shard, aborted) is None, "that was one before, under the same epoch"
    assert left_to_mark(driver.shard, ended) == ended.partitions
    on_marked(driver.shard, ended, partitions("t-0", "t-1"))
    assert left_to_mark(driver.shard, ended) == partitions("u-0")
    on_marked(driver.shard, ended, partitions("u-0"))
    assert left_to_mark(driver.shard, ended) == frozenset(), "it is to be completed"
    driver.complete(ended)
    assert left_to_mark(driver.shard, ended) is None


def test_news_of_another_transaction_change_nothing(driver: TransactionDriver) -> None:
    driver.end("commit")
    (ended,) = driver.shard.take_ready_to_mark()
    for other in (
        EndedTransaction("orders", PRODUCER, 6, True, 2, ended.partitions),
        EndedTransaction("payments", PRODUCER + 1, 6, True, 2, ended.partitions),
        EndedTransaction("payments", PRODUCER, 5, True, 2, ended.partitions),
    ):
        assert not on_marked(driver.shard, other, other.partitions)
        assert not driver.complete(other).records
    assert on_marked(driver.shard, ended, ended.partitions)
    driver.complete(ended)
    driver.add("t-0", epoch=6)
    assert not on_marked(driver.shard, ended, ended.partitions), "of the one before"
    assert not driver.complete(ended).records
    driver.end("abort", epoch=6)
    assert not on_marked(driver.shard, ended, ended.partitions)
    assert driver.at() == f"PrepareAbort {PRODUCER}/7"


def test_a_new_coordinator_tells_every_partition_again(driver: TransactionDriver) -> None:
    driver.end("commit")
    (ended,) = driver.shard.take_ready_to_mark()
    on_marked(driver.shard, ended, partitions("t-0", "t-1"))
    driver.reload()
    assert driver.times_ready == 2
    assert not on_marked(driver.shard, ended, partitions("u-0")), "the old one's news"
    assert driver.mark() == [ended]
    assert driver.at() == f"CompleteCommit {PRODUCER}/6"
    driver.reload()
    assert driver.shard.take_ready_to_mark() == []


def test_a_decision_that_is_lost_is_as_if_it_had_not_been(driver: TransactionDriver) -> None:
    driver.holds = True
    driver.end("commit")
    driver.reload()
    assert driver.shard.take_ready_to_mark() == []
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.holds = False
    assert driver.end("abort") == f"{PRODUCER}/6"


def test_a_completion_that_is_lost_comes_again(driver: TransactionDriver) -> None:
    driver.end("abort")
    driver.holds = True
    driver.mark()
    assert driver.at() == f"CompleteAbort {PRODUCER}/6"
    driver.reload()
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"
    driver.holds = False
    driver.mark()
    assert driver.at() == f"CompleteAbort {PRODUCER}/6"


def test_while_the_log_takes_no_writes_markers_are_written_and_completion_waits(
    driver: TransactionDriver,
) -> None:
    driver.end("commit")
    (ended,) = driver.shard.take_ready_to_mark()
    assert on_marked(driver.shard, ended, ended.partitions)
    driver.given(a_transaction(TransactionState.ONGOING), "orders")
    driver.end("commit", name="orders")
    driver.resume()
    assert driver.at() == f"CompleteCommit {PRODUCER}/6"
    assert driver.at("orders") == f"PrepareCommit {PRODUCER}/6", "of which nobody has a marker"


def test_the_next_transaction_may_be_decided_before_the_completion_is_in_the_log(
    driver: TransactionDriver,
) -> None:
    driver.end("commit")
    driver.holds = True
    driver.mark()
    driver.add("t-0", epoch=6)
    driver.end("abort", epoch=6)
    assert driver.shard.take_ready_to_mark() == []
    driver.commit(2)
    assert driver.shard.take_ready_to_mark() == []
    driver.commit(1)
    assert [(each.committed, each.producer_epoch) for each in driver.mark()] == [(False, 7)]
    driver.commit()
    assert driver.at() == f"CompleteAbort {PRODUCER}/7"


def test_what_is_committed_is_known_beneath_what_is_decided(driver: TransactionDriver) -> None:
    def committed() -> Transaction | None:
        return driver.shard.committed("payments")

    before = committed()
    driver.holds = True
    driver.end("commit")
    driver.init(name="orders")
    assert committed() == before
    assert driver.shard.committed("orders") is None
    driver.commit(1)
    assert committed() == driver.now()
    driver.commit()
    assert driver.shard.committed("orders") == driver.now("orders")


def _described(driver: TransactionDriver) -> dict[str, list[int]]:
    description = describe(driver.shard, "payments")
    return {topic.name: list(topic.partitions) for topic in description.topics}
