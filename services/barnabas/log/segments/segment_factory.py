"""Makes the segments of one partition, from files or anew, with the settings of the moment."""

from __future__ import annotations

from barnabas.kernel.environment import Environment
from barnabas.log.config import LogConfig
from barnabas.log.segments.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    Segment,
    file_name,
)
from barnabas.log.segments.segment_cache import SegmentCache


def base_offset_of(name: str) -> int | None:
    """The base offset of the segment whose log has this name; None for any other file."""
    stem = name.removesuffix(LOG_SUFFIX)
    if stem == name or not stem.isdecimal() or file_name(int(stem), LOG_SUFFIX) != name:
        return None
    return int(stem)


class SegmentFactory:
    """What all segments of a partition share."""

    def __init__(
        self,
        environment: Environment,
        directory: str,
        config: LogConfig,
        cache: SegmentCache,
    ) -> None:
        self.files = environment.files
        self.directory = directory
        self.config = config
        self.cache = cache
        self._clock = environment.clock
        self._chance = environment.random

    def create(self, base_offset: int) -> Segment:
        """A new, empty, active segment with its files. Raises OSError."""
        segment = self.make_empty(base_offset)
        segment.create_files()
        return segment

    def make_empty(self, base_offset: int) -> Segment:
        """A new segment whose files are still to be created."""
        return self._make(base_offset, 0, self._clock.now_ms())

    def find(self, base_offset: int) -> Segment:
        """The segment whose `.log` file exists; opened when it is first used."""
        status = self.files.stat(f"{self.directory}/{file_name(base_offset, LOG_SUFFIX)}")
        return self._make(base_offset, status.st_size, self._clock.now_ms())

    def create_aside(self, base_offset: int) -> Segment:
        """A new, empty segment under names that the next opening removes, in place of one of a former try. Raises
        OSError; some of its files may then be there.
        """
        segment = self._make(base_offset, 0, self._clock.now_ms(), TEMPORARY_SUFFIX)
        segment.remove_files()
        segment.create_files()
        return segment

    def create_cleaned(self, base_offset: int) -> Segment:
        """A new, empty segment with its files, not yet part of the log. Raises OSError."""
        segment = self._make(base_offset, 0, self._clock.now_ms(), CLEANED_SUFFIX)
        segment.create_files()
        return segment

    def _make(self, base_offset: int, size: int, created_ms: int, stage: str = "") -> Segment:
        config = self.config
        jitter_max = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size=size,
            index_bytes_max=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            created_ms=created_ms,
            cache=self.cache,
            jitter_ms=self._chance.randrange(jitter_max) if jitter_max > 0 else 0,
            stage=stage,
        )
