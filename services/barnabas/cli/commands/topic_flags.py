"""What the flags of `topics` say, for all that act on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.cli.commands.carrying_out import Pace

OVERRIDES: Final = "topics-with-overrides"
"""The filter that shows only topics with configs of their own."""


@dataclass(frozen=True)
class TopicFlags:
    """What the flags say about the topics, beside their names."""

    partitions: int | None
    replication_factor: int | None
    replica_assignment: str
    configs: Sequence[str]
    deleted_configs: Sequence[str]
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    is_dry_run: bool
    filters: frozenset[str]
    pace: Pace
    topic_id: str = ""
