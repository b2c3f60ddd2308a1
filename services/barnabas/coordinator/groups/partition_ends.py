"""Where partitions end, and when a record in them was written: what lag is measured against."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.coordinator import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import EARLIEST, LATEST, NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.links.errors import LinkError
from barnabas.messages.storage_pb2 import (
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionFetch,
)
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import led_partition
from barnabas.records.batch import HEADER_SIZE, parse_header

if TYPE_CHECKING:
    from barnabas.links.storage_link import StorageLink


log = get_logger("coordinator.lag")


class PartitionId(NamedTuple):
    """A partition of a topic that exists now."""

    topic_id: bytes
    partition: int


class Ends(NamedTuple):
    """The offsets between which a partition can be read: the first one, and the high watermark."""

    start: int
    end: int


class PartitionEnds(Protocol):
    """What lag measurement asks of storage nodes. What gives no answer is left out; nothing is raised."""

    async def ends(self, partitions: Iterable[PartitionId]) -> Mapping[PartitionId, Ends]:
        """Where the partitions begin and end."""
        ...

    async def timestamp_at(self, partition: PartitionId, offset: int) -> tuple[int | None, int]:
        """(the first timestamp, in ms, of the batch that holds `offset`, bytes read for it); -1 without one."""
        ...


class StorageEnds:
    """Asks the partitions' leaders, over the links that the coordinator has to them."""

    def __init__(
        self, image: Callable[[], MetadataImage], link_to: Callable[[int], StorageLink | None]
    ) -> None:
        self._image = image
        self._link_to = link_to

    async def ends(self, partitions: Iterable[PartitionId]) -> Mapping[PartitionId, Ends]:
        by_leader: dict[int, list[PartitionId]] = {}
        for each in partitions:
            record = led_partition(self._image(), each.topic_id, each.partition)
            if not isinstance(record, ErrorCode):
                by_leader.setdefault(record.leader, []).append(each)
        found: dict[PartitionId, Ends] = {}
        await asyncio.gather(*(self._ask(leader, asked, found) for leader, asked in by_leader.items()))
        return found

    async def _ask(self, leader: int, asked: list[PartitionId], found: dict[PartitionId, Ends]) -> None:
        link = self._link_to(leader)
        if link is None:
            return
        # In parts: a storage node answers each without a pause for its other work.
        for start in range(0, len(asked), limits.LAG_LOOK_UP_PARTITIONS):
            part = asked[start : start + limits.LAG_LOOK_UP_PARTITIONS]
            request = ListOffsetsRequest(
                partitions=[
                    ListOffsetsPartition(
                        topic_id=each.topic_id,
                        partition=each.partition,
                        current_leader_epoch=NO_EPOCH,
                        timestamp_ms=timestamp,
                    )
                    for each in part
                    for timestamp in (EARLIEST, LATEST)
                ]
            )
            try:
                response = await link.ListOffsets(request, timeout=limits.LAG_LOOK_UP_SECONDS)
            except LinkError as error:
                log.debug("a storage node does not say where its logs end", reason=str(error))
                return
            pairs = zip(response.results[::2], response.results[1::2], strict=True)
            for each, (first, last) in zip(part, pairs, strict=True):
                if first.error_code == last.error_code == ErrorCode.none:
                    found[each] = Ends(first.offset, last.offset)

    async def timestamp_at(self, partition: PartitionId, offset: int) -> tuple[int | None, int]:
        record = led_partition(self._image(), partition.topic_id, partition.partition)
        link = None if isinstance(record, ErrorCode) else self._link_to(record.leader)
        if link is None:
            return None, 0
        item = PartitionFetch(
            topic_id=partition.topic_id,
            partition=partition.partition,
            fetch_offset=offset,
            max_bytes=1,  # the first batch comes whole all the same, and no other
            current_leader_epoch=NO_EPOCH,
            last_fetched_epoch=NO_EPOCH,
        )
        try:
            async with asyncio.timeout(limits.LAG_LOOK_UP_SECONDS):
                result = await link.fetches.send(FetchRequest(partitions=[item], max_bytes=1))
        except (LinkError, TimeoutError):
            return None, 0
        records = result.partitions[0].records
        if len(records) < HEADER_SIZE:
            return None, len(records)
        header = parse_header(records)
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return timestamp, len(records)
