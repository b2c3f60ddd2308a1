"""How partitions are spread over members: pure functions, by the names that `group.consumer.assignors` lists."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.coordinator.groups.consumer.assignors.range import assign_ranges
from barnabas.coordinator.groups.consumer.assignors.specification import (
    Assign,
    Assignment,
    GroupSpecification,
    MemberSpecification,
)
from barnabas.coordinator.groups.consumer.assignors.uniform import assign_uniformly

__all__ = ["ASSIGNORS", "Assign", "Assignment", "GroupSpecification", "MemberSpecification"]

ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType(
    {"uniform": assign_uniformly, "range": assign_ranges}
)
