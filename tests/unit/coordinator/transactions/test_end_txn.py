"""EndTxn by the rules of versions 0 and 1, and of version 2: every state and epoch, what is sent again, new ids."""

from __future__ import annotations

import pytest
from transaction_driver import (
    NEW_PRODUCER,
    PRODUCER,
    STATES,
    TransactionDriver,
    a_transaction,
    partitions,
)

from barnabas.coordinator.transactions.core.states import TransactionState

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

EXHAUSTED = 32_766
DECIDED_0 = "-1/-1"
"""The answer by the rules of versions 0 and 1 when all is well."""

pytestmark = pytest.mark.parametrize("is_reloaded", [False, True], ids=["", "after a reload"])


def known_in(
    state: TransactionState, epoch: int = 5, *, is_reloaded: bool, version: int = 2, **more: int
) -> TransactionDriver:
    driver = TransactionDriver(version=version)
    driver.given(a_transaction(state, epoch, now_ms=driver.clock.now_ms(), version=version, **more))
    driver.clock.advance(1_000)
    if is_reloaded:
        driver.reload()
    return driver


# -- versions 0 and 1 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        (ONGOING, DECIDED_0, DECIDED_0),
        (PREPARE_COMMIT, "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        (PREPARE_ABORT, "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        (COMPLETE_COMMIT, DECIDED_0, "INVALID_TXN_STATE"),
        (COMPLETE_ABORT, "INVALID_TXN_STATE", DECIDED_0),
    ],
)
def test_every_state_by_the_old_rules(
    state: TransactionState, commit: str, abort: str, level: int, is_reloaded: bool
) -> None:
    for result, answer in (("commit", commit), ("abort", abort)):
        driver = known_in(state, is_reloaded=is_reloaded, version=level)
        before = driver.now()
        assert driver.end(result, version=0) == answer
        if state is not ONGOING:
            assert not driver.written()
            continue
        after = driver.now()
        assert driver.at() == f"{PREPARE_COMMIT if result == 'commit' else PREPARE_ABORT} {PRODUCER}/5"
        assert (after.partitions, after.start_ms) == (before.partitions, before.start_ms)
        assert (after.client_version, after.next_producer_id) == (0, -1)
        assert after.last_update_ms == driver.clock.now_ms()


@pytest.mark.parametrize("result", ["commit", "abort"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (PRODUCER + 1, 5, "INVALID_PRODUCER_ID_MAPPING"),
        (PRODUCER + 1, 4, "INVALID_PRODUCER_ID_MAPPING"),
        (PRODUCER, 4, "PRODUCER_FENCED"),
        (PRODUCER, 6, "PRODUCER_FENCED"),
    ],
)
def test_somebody_elses_by_the_old_rules(
    state: TransactionState, result: str, producer_id: int, epoch: int, code: str, is_reloaded: bool
) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    assert driver.end(result, producer_id=producer_id, epoch=epoch, version=0) == code
    assert not driver.written()


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_a_lost_answer_by_the_old_rules(result: str, is_reloaded: bool) -> None:
    """While the partitions are told, it is too early; afterwards the answer is the same, under the same epoch."""
    driver = known_in(ONGOING, is_reloaded=False, version=0)
    assert driver.end(result, version=0) == DECIDED_0
    assert driver.end(result, version=0) == "CONCURRENT_TRANSACTIONS"
    driver.mark()
    if is_reloaded:
        driver.reload()
    assert driver.end(result, version=0) == DECIDED_0
    assert not driver.written()
    assert driver.end({"commit": "abort", "abort": "commit"}[result], version=0) == "INVALID_TXN_STATE"


# -- version 2 ------------------------------------------------------------------------------------------------------

NEXT = f"{PRODUCER}/6"
"""The answer that gives the next epoch."""
SAME = f"{PRODUCER}/5"
"""The answer to what was sent again, of which the epoch is known by now."""
FENCED, STATE, LATER = "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"

CELLS = [
    # state, the client's epoch (5 is stored), answers to commit and abort
    (EMPTY, 4, FENCED, FENCED),
    (EMPTY, 5, STATE, NEXT),
    (EMPTY, 6, FENCED, FENCED),
    (ONGOING, 4, FENCED, FENCED),
    (ONGOING, 5, NEXT, NEXT),
    (ONGOING, 6, FENCED, FENCED),
    (PREPARE_COMMIT, 3, LATER, LATER),
    (PREPARE_COMMIT, 4, LATER, LATER),
    (PREPARE_COMMIT, 5, LATER, LATER),
    (PREPARE_COMMIT, 6, LATER, LATER),
    (PREPARE_ABORT, 3, LATER, LATER),
    (PREPARE_ABORT, 4, LATER, LATER),
    (PREPARE_ABORT, 5, LATER, LATER),
    (PREPARE_ABORT, 6, LATER, LATER),
    (COMPLETE_COMMIT, 3, FENCED, FENCED),
    (COMPLETE_COMMIT, 4, SAME, STATE),
    (COMPLETE_COMMIT, 5, STATE, NEXT),
    (COMPLETE_COMMIT, 6, FENCED, FENCED),
    (COMPLETE_ABORT, 3, FENCED, FENCED),
    (COMPLETE_ABORT, 4, STATE, SAME),
    (COMPLETE_ABORT, 5, STATE, NEXT),
    (COMPLETE_ABORT, 6, FENCED, FENCED),
]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("state", "epoch", "commit", "abort"), CELLS)
def test_every_state_and_epoch(
    state: TransactionState, epoch: int, commit: str, abort: str, level: int, is_reloaded: bool
) -> None:
    for result, answer in (("commit", commit), ("abort", abort)):
        driver = known_in(state, is_reloaded=is_reloaded, version=level)
        before, now_ms = driver.now(), driver.clock.now_ms()
        assert driver.end(result, epoch=epoch) == answer
        if answer != NEXT:
            assert not driver.written()
            continue
        after = driver.now()
        assert driver.at() == f"{PREPARE_COMMIT if result == 'commit' else PREPARE_ABORT} {NEXT}"
        assert after.last_producer_epoch == 5
        assert after.partitions == before.partitions
        assert after.start_ms == (before.start_ms if state is ONGOING else now_ms)
        assert (after.client_version, after.next_producer_id) == (2, -1)


@pytest.mark.parametrize("result", ["commit", "abort"])
@pytest.mark.parametrize(("state", "epoch", "_commit", "_abort"), CELLS)
def test_another_producers_id(
    state: TransactionState, epoch: int, _commit: str, _abort: str, result: str, is_reloaded: bool
) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    is_decided = state in (PREPARE_COMMIT, PREPARE_ABORT)
    answer = LATER if is_decided else "INVALID_PRODUCER_ID_MAPPING"
    assert driver.end(result, producer_id=PRODUCER + 1, epoch=epoch) == answer
    assert not driver.written()


@pytest.mark.parametrize("version", [0, 2])
def test_nobody_knows_the_id(version: int, is_reloaded: bool) -> None:
    driver = TransactionDriver()
    if is_reloaded:
        driver.reload()
    assert driver.end("abort", version=version) == "INVALID_PRODUCER_ID_MAPPING"
    assert driver.end("commit", name="", version=version) == "INVALID_REQUEST"


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_a_lost_answer(result: str, is_reloaded: bool) -> None:
    driver = known_in(ONGOING, is_reloaded=False)
    other = {"commit": "abort", "abort": "commit"}[result]
    assert driver.end(result) == NEXT
    if is_reloaded:
        driver.reload()
    assert driver.end(result) == LATER
    assert driver.end(other) == LATER
    driver.mark()
    if is_reloaded:
        driver.reload()
    assert driver.end(result) == NEXT, "what the lost answer said"
    assert not driver.written()
    assert driver.end(other) == STATE


def test_nothing_was_written_to(is_reloaded: bool) -> None:
    """An empty abort completes without a marker, and is an end like others for who sends it again (KAFKA-18401)."""
    driver = known_in(EMPTY, is_reloaded=is_reloaded)
    assert driver.end("commit") == STATE
    assert driver.end("abort") == NEXT
    assert driver.end("abort") == LATER
    (ended,) = driver.mark()
    assert (ended.partitions, ended.producer_epoch, ended.committed) == (frozenset(), 6, False)
    assert driver.at() == f"CompleteAbort {NEXT}"
    assert driver.end("abort") == NEXT
    assert driver.end("abort", epoch=6) == f"{PRODUCER}/7"


def test_an_empty_abort_while_the_commit_is_being_told(is_reloaded: bool) -> None:
    """Its client has heard of the commit and has the epoch that follows: it is early, not fenced (KAFKA-18464)."""
    driver = known_in(ONGOING, is_reloaded=False)
    assert driver.end("commit") == NEXT
    if is_reloaded:
        driver.reload()
    assert driver.end("abort", epoch=6) == LATER
    driver.mark()
    assert driver.end("abort", epoch=6) == f"{PRODUCER}/7"


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_epochs_are_used_up(result: str, is_reloaded: bool) -> None:
    driver = known_in(ONGOING, EXHAUSTED, is_reloaded=is_reloaded)
    assert driver.end(result, epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0"
    after = driver.now()
    assert (after.producer_id, after.producer_epoch) == (PRODUCER, 32_767), "what the markers carry"
    assert (after.next_producer_id, after.last_producer_epoch) == (NEW_PRODUCER, EXHAUSTED)
    if is_reloaded:
        driver.reload()
    assert driver.end(result, epoch=EXHAUSTED) == LATER
    assert driver.add(producer_id=NEW_PRODUCER, epoch=0) == LATER, "its client knows the new id already"
    assert driver.init(NEW_PRODUCER, 0) == LATER
    assert driver.end("abort", producer_id=NEW_PRODUCER, epoch=0) == LATER
    (*_, ended) = driver.mark()
    assert (ended.producer_id, ended.producer_epoch) == (PRODUCER, 32_767)
    if is_reloaded:
        driver.reload()
    assert driver.at() == f"Complete{result.capitalize()} {NEW_PRODUCER}/0"
    assert driver.now().next_producer_id == -1
    assert driver.now().last_producer_epoch == (-1 if is_reloaded else EXHAUSTED)
    assert driver.end(result, epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0", "sent again, over the old id"
    assert driver.end({"commit": "abort", "abort": "commit"}[result], epoch=EXHAUSTED) == STATE
    assert not driver.written()
    assert driver.drawn == 1
    for epoch in (0, EXHAUSTED - 1):
        assert driver.end(result, epoch=epoch) == "INVALID_PRODUCER_ID_MAPPING"
    assert driver.add(producer_id=NEW_PRODUCER, epoch=0) == "NONE"
    assert driver.end("commit", producer_id=NEW_PRODUCER, epoch=0) == f"{NEW_PRODUCER}/1"


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_epochs_are_used_up_by_an_empty_abort(state: TransactionState, is_reloaded: bool) -> None:
    driver = known_in(state, EXHAUSTED, is_reloaded=is_reloaded)
    assert driver.end("abort", epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0"
    driver.mark()
    assert driver.at() == f"CompleteAbort {NEW_PRODUCER}/0"


def test_the_epoch_before_the_last_leaves_one(is_reloaded: bool) -> None:
    driver = known_in(ONGOING, EXHAUSTED - 1, is_reloaded=is_reloaded)
    assert driver.end("commit", epoch=EXHAUSTED - 1) == f"{PRODUCER}/{EXHAUSTED}"
    assert driver.drawn == 0


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_no_producer_id_is_at_hand(result: str, is_reloaded: bool) -> None:
    driver = known_in(ONGOING, EXHAUSTED, is_reloaded=is_reloaded)
    driver.has_producer_ids = False
    assert driver.end(result, epoch=EXHAUSTED) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert not driver.written()
    driver.has_producer_ids = True
    assert driver.end(result, epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0"


def test_an_epoch_that_older_versions_could_get_to_is_left_by_aborting(is_reloaded: bool) -> None:
    driver = known_in(ONGOING, 32_767, is_reloaded=is_reloaded)
    assert driver.end("commit", epoch=32_767) == "UNKNOWN_SERVER_ERROR"
    assert not driver.written()
    assert driver.end("abort", epoch=32_767) == f"{NEW_PRODUCER}/0"
    assert driver.at() == f"PrepareAbort {PRODUCER}/32767"
    driver.mark()
    assert driver.at() == f"CompleteAbort {NEW_PRODUCER}/0"


def test_version_2_has_no_place_while_it_is_off(is_reloaded: bool) -> None:
    driver = known_in(ONGOING, is_reloaded=is_reloaded, version=0)
    assert driver.end("commit", version=2) == "UNSUPPORTED_VERSION"
    assert not driver.written()
    assert driver.end("commit", version=0) == DECIDED_0


def test_a_decision_of_version_2_goes_on_after_a_downgrade(is_reloaded: bool) -> None:
    driver = known_in(ONGOING, EXHAUSTED, is_reloaded=False)
    assert driver.end("commit", epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0"
    driver.version = 0
    if is_reloaded:
        driver.reload()
    driver.mark()
    assert driver.at() == f"CompleteCommit {NEW_PRODUCER}/0"
    assert driver.end("commit", epoch=EXHAUSTED) == f"{NEW_PRODUCER}/0"


@pytest.mark.parametrize(("result", "state"), [("commit", "CompleteCommit"), ("abort", "CompleteAbort")])
def test_what_version_2_began_it_also_ends_after_a_downgrade(
    result: str, state: str, is_reloaded: bool
) -> None:
    """Its client knows no other way until its next transaction, and would die of UNSUPPORTED_VERSION."""
    driver = known_in(ONGOING, is_reloaded=False)
    driver.version = 0
    if is_reloaded:
        driver.reload()
    assert driver.add("t-1", version=2) == "NONE"
    assert driver.end(result) == NEXT
    (ended,) = driver.mark()
    assert (ended.producer_epoch, ended.transaction_version) == (6, 2)
    assert driver.at() == f"{state} {PRODUCER}/6"
    assert driver.end(result) == NEXT, "sent again"
    assert driver.add("t-1", epoch=6, version=2) == "UNSUPPORTED_VERSION", "the next one"


def test_an_open_transaction_ends_by_the_rules_that_its_client_has_then(is_reloaded: bool) -> None:
    """The cluster went from 0 to 2 while it was open."""
    driver = known_in(ONGOING, is_reloaded=is_reloaded, version=0)
    driver.version = 2
    assert driver.end("commit", version=0) == DECIDED_0
    (*_, ended) = driver.mark()
    assert (ended.producer_epoch, ended.transaction_version) == (5, 0)
    assert driver.add(version=2) == "NONE"
    assert driver.end("commit") == NEXT
    (ended,) = driver.mark()
    assert (ended.producer_epoch, ended.transaction_version) == (6, 2)
    assert ended.partitions == partitions("t-0")


def test_answers_wait_for_the_decision_to_be_in_the_log(is_reloaded: bool) -> None:
    driver = known_in(ONGOING, is_reloaded=is_reloaded)
    driver.holds = True
    assert driver.end("commit") is None
    assert driver.end("commit") is None
    assert driver.init() is None
    driver.commit()
    assert [driver.answer(waiter) for waiter in (1, 2, 3)] == [NEXT, LATER, LATER]
