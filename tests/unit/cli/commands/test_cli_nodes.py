"""`barnabas nodes`, `rebalance` and `doctor`: what they show, and what they refuse."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from barnabas.cli.__main__ import main
from barnabas.cli.balance.cluster_state import ClusterState, Directory, Node, Partition, Reassignment
from barnabas.cli.balance.draining import plan_drain
from barnabas.cli.balance.health import Examined, examine
from barnabas.cli.balance.planner import plan_rebalance
from barnabas.cli.commands.carrying_out import reassignment_data
from barnabas.cli.commands.doctor import finding_data, page
from barnabas.cli.commands.nodes import (
    check_drain,
    check_removal,
    known_node,
    node_row,
    state_of,
    what_was_done,
)
from barnabas.cli.commands.rebalance import plan_rows
from barnabas.cli.kafka.throttling import throttled_replicas
from barnabas.cli.refusal import Refused

DISK = (Directory("/d", None, 1000, 400), Directory("/e", "KAFKA_STORAGE_ERROR"))
MEMBERS = (
    Node(1, "a", "h", 9092, directories=DISK),
    Node(2, "", "h", 9093, directories=()),
    Node(3, is_fenced=True),
)
PARTS = (
    Partition("t", 0, (1, 2), (1, 2), 1, sizes={1: 70, 2: 50}, size_bytes=70),
    Partition("t", 1, (2,), (2,), 2, sizes={2: 5}, size_bytes=5),
)
STATE = ClusterState(MEMBERS, PARTS)


def test_a_row_for_each_node() -> None:
    first, second, third = (node_row(STATE, node) for node in MEMBERS)
    assert (first["id"], first["rack"], first["endpoint"], first["state"]) == (1, "a", "h:9092", "alive")
    assert (first["replicas"], first["leaders"], first["bytes"], first["room"]) == (1, 1, 70, 400)
    assert [each["error"] for each in first["logDirs"]] == [None, "KAFKA_STORAGE_ERROR"]
    assert (second["rack"], second["replicas"], second["leaders"], second["bytes"]) == (None, 2, 1, 55)
    assert (third["endpoint"], third["state"], third["room"], third["logDirs"]) == (
        None,
        "fenced",
        None,
        None,
    )


def test_where_one_broker_is_shown_for_all_nobody_knows_who_leads() -> None:
    assert node_row(replace(STATE, is_shown_as_one=True), MEMBERS[0])["leaders"] is None


def test_the_state_of_a_node_in_words() -> None:
    first = MEMBERS[0]
    assert state_of(replace(first, cordoned=("*",)), 3) == "draining"
    assert state_of(replace(first, cordoned=("/d", "/e")), 0) == "drained"
    assert state_of(replace(first, cordoned=("/d",)), 0) == "alive"
    assert state_of(replace(MEMBERS[2], cordoned=("*",)), 1) == "fenced,draining"
    assert state_of(Node(9, is_registered=False, is_fenced=True), 1) == "unknown"


def test_a_node_whose_only_open_directory_is_offline_gets_nothing_new() -> None:
    first = MEMBERS[0]
    assert [each.error is None for each in first.directories or ()] == [True, False]
    assert first.takes_replicas
    assert not replace(first, cordoned=("/d",)).takes_replicas
    assert replace(first, cordoned=("/e",)).takes_replicas


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(Refused, match="no node 7: there are 1, 2, 3"):
        known_node(STATE, 7)


def test_a_drain_that_cannot_be() -> None:
    with pytest.raises(Refused, match=r"t-0 cannot leave node 1: every other .* with --fewer-replicas"):
        check_drain(plan_drain(STATE, 1), STATE, 1)
    alone = ClusterState(MEMBERS[1:], PARTS[1:])
    with pytest.raises(Refused, match=r"no other node takes replicas; start another node$"):
        check_drain(plan_drain(alone, 2), alone, 2)
    full = (replace(MEMBERS[0], directories=(Directory("/d", None, 10, 1),)), MEMBERS[1])
    crowded = ClusterState(full, PARTS[1:])
    with pytest.raises(Refused, match="t-1 fit on no other node: `barnabas nodes list`"):
        check_drain(plan_drain(crowded, 2), crowded, 2)


def test_a_drain_says_what_it_did() -> None:
    away, fewer = Reassignment("t", 0, (1, 2), (3, 2)), Reassignment("t", 1, (1, 2), (2,))
    assert what_was_done([]) == "0 partitions reassigned"
    assert what_was_done([away]) == "1 partition reassigned"
    assert what_was_done([away, fewer]) == "2 partitions reassigned, 1 of them with one replica less"


def test_only_an_empty_node_that_was_stopped_is_removed() -> None:
    with pytest.raises(Refused, match="node 1 has 1 replica: `barnabas nodes drain 1`"):
        check_removal(STATE, MEMBERS[0])
    with pytest.raises(Refused, match="node 1 is running"):
        check_removal(ClusterState(MEMBERS, ()), MEMBERS[0])
    check_removal(STATE, MEMBERS[2])


def test_the_plan_as_a_table_and_as_data() -> None:
    members = (Node(1), Node(2))
    parts = tuple(Partition("t", at, (1,), (1,), 1, size_bytes=100) for at in range(2))
    state = ClusterState(members, parts)
    plan = plan_rebalance(state)
    first, second = plan_rows(state, plan)
    assert (first["replicas"], first["replicasAfter"], second["bytes"], second["bytesAfter"]) == (
        2,
        1,
        0,
        100,
    )
    (moved,) = [reassignment_data(reassignment) for reassignment in plan.reassignments]
    assert moved["replicas"] == [2]
    assert moved["bytesMoved"] == 100
    (reassignment,) = plan.reassignments
    assert throttled_replicas(plan.reassignments) == {
        "t": {
            "leader.replication.throttled.replicas": f"{reassignment.number}:1",
            "follower.replication.throttled.replicas": f"{reassignment.number}:2",
        }
    }


def test_the_doctors_page() -> None:
    examined = Examined(STATE)
    findings = examine(examined)
    lines = page(examined, findings)
    assert lines[0] == "2 problems: 2 of 3 nodes alive, 1 topic, 2 partitions"
    assert lines[1].startswith("! node-fenced: node 3 is fenced")
    assert lines[2].startswith("    start it")
    assert any(line.startswith("- one-replica") for line in lines)
    assert finding_data(findings[0])["isProblem"] is True
    assert page(Examined(ClusterState((), ())), []) == ["healthy: 0 of 0 nodes alive, 0 topics, 0 partitions"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("rebalance --cancel --dry-run", "--cancel begins nothing"),
        ("nodes drain", "Missing argument 'NODE'"),
        ("nodes drain x", "'x' is not a whole number"),
        ("nodes list -b localhost:1", "cannot reach localhost:1"),
        ("doctor -b localhost:1", "cannot reach localhost:1"),
        ("rebalance -b localhost:1", "cannot reach localhost:1"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["barnabas", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (1, 2)
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
