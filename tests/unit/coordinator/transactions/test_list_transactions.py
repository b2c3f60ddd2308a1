"""DescribeTransactions and ListTransactions: what an administrator sees, and every filter."""

from __future__ import annotations

import pytest
from transaction_driver import (
    PRODUCER,
    STATES,
    TIMEOUT_MS,
    TransactionDriver,
    a_transaction,
)

from barnabas.coordinator.transactions.core.describe import describe
from barnabas.coordinator.transactions.core.list_transactions import (
    TransactionFilter,
    list_transactions,
    unknown_states,
)
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import ListTransactionsRequest, TransactionDescription


def list_of(driver: TransactionDriver, **asked: object) -> list[str]:
    request = ListTransactionsRequest(**{"duration_ms": -1} | asked)  # type: ignore[arg-type]
    wanted = TransactionFilter.of(request, driver.clock.now_ms())
    return sorted(each.transactional_id for each in list_transactions(driver.shard, wanted))


@pytest.fixture
def driver() -> TransactionDriver:
    """One id in each state, named for it; the longer ago their producers, the higher their ids."""
    driver = TransactionDriver()
    now_ms = driver.clock.now_ms()
    for number, state in enumerate(STATES):
        transaction = a_transaction(state, now_ms=now_ms - 1_000 * number)
        driver.given(transaction, f"{state}-{number}")
    return driver


ALL = [
    "CompleteAbort-5",
    "CompleteCommit-4",
    "Empty-0",
    "Ongoing-1",
    "PrepareAbort-3",
    "PrepareCommit-2",
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ALL),
        ({"states": ["Ongoing"]}, ["Ongoing-1"]),
        ({"states": ["Ongoing", "Empty"]}, ["Empty-0", "Ongoing-1"]),
        ({"states": ["Ongoing", "Broken"]}, ["Ongoing-1"]),
        ({"states": ["Broken"]}, []),
        ({"states": ["ongoing"]}, []),
        ({"states": ["Dead", "PrepareEpochFence"]}, []),
        ({"producer_ids": [PRODUCER]}, ALL),
        ({"producer_ids": [PRODUCER + 1]}, []),
        ({"producer_ids": [PRODUCER + 1, PRODUCER]}, ALL),
        # The Empty one never began: its start is -1, which is very long ago.
        ({"duration_ms": 0}, ALL),
        ({"duration_ms": 1_000}, [each for each in ALL if each != "Ongoing-1"]),
        ({"duration_ms": 999}, ALL),
        ({"duration_ms": 5_000}, ["Empty-0"]),
        ({"duration_ms": -5}, ALL),
        ({"transactional_id_pattern": ""}, ALL),
        ({"transactional_id_pattern": "Complete.*"}, ALL[:2]),
        ({"transactional_id_pattern": "Complete"}, []),
        ({"transactional_id_pattern": ".*-[0-1]"}, ["Empty-0", "Ongoing-1"]),
        ({"states": ["Ongoing", "CompleteAbort"], "duration_ms": 1_000}, ["CompleteAbort-5"]),
        ({"states": ["Ongoing"], "producer_ids": [PRODUCER + 1]}, []),
        (
            {
                "states": ["Ongoing", "PrepareAbort"],
                "producer_ids": [PRODUCER],
                "duration_ms": 1_500,
                "transactional_id_pattern": "P.*",
            },
            ["PrepareAbort-3"],
        ),
    ],
)
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_filters(
    driver: TransactionDriver, asked: dict[str, object], found: list[str], is_reloaded: bool
) -> None:
    if is_reloaded:
        driver.reload()
    assert list_of(driver, **asked) == found


def test_an_open_transaction_is_as_old_as_its_start(driver: TransactionDriver) -> None:
    driver.clock.advance(1)
    assert "Ongoing-1" in list_of(driver, duration_ms=1_000)


@pytest.mark.parametrize("pattern", ["(", "*", "a{2,1}", "[z-a]", r"(?=look)", r"(a)\1"])
def test_patterns_that_are_none(driver: TransactionDriver, pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        list_of(driver, transactional_id_pattern=pattern)
    assert refused.value.code is ErrorCode.invalid_regular_expression


def test_states_that_are_none_are_named() -> None:
    request = ListTransactionsRequest(states=["Ongoing", "Broken", "Dead", "PrepareEpochFence", "ongoing"])
    assert unknown_states(request) == ["Broken", "ongoing"]


def test_each_is_told_with_its_producer_and_state(driver: TransactionDriver) -> None:
    (listed,) = list_transactions(
        driver.shard, TransactionFilter.of(ListTransactionsRequest(states=["PrepareCommit"]), 10**15)
    )
    assert (listed.transactional_id, listed.producer_id, listed.state) == (
        "PrepareCommit-2",
        PRODUCER,
        "PrepareCommit",
    )


def test_only_what_is_committed_is_listed() -> None:
    driver = TransactionDriver(TransactionSettings(transactional_id_expiration_ms=1_000))
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()), "old")
    driver.holds = True
    driver.skip(driver.config.transaction_remove_expired_transaction_cleanup_interval_ms)
    driver.init(name="new")
    assert list(driver.shard.transactions) == ["new"]
    assert list_of(driver) == ["old"], "as the log still has it"
    driver.commit()
    assert list_of(driver) == ["new"]


# -- describing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_every_state_is_described(state: TransactionState, is_reloaded: bool) -> None:
    driver = TransactionDriver()
    driver.given(a_transaction(state, now_ms=1_000))
    if is_reloaded:
        driver.reload()
    said = describe(driver.shard, "payments")
    assert (said.error_code, said.transactional_id, said.state) == (0, "payments", state)
    assert (said.producer_id, said.producer_epoch) == (PRODUCER, 5)
    assert said.transaction_timeout_ms == TIMEOUT_MS
    assert said.transaction_start_time_ms == (-1 if state is TransactionState.EMPTY else 1_000)
    is_open = state is TransactionState.ONGOING or state in PREPARED
    assert [(topic.name, list(topic.partitions)) for topic in said.topics] == (
        [("t", [0])] if is_open else []
    )


def test_partitions_are_in_order() -> None:
    driver = TransactionDriver()
    driver.given(a_transaction(TransactionState.ONGOING))
    driver.add("t-10", "b-2", "t-9", "b-1")
    said = describe(driver.shard, "payments")
    assert [(topic.name, list(topic.partitions)) for topic in said.topics] == [
        ("b", [1, 2]),
        ("t", [0, 9, 10]),
    ]


def test_what_nobody_knows() -> None:
    driver = TransactionDriver()
    assert describe(driver.shard, "payments") == TransactionDescription(
        error_code=ErrorCode.transactional_id_not_found, transactional_id="payments"
    )
    assert describe(driver.shard, "").error_code == ErrorCode.invalid_request


def test_only_what_is_committed_is_described() -> None:
    driver = TransactionDriver(TransactionSettings(transactional_id_expiration_ms=1_000))
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    driver.holds = True
    driver.add("t-0")
    assert describe(driver.shard, "payments").state == "Empty"
    driver.commit()
    assert describe(driver.shard, "payments").state == "Ongoing"


def test_an_id_is_described_until_it_is_forgotten() -> None:
    driver = TransactionDriver(TransactionSettings(transactional_id_expiration_ms=1_000))
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    driver.holds = True
    driver.skip(driver.config.transaction_remove_expired_transaction_cleanup_interval_ms)
    assert describe(driver.shard, "payments").state == "Empty"
    driver.commit()
    assert describe(driver.shard, "payments").error_code == ErrorCode.transactional_id_not_found
