"""Transactional ids that nobody uses are forgotten; those that something still depends on are not."""

from __future__ import annotations

import pytest
from transaction_driver import ID, NEW_PRODUCER, PRODUCER, STATES, TransactionDriver, a_transaction

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.states import COMPLETED, TransactionState

EXPIRES = {TransactionState.EMPTY, *COMPLETED}
INTERVAL_MS = 3_600_000
OFTEN = TransactionSettings(
    transactional_id_expiration_ms=5_000, transaction_remove_expired_transaction_cleanup_interval_ms=1
)


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_at_its_time_and_not_before(state: TransactionState, is_reloaded: bool) -> None:
    driver = TransactionDriver(OFTEN)
    driver.given(a_transaction(state, now_ms=driver.clock.now_ms()))
    if is_reloaded:
        driver.reload()
    driver.skip(4_999)
    assert ID in driver.shard.transactions
    driver.skip(1)
    assert (ID not in driver.shard.transactions) == (state in EXPIRES)
    if state in EXPIRES:
        key, value = driver.log[-1]
        assert (key, value) == (b"\0\0\0\x08payments", None)
    driver.reload()
    assert (ID not in driver.shard.transactions) == (state in EXPIRES)


def test_what_is_open_or_not_known_everywhere_stays_however_old_it_is() -> None:
    driver = TransactionDriver()
    driver.given(a_transaction(TransactionState.PREPARE_COMMIT, now_ms=driver.clock.now_ms()))
    driver.advance(2 * driver.config.transactional_id_expiration_ms)
    driver.mark()
    assert driver.at() == f"CompleteCommit {PRODUCER}/5"
    driver.advance(driver.config.transactional_id_expiration_ms - INTERVAL_MS)
    assert ID in driver.shard.transactions, "its completion was its last use"
    driver.advance(INTERVAL_MS)
    assert ID not in driver.shard.transactions


def test_afterwards_nobody_knows_it() -> None:
    driver = TransactionDriver(OFTEN)
    driver.given(a_transaction(TransactionState.COMPLETE_COMMIT, now_ms=driver.clock.now_ms()))
    driver.skip(5_000)
    assert driver.end("commit", epoch=4) == "INVALID_PRODUCER_ID_MAPPING"
    assert driver.add() == "INVALID_PRODUCER_ID_MAPPING"
    assert driver.add(verify=True) == "INVALID_PRODUCER_ID_MAPPING"
    assert driver.init(PRODUCER, 5) == f"{NEW_PRODUCER}/0"


def test_a_client_that_comes_while_the_tombstone_is_on_its_way() -> None:
    driver = TransactionDriver(OFTEN)
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    driver.holds = True
    driver.skip(5_000)
    driver.init()
    driver.commit(1)
    assert driver.answer(1) is None
    driver.commit(1)
    assert driver.answer(1) == f"{NEW_PRODUCER}/0"
    driver.reload()
    assert driver.at() == f"Empty {NEW_PRODUCER}/0"


def test_it_looks_from_time_to_time() -> None:
    driver = TransactionDriver()
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    driver.clock.advance(driver.config.transactional_id_expiration_ms)
    driver.resume()
    driver.advance(INTERVAL_MS - 1)
    assert ID in driver.shard.transactions
    driver.advance(1)
    assert ID not in driver.shard.transactions


def test_a_clock_that_was_moved_is_a_reason_to_look() -> None:
    driver = TransactionDriver()
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    jumped_ms = driver.config.transactional_id_expiration_ms
    driver.resume()
    driver.clock.advance(jumped_ms)
    driver.shard.on_jump(jumped_ms, jumped_ms)
    driver.look_at_clock()
    assert ID not in driver.shard.transactions


def test_many_are_forgotten_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRED_IDS_AT_ONCE", 3)
    driver = TransactionDriver(OFTEN)
    for number in range(7):
        transaction = a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms())
        driver.given(transaction, f"id-{number}")
    driver.clock.advance(5_000)
    expired = []
    while driver.shard.transactions:
        driver.look_at_clock()
        expired.append(driver.decision.ids_expired)
        driver.clock.advance(1)
    assert expired == [3, 3, 1]


def test_many_that_are_exactly_some_do_not_end_in_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRED_IDS_AT_ONCE", 2)
    driver = TransactionDriver(
        TransactionSettings(
            transactional_id_expiration_ms=5_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
        )
    )
    for name, kept in (("a", False), ("b", False), ("c", True)):
        state = TransactionState.PREPARE_ABORT if kept else TransactionState.EMPTY
        driver.given(a_transaction(state, now_ms=driver.clock.now_ms()), name)
    driver.advance(5_000)
    assert list(driver.shard.transactions) == ["c"]
    driver.advance(1)
    assert driver.shard.next_deadline_ms() == 6_001
