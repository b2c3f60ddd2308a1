"""The admin client's types: confluent_kafka exports them from its package without declaring so to type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka.admin as _admin

if TYPE_CHECKING:
    AlterConfigOpType: Any
    ConfigEntry: Any
    ConfigResource: Any
    ConfigSource: Any
    NewPartitions: Any
    NewTopic: Any
    OffsetSpec: Any
else:
    AlterConfigOpType = _admin.AlterConfigOpType
    ConfigEntry = _admin.ConfigEntry
    ConfigResource = _admin.ConfigResource
    ConfigSource = _admin.ConfigSource
    NewPartitions = _admin.NewPartitions
    NewTopic = _admin.NewTopic
    OffsetSpec = _admin.OffsetSpec
