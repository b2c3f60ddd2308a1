"""Ends that the broker starts: time-outs, and what their clients hear; when it looks for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transaction_driver import (
    NEW_PRODUCER,
    PRODUCER,
    STATES,
    TIMEOUT_MS,
    TransactionDriver,
    a_transaction,
    partitions,
)

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.states import TransactionState
from barnabas.coordinator.transactions.core.transaction import NO_TIMEOUT_MS

ONGOING = TransactionState.ONGOING
INTERVAL_MS = 10_000
OFTEN = TransactionSettings(transaction_abort_timed_out_transaction_cleanup_interval_ms=1)
"""Looks every millisecond."""


def begun_now(driver: TransactionDriver, epoch: int = 5, name: str = "payments") -> None:
    driver.given(a_transaction(ONGOING, epoch, now_ms=driver.clock.now_ms(), version=driver.version), name)


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_not_at_its_time_but_a_millisecond_later(version: int, is_reloaded: bool) -> None:
    driver = TransactionDriver(OFTEN, version=version)
    begun_now(driver)
    if is_reloaded:
        driver.reload()
    driver.skip(TIMEOUT_MS)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.skip(1)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"
    (ended,) = driver.mark()
    assert (ended.producer_id, ended.producer_epoch, ended.committed) == (PRODUCER, 6, False)
    assert ended.partitions == partitions("t-0")
    assert ended.transaction_version == (2 if version == 2 else 0)
    assert driver.at() == f"CompleteAbort {PRODUCER}/6"
    assert driver.notes == ["a transaction timed out and is aborted"]


def test_a_clock_that_was_ahead_holds_nobody_back() -> None:
    """By the time of day in the log it has not begun yet; but the coordinator has seen it open for as long."""
    driver = TransactionDriver(OFTEN)
    ahead_ms = driver.clock.now_ms() + 3_600_000
    driver.given(a_transaction(ONGOING, 5, now_ms=ahead_ms, version=driver.version), "payments")
    driver.skip(1)
    driver.skip(TIMEOUT_MS)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    assert driver.add("t-1") == "NONE"
    driver.skip(1)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"


def test_the_next_transaction_has_its_own_time() -> None:
    driver = TransactionDriver(OFTEN, version=0)
    begun_now(driver)
    driver.skip(1)
    driver.skip(TIMEOUT_MS - 1)
    driver.end("commit", version=0)
    driver.mark()
    begun_now(driver)  # under the same epoch, before anybody has looked again
    driver.skip(TIMEOUT_MS)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.skip(1)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"


def test_more_partitions_give_no_more_time() -> None:
    driver = TransactionDriver(OFTEN)
    begun_now(driver)
    driver.skip(TIMEOUT_MS - 1)
    assert driver.add("t-1") == "NONE"
    driver.skip(2)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"


@pytest.mark.parametrize("state", [state for state in STATES if state is not ONGOING])
def test_only_what_is_open_times_out(state: TransactionState) -> None:
    driver = TransactionDriver(OFTEN)
    driver.given(a_transaction(state, now_ms=driver.clock.now_ms()))
    driver.skip(10 * TIMEOUT_MS)
    assert driver.at() == f"{state} {PRODUCER}/5"


def test_what_another_system_decides_never_times_out() -> None:
    driver = TransactionDriver()
    begun_now(driver)
    driver.given(replace(driver.now(), timeout_ms=NO_TIMEOUT_MS))
    driver.skip(NO_TIMEOUT_MS + 1)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.given(replace(driver.now(), timeout_ms=NO_TIMEOUT_MS - 1))
    driver.skip(INTERVAL_MS)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"


def test_its_client_by_the_old_rules() -> None:
    """Fenced: nobody else is behind the new epoch."""
    driver = TransactionDriver(version=1)
    begun_now(driver)
    driver.advance(TIMEOUT_MS + INTERVAL_MS)
    driver.mark()
    for result in ("commit", "abort"):
        assert driver.end(result, version=0) == "PRODUCER_FENCED"
    assert driver.add(version=0) == "PRODUCER_FENCED"
    assert driver.init(PRODUCER, 5) == "PRODUCER_FENCED"
    assert driver.init() == f"{PRODUCER}/7"


def test_its_client_by_the_rules_of_version_2() -> None:
    """An abort has been done, and gives it the epoch to go on with; a commit has not."""
    driver = TransactionDriver()
    begun_now(driver)
    driver.advance(TIMEOUT_MS + INTERVAL_MS)
    assert driver.end("commit") == "CONCURRENT_TRANSACTIONS"
    driver.mark()
    assert driver.end("commit") == "INVALID_TXN_STATE"
    assert driver.end("abort") == f"{PRODUCER}/6"
    assert driver.add(epoch=5) == "PRODUCER_FENCED"
    assert driver.add(epoch=6) == "NONE"


@pytest.mark.parametrize(
    ("version", "epoch", "completed"),
    [
        (0, 32_765, f"{PRODUCER}/32766"),
        (0, 32_766, f"{PRODUCER}/32767"),
        (2, 32_765, f"{PRODUCER}/32766"),
        (2, 32_766, f"{NEW_PRODUCER}/0"),
        (2, 32_767, f"{NEW_PRODUCER}/0"),
    ],
)
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_epochs_are_used_up(version: int, epoch: int, completed: str, is_reloaded: bool) -> None:
    driver = TransactionDriver(version=version)
    begun_now(driver, epoch)
    driver.advance(TIMEOUT_MS + INTERVAL_MS)
    if is_reloaded:
        driver.reload()
    driver.mark()
    assert driver.at() == f"CompleteAbort {completed}"
    assert driver.init() in (f"{PRODUCER}/{epoch + 2}", f"{NEW_PRODUCER}/0", f"{NEW_PRODUCER}/1")


def test_without_a_producer_id_at_hand_it_is_tried_again_and_others_are_not_held_up() -> None:
    driver = TransactionDriver()
    begun_now(driver, 32_766, "a")
    begun_now(driver, 5, "b")
    driver.has_producer_ids = False
    driver.advance(TIMEOUT_MS + INTERVAL_MS)
    assert driver.at("a") == f"Ongoing {PRODUCER}/32766"
    assert driver.at("b") == f"PrepareAbort {PRODUCER}/6"
    assert driver.notes == [
        "a transaction that timed out is not aborted yet",
        "a transaction timed out and is aborted",
    ]
    driver.has_producer_ids = True
    driver.advance(INTERVAL_MS)
    assert driver.at("a") == f"PrepareAbort {PRODUCER}/32767"


def look_until_all_are_aborted(driver: TransactionDriver) -> list[int]:
    """Every millisecond; how many were aborted at a time."""
    aborted = []
    while driver.shard.ongoing and len(aborted) < 20:
        driver.look_at_clock()
        aborted.append(driver.decision.transactions_timed_out)
        driver.clock.advance(1)
    return aborted


def test_many_are_aborted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMED_OUT_IDS_AT_ONCE", 3)
    driver = TransactionDriver()
    for number in range(7):
        begun_now(driver, name=f"id-{number}")
    driver.clock.advance(TIMEOUT_MS + INTERVAL_MS)
    assert look_until_all_are_aborted(driver) == [3, 3, 1]


def test_those_that_cannot_be_aborted_yet_do_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMED_OUT_IDS_AT_ONCE", 3)
    driver = TransactionDriver()
    for number in range(7):
        begun_now(driver, 32_766 if number < 4 else 5, f"id-{number}")
    driver.has_producer_ids = False
    driver.clock.advance(TIMEOUT_MS + INTERVAL_MS)
    assert look_until_all_are_aborted(driver)[:3] == [0, 2, 1]
    assert list(driver.shard.ongoing) == [f"id-{number}" for number in range(4)]
    assert len(driver.notes) == 7, "nobody looks again before the next interval"
    driver.has_producer_ids = True
    driver.clock.advance(INTERVAL_MS)
    assert look_until_all_are_aborted(driver) == [3, 1]


def test_what_ends_before_its_turn_has_not_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMED_OUT_IDS_AT_ONCE", 1)
    driver = TransactionDriver(version=1)
    for name in ("a", "b", "c", "d"):
        begun_now(driver, name=name)
    driver.skip(TIMEOUT_MS + INTERVAL_MS)
    assert driver.at("a") == f"PrepareAbort {PRODUCER}/6"
    assert driver.end("commit", version=0, name="b") == "-1/-1"
    driver.shard.replay(TransactionRecord("c", None))
    begun_now(driver, 7, "d")
    look_until_all_are_aborted(driver)
    assert driver.at("b") == f"PrepareCommit {PRODUCER}/5"
    assert driver.at("d") == f"Ongoing {PRODUCER}/7", "another one, which has its own time"
    assert "c" not in driver.shard.transactions


def test_it_is_counted() -> None:
    driver = TransactionDriver(OFTEN)
    begun_now(driver)
    driver.skip(TIMEOUT_MS + 1)
    decision = driver.decision
    assert (decision.transactions_timed_out, decision.transactions_aborted) == (1, 1)
    assert decision.transactions_committed == 0


# -- when it looks --------------------------------------------------------------------------------------------------


def test_nobody_is_woken_for_nothing() -> None:
    driver = TransactionDriver()
    assert driver.shard.next_deadline_ms() is None
    driver.given(a_transaction(TransactionState.EMPTY, now_ms=driver.clock.now_ms()))
    assert driver.shard.next_deadline_ms() == 3_600_000, "for its expiry"
    begun_now(driver)
    assert driver.shard.next_deadline_ms() == INTERVAL_MS
    driver.advance(INTERVAL_MS)
    assert driver.shard.next_deadline_ms() == 2 * INTERVAL_MS
    driver.end("commit")
    assert driver.shard.next_deadline_ms() == 3_600_000


def test_after_a_long_time_without_transactions_it_looks_at_once() -> None:
    driver = TransactionDriver()
    driver.clock.advance(86_400_000)
    begun_now(driver)
    driver.look_at_clock()
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    assert driver.shard.next_deadline_ms() == 86_400_000 + INTERVAL_MS


def test_a_new_coordinator_gives_an_interval() -> None:
    driver = TransactionDriver()
    begun_now(driver)
    driver.clock.advance(10 * TIMEOUT_MS)
    driver.reload()
    driver.look_at_clock()
    driver.advance(INTERVAL_MS - 1)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.advance(1)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"


def test_a_log_that_took_no_writes_gives_another_interval() -> None:
    """No client could end anything in that time."""
    driver = TransactionDriver()
    begun_now(driver)
    driver.clock.advance(10 * TIMEOUT_MS)
    driver.resume()
    driver.look_at_clock()
    assert driver.end("commit") == f"{PRODUCER}/6"


def test_a_clock_that_was_moved_gives_clients_the_time_to_end_what_they_have() -> None:
    driver = TransactionDriver()
    begun_now(driver)
    jumped_ms = 10 * TIMEOUT_MS
    driver.clock.advance(jumped_ms)
    driver.shard.on_jump(jumped_ms, jumped_ms)
    driver.look_at_clock()
    driver.advance(limits.AFTER_JUMP_MS - 1)
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    driver.advance(1)
    assert driver.at() == f"PrepareAbort {PRODUCER}/6"
