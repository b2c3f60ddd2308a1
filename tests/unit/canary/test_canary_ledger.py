"""The judgement on records: every acknowledged one is judged once by each reader, and lost only when it is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.canary.core.ledger import Ledger, Overdue, RecordId

TIMEOUT, LOSS = 5.0, 60.0
FIRST = RecordId("a", 0)


class Verdicts:
    """Counts (what, whom)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.end_to_end: list[float] = []

    def produced(self, gateway: str, seconds: float) -> None:
        self.counts["produced", gateway] += 1

    def produce_failed(self, gateway: str) -> None:
        self.counts["produce failed", gateway] += 1

    def fetched(self, reader: str, end_to_end_seconds: float) -> None:
        self.counts["fetched", reader] += 1
        self.end_to_end.append(end_to_end_seconds)

    def fetch_failed(self, reader: str) -> None:
        self.counts["fetch failed", reader] += 1

    def lost(self) -> None:
        self.counts["lost", ""] += 1

    def recovered(self) -> None:
        self.counts["recovered", ""] += 1

    def duplicated(self, reader: str) -> None:
        self.counts["duplicated", reader] += 1

    def reordered(self, reader: str) -> None:
        self.counts["reordered", reader] += 1


def make(*readers: str) -> tuple[Ledger, Counter[tuple[str, str]], Verdicts]:
    verdicts = Verdicts()
    ledger = Ledger(verdicts, timeout_seconds=TIMEOUT, loss_seconds=LOSS)
    for reader in readers:
        ledger.add_reader(reader, 0.0)
    return ledger, verdicts.counts, verdicts


def test_a_record_read_through_every_gateway_is_forgotten() -> None:
    ledger, counts, verdicts = make("a", "b")
    ledger.on_sent(FIRST, 0, 1.0)
    ledger.on_acknowledged(FIRST, 1.2)
    ledger.on_read("a", FIRST, 0, 7, 1.3)
    assert ledger.unread == 0
    ledger.on_read("b", FIRST, 0, 7, 1.5)
    assert counts == {("produced", "a"): 1, ("fetched", "a"): 1, ("fetched", "b"): 1}
    assert [round(each, 3) for each in verdicts.end_to_end] == [0.3, 0.5]
    assert ledger.sweep(1000.0) == []
    assert ledger.newest_read == {"a": 1.0, "b": 1.0}


def test_a_record_may_be_read_before_its_acknowledgement_is_seen() -> None:
    ledger, counts, verdicts = make("a")
    ledger.on_sent(FIRST, 0, 1.0)
    ledger.on_read("a", FIRST, 0, 0, 1.1)
    assert counts == {}
    ledger.on_acknowledged(FIRST, 1.2)
    assert counts == {("produced", "a"): 1, ("fetched", "a"): 1}
    assert round(verdicts.end_to_end[0], 3) == 0.1
    assert ledger.unread == 0


def test_a_refused_record_is_a_failed_produce_and_nothing_else() -> None:
    ledger, counts, _ = make("a")
    ledger.on_sent(FIRST, 0, 1.0)
    ledger.on_failed(FIRST)
    assert ledger.sweep(1000.0) == []
    assert counts == {("produce failed", "a"): 1}


def test_no_acknowledgement_in_time_is_one_failure_whatever_comes_later() -> None:
    ledger, counts, _ = make("a")
    ledger.on_sent(FIRST, 0, 0.0)
    ledger.sweep(TIMEOUT)
    assert counts == {}
    ledger.sweep(TIMEOUT + 0.1)
    ledger.sweep(TIMEOUT + 0.2)
    assert counts == {("produce failed", "a"): 1}
    ledger.on_failed(FIRST)
    assert counts == {("produce failed", "a"): 1}


def test_a_late_acknowledgement_is_a_promise_all_the_same() -> None:
    ledger, counts, _ = make("a")
    ledger.on_sent(FIRST, 3, 0.0)
    ledger.sweep(TIMEOUT + 1)
    ledger.on_acknowledged(FIRST, TIMEOUT + 2)
    overdue = ledger.sweep(TIMEOUT + 2 + LOSS + 1)
    assert overdue == [Overdue(FIRST, 3)]
    ledger.judge_overdue(overdue, {3})
    assert counts == {("produce failed", "a"): 1, ("fetch failed", "a"): 1, ("lost", ""): 1}


def test_a_gateway_that_is_away_fails_its_fetches_and_loses_nothing() -> None:
    ledger, counts, _ = make("a", "b")
    ledger.on_sent(FIRST, 0, 0.0)
    ledger.on_acknowledged(FIRST, 0.1)
    ledger.on_read("a", FIRST, 0, 0, 0.2)
    assert ledger.sweep(LOSS * 3) == []
    assert counts == {("produced", "a"): 1, ("fetched", "a"): 1, ("fetch failed", "b"): 1}


def test_a_record_is_lost_only_where_its_partition_answers() -> None:
    ledger, counts, _ = make("a")
    ledger.on_sent(FIRST, 2, 0.0)
    ledger.on_acknowledged(FIRST, 0.1)
    overdue = ledger.sweep(LOSS + 1)
    assert ledger.judge_overdue(overdue, {0, 1}) == []
    assert ledger.unread == 1
    overdue = ledger.sweep(LOSS + 2)
    assert ledger.judge_overdue(overdue, {2}) == overdue
    assert ledger.sweep(LOSS + 3) == [], "it is counted once"
    assert counts["lost", ""] == 1
    ledger.on_read("a", FIRST, 2, 0, LOSS + 4)
    assert counts["recovered", ""] == 1
    assert ledger.unread == 0


def test_a_record_at_two_offsets_is_a_duplicate() -> None:
    ledger, counts, _ = make("a")
    for offset in (4, 5):
        ledger.on_read("a", FIRST, 0, offset, 1.0)
    assert counts == {("duplicated", "a"): 1}


def test_reading_an_offset_again_is_no_duplicate() -> None:
    ledger, counts, _ = make("a")
    for offset in (4, 4, 3):
        ledger.on_read("a", FIRST, 0, offset, 1.0)
    assert counts == {}


def test_a_record_after_a_later_one_is_out_of_order() -> None:
    ledger, counts, _ = make("a")
    for offset, sequence in enumerate((0, 3, 2, 4)):
        ledger.on_read("a", RecordId("a", sequence), 0, offset, 1.0)
    assert counts == {("reordered", "a"): 1}


def test_order_is_by_sender_and_partition() -> None:
    ledger, counts, _ = make("a")
    ledger.on_read("a", RecordId("a", 9), 0, 0, 1.0)
    ledger.on_read("a", RecordId("b", 1), 0, 1, 1.0)
    ledger.on_read("a", RecordId("a", 1), 1, 0, 1.0)
    assert counts == {}


def test_nothing_is_expected_of_a_gateway_that_was_removed() -> None:
    ledger, counts, _ = make("a", "b")
    ledger.on_sent(FIRST, 0, 0.0)
    ledger.on_acknowledged(FIRST, 0.1)
    ledger.remove_reader("b")
    ledger.on_read("b", FIRST, 0, 0, 0.2)
    ledger.on_read("a", FIRST, 0, 0, 0.2)
    ledger.sweep(LOSS * 2)
    assert counts == {("produced", "a"): 1, ("fetched", "a"): 1}
    assert set(ledger.newest_read) == {"a"}


def test_what_is_forgotten_is_not_judged() -> None:
    ledger, counts, _ = make("a")
    ledger.on_sent(FIRST, 0, 0.0)
    ledger.on_acknowledged(FIRST, 0.1)
    ledger.forget()
    assert ledger.sweep(LOSS * 2) == []
    assert counts == {("produced", "a"): 1}
    ledger.on_read("a", RecordId("a", 1), 0, 0, 1.0)
    assert counts == {("produced", "a"): 1}


EVENTS = st.lists(
    st.tuples(st.sampled_from(("send", "ack", "fail", "read a", "read b", "sweep")), st.integers(0, 5)),
    max_size=60,
)


@given(EVENTS)
def test_whatever_happens_records_are_judged_once(events: list[tuple[str, int]]) -> None:
    ledger, counts, _ = make("a", "b")
    now, sent, acknowledged, ended = 0.0, set[int](), set[int](), set[int]()
    for what, number in events:
        now += 2.0
        record = RecordId("a", number)
        if what == "send" and number not in sent:
            sent.add(number)
            ledger.on_sent(record, 0, now)
        elif what == "sweep":
            ledger.judge_overdue(ledger.sweep(now), {0})
        elif number in sent and what == "ack" and number not in ended:
            acknowledged.add(number)
            ended.add(number)
            ledger.on_acknowledged(record, now)
        elif number in sent and what == "fail" and number not in ended:
            ended.add(number)
            ledger.on_failed(record)
        elif number in sent and what.startswith("read"):
            ledger.on_read(what[-1], record, 0, number, now)
    for number in sent - ended:
        ledger.on_failed(RecordId("a", number))
    ledger.judge_overdue(ledger.sweep(now + 10 * LOSS), {0})
    assert counts["produced", "a"] + counts["produce failed", "a"] == len(sent)
    for reader in ("a", "b"):
        assert counts["fetched", reader] + counts["fetch failed", reader] == len(acknowledged)
    assert ledger.unread == 0
    assert counts["lost", ""] <= len(acknowledged)
