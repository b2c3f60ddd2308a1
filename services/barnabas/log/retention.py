"""Which segments may go: by log start offset, by age, by size; always the oldest first (Kafka's own order and
rules).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.log.config import LogConfig
from barnabas.log.segments.segment import Segment

Breached = Callable[[Segment, int], bool]
"""(segment, the offset after it) -> whether the rule lets it go."""


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    high_watermark: int,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> int:
    """How many segments from the front may be deleted.

    No segment with an offset at or past the high watermark, and never an empty active one. All of them may be
    returned: the caller then rolls first, so that the log keeps its end.
    """

    def leading(breached: Breached) -> int:
        count = 0
        for number, segment in enumerate(segments):
            is_active = number + 1 == len(segments)
            after = log_end_offset if is_active else segments[number + 1].base_offset
            if high_watermark < after or (is_active and segment.size == 0) or not breached(segment, after):
                break
            count += 1
        return count

    rules: list[Breached] = [lambda segment, after: segment is not segments[-1] and after <= log_start_offset]
    if config.is_deleted and config.retention_ms >= 0:
        rules.append(lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms)
    if config.is_deleted and config.retention_bytes >= 0:
        rules.append(_size_rule(segments, config.retention_bytes))
    return max(leading(rule) for rule in rules)


def _size_rule(segments: Sequence[Segment], retention_bytes: int) -> Breached:
    """Segments go while what is left is still at least `retention_bytes`."""
    excess = sum(segment.size for segment in segments) - retention_bytes

    def breached(segment: Segment, _: int) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return breached
