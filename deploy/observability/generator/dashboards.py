"""All dashboards, as the text that Grafana is given."""

from __future__ import annotations

from generator.boards_control import CONTROLLER, GROUPS
from generator.boards_gateway import GATEWAY
from generator.boards_overview import OBJECTIVES, OVERVIEW
from generator.boards_storage import STORAGE, TOPIC
from generator.boards_transactions import TRANSACTIONS


def all_dashboards() -> dict[str, str]:
    """Name to JSON."""
    boards = (OVERVIEW, OBJECTIVES, GATEWAY, STORAGE, GROUPS, TRANSACTIONS, CONTROLLER, TOPIC)
    return {board.name: board.to_json() for board in boards}
