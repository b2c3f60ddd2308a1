"""What `barnabas transactions` and `doctor` show, and when they ask for more."""

from __future__ import annotations

import pytest
from transactional_cluster import BROKERS, NODES, Id, Open, TransactionalCluster

from barnabas.cli.balance.cluster_state import ClusterState
from barnabas.cli.balance.late_transactions import LateTransaction, Producer, Transaction
from barnabas.cli.commands import doctor, transactions
from barnabas.cli.commands.transaction_tables import (
    duration_of,
    hanging_row,
    producer_row,
    time_of,
    transaction_row,
)
from barnabas.cli.refusal import Refused

PRODUCER = Producer(("t", 1), 7, 3, None, 5, 1_795_768_399_622, 40)


def test_a_transaction_that_is_open_has_a_start_and_a_length() -> None:
    row = transaction_row(
        Transaction("id", 1, 7, 3, "Ongoing", 60_000, 1_000, [("t", 0), ("t", 1)]), 3_601_500
    )
    assert (row["started"], row["openMs"], row["openFor"]) == (
        "1970-01-01T00:00:01.000Z",
        3_600_500,
        "1:00:00",
    )
    assert row["partitions"] == ["t-0", "t-1"]


def test_one_that_is_not_open_has_neither() -> None:
    row = transaction_row(Transaction("id", 1, 7, 3, "Empty", 60_000, None, []), 3_600_000)
    assert [row[name] for name in ("startMs", "started", "openMs", "openFor")] == [None] * 4


def test_what_hangs_is_named_by_what_abort_takes() -> None:
    row = hanging_row(LateTransaction(PRODUCER), PRODUCER.last_timestamp_ms + 61_000)
    assert (row["topic"], row["partition"], row["startOffset"], row["silentFor"]) == ("t", 1, 40, "0:01:01")
    assert producer_row(PRODUCER)["lastTime"] == "2026-11-27T08:33:19.622Z"


def test_a_clock_that_is_behind_is_no_negative_length() -> None:
    assert hanging_row(LateTransaction(PRODUCER), 0)["silentFor"] == duration_of(0) == "0:00:00"


@pytest.mark.parametrize(("at", "shown"), [(None, None), (-1, None), (2**62, str(2**62))])
def test_what_is_no_time_is_shown_as_it_is(at: int | None, shown: str | None) -> None:
    assert time_of(at) == shown


def test_states_are_taken_in_any_case() -> None:
    assert transactions.states_of("ongoing, PREPARECOMMIT,") == ("Ongoing", "PrepareCommit")
    assert transactions.states_of("") == ()


def test_a_broker_that_is_away_cannot_be_asked() -> None:
    assert transactions.known_broker(BROKERS, 2).port == 2
    for away in (3, 4):
        with pytest.raises(Refused, match=f"no broker {away} that is alive"):
            transactions.known_broker(BROKERS, away)


def test_partitions_that_were_not_seen_are_counted() -> None:
    said = transactions.not_seen([("t", number) for number in range(5)])
    assert said.startswith("5 partitions could not be looked at (t-0, t-1, t-2, ...)")


# --- doctor


def late_in(cluster: TransactionalCluster, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    monkeypatch.setattr(
        "barnabas.cli.kafka.config_values.broker_values", lambda *_: {doctor.LONGEST: "60000"}
    )
    found, why_not = doctor.read_late(cluster, ClusterState(NODES, tuple(cluster.partitions)))
    return [f"{each.producer.place[0]}-{each.producer.place[1]}" for each in found], why_not


def test_doctor_finds_what_is_open_for_longer_than_any_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TransactionalCluster(t_0=1, t_1=2)
    monkeypatch.setattr(doctor.time, "time_ns", lambda: 10**15)
    just_late = 10**9 - 60_000 - doctor.LATE_MS - 1
    cluster.open = [
        Open(("t", 0), 7, last_timestamp=just_late),
        Open(("t", 1), 8, last_timestamp=just_late + 1),
    ]
    assert late_in(cluster, monkeypatch) == (["t-0"], "")


def test_doctor_says_why_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TransactionalCluster(t_0=1)
    cluster.open, cluster.ids, cluster.silent = [Open(("t", 0), 7)], {"a": Id(2, 7)}, {2}
    found, why_not = late_in(cluster, monkeypatch)
    assert found == []
    assert why_not.startswith("node 2 gave no answer")
