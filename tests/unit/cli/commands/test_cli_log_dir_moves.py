"""`barnabas log-dirs move` and `even`: what they refuse, in words that say what to do."""

from __future__ import annotations

import pytest

from barnabas.cli.balance.cluster_state import Directory, Node
from barnabas.cli.balance.directory_moves import Held, Holding, Move, plan_moves
from barnabas.cli.commands.log_dir_moves import check_room, check_target, tell_outcome
from barnabas.cli.kafka.directory_moves import MovesOutcome
from barnabas.cli.refusal import Refused

NODE = Node(1, "", "h", 9092)
OPEN, CLOSED = Directory("/d", None, 1000, 900), Directory("/e", None, 1000, 900, is_cordoned=True)
REPLICA = Held("t", 0, "/d", 10)


def test_a_node_with_one_directory_has_nowhere_to_move() -> None:
    holding = Holding((OPEN,), (REPLICA,))
    with pytest.raises(
        Refused, match=r"t-0 cannot move: /d is the one .* of node 1. Add .*`barnabas rebalance`"
    ):
        check_room(plan_moves(holding, source="/d"), holding, NODE)
    small = Holding((OPEN, Directory("/e", None, 1000, 5)), (REPLICA,))
    with pytest.raises(Refused, match=r"t-0 fit into no directory: `barnabas nodes list --output json`"):
        check_room(plan_moves(small, source="/d"), small, NODE)


def test_a_cordoned_target_is_said_to_be_cordoned_and_how_to_open_it() -> None:
    holding = Holding((OPEN, CLOSED), (REPLICA,))
    plan = plan_moves(holding, target="/e")
    with pytest.raises(Refused, match=r"/e of node 1 is cordoned .*--delete-config cordoned.log.dirs"):
        check_target(plan, holding, NODE, "/e")
    under_way = Holding((OPEN, CLOSED), (Held("t", 0, "/d", 10, "/e", 5),))
    check_target(plan_moves(under_way, target="/e"), under_way, NODE, "/e")  # begun before, and seen through


def test_a_move_that_was_called_off_says_how_to_look_and_go_on() -> None:
    ended = MovesOutcome(ended=[Move("t", 0, "/d", "/e", 10)])
    with pytest.raises(
        Refused, match=r"t-0 .* called off.*`barnabas log-dirs --describe --broker-list 1`.*again"
    ):
        tell_outcome(ended, NODE)
