"""The log that a coordinator's state is written to and read from: an internal topic's partitions on storage nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import ALL_REPLICAS, EARLIEST, LATEST
from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import current_traceparent
from barnabas.links.errors import DeadlinePassed, LinkError, NotSentInTime
from barnabas.links.storage_messages import PartitionFetched
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    CoordinatorIdentity,
    DescribeProducersRequest,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionAppend,
    PartitionFetch,
    PartitionOfTopic,
)
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES, led_partition
from barnabas.records.batch import iterate_headers

if TYPE_CHECKING:
    from barnabas.links.network import Network
    from barnabas.links.storage_link import StorageLink


log = get_logger("coordinator.log")

_APPEND_SECONDS_MAX: Final = (limits.APPEND_ANSWER_MS_MAX + limits.APPEND_GRACE_MS) / 1000


class TopicLog(Protocol):
    """What a partition's owner needs of the log. Everything raises KafkaError with the storage node's code, or
    COORDINATOR_NOT_AVAILABLE when no storage node can be reached."""

    async def append(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int | None
    ) -> int:
        """Append whole batches and return the first one's offset once all in-sync replicas have them.

        Refused with OFFSET_OUT_OF_RANGE when the log does not end at `expected_end` (None: wherever it ends), with
        NOT_COORDINATOR when the partition has a newer coordinator epoch. After REQUEST_TIMED_OUT and
        COORDINATOR_NOT_AVAILABLE the records may be in the log, or may get there yet. Sending the same again with the
        same expected end is safe: they land once.
        """
        ...

    def append_at_once(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int
    ) -> int | None:
        """As `append`, where the leader is in this process and all in-sync replicas have the batches before this
        returns; None, with nothing changed, where not."""
        ...

    def read(self, partition: int, end_offset: int) -> AsyncIterator[bytes]:
        """Whole batches, in order, from the log's first offset to at least `end_offset`, as far as committed.

        Waits for a slow disk however long it takes: what was not read yet is never left out.
        """
        ...

    async def committed_end(self, partition: int) -> int:
        """The high watermark: what is below is committed and can be read."""
        ...

    async def producers(self, partition: int) -> Sequence[LogProducer]:
        """What the leader knows of the producers that wrote to its log."""
        ...


class StorageTopicLog:
    """Owns the links to the storage nodes that lead the partitions of one internal topic."""

    def __init__(
        self,
        topic: str,
        image: Callable[[], MetadataImage],
        config: CoordinatorConfig,
        incarnation_id: str,
        network: Network,
        stream_counts: StorageStreamCounts | None = None,
        load_buffer_bytes: int | None = None,
    ) -> None:
        """`incarnation_id` is the one under which this process is registered with the controller.

        `stream_counts` are those of all links of the process; the log's own where it is the only one. So much is read
        at once while a partition is loaded: offsets.load.buffer.size where nothing else is said.
        """
        self.stream_counts = stream_counts or StorageStreamCounts()
        self._load_buffer_bytes = load_buffer_bytes or config.offsets_load_buffer_size
        self._network = network
        self._topic = topic
        self._image = image
        self._config = config
        self._identity = CoordinatorIdentity(
            coordinator_id=config.coordinator_id, incarnation_id=incarnation_id
        )
        self._links: dict[str, StorageLink] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def append(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int | None
    ) -> int:
        record, storage = self._leader_of(partition)
        request = AppendRequest(
            partitions=[_append_to(record, coordinator_epoch, records, expected_end)],
            acks=ALL_REPLICAS,
            timeout_ms=limits.APPEND_ANSWER_MS_MAX,
            coordinator=self._identity,
            traceparent=current_traceparent(),
        )
        try:
            result = await storage.appends.send(request, len(records), _APPEND_SECONDS_MAX)
        except (DeadlinePassed, NotSentInTime) as error:
            raise KafkaError(ErrorCode.request_timed_out, f"{storage.address} does not answer") from error
        except LinkError as error:
            raise KafkaError(NOBODY_COORDINATES, str(error)) from error
        (answer,) = result.partitions
        _raise_for(answer.error_code, answer.error_message)
        return answer.base_offset

    def append_at_once(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int
    ) -> int | None:
        try:
            record, storage = self._leader_of(partition)
        except KafkaError:
            return None
        if storage.here is None:
            return None
        item = _append_to(record, coordinator_epoch, records, expected_end)
        return storage.here.write_at_once(self._identity, item)

    async def read(self, partition: int, end_offset: int) -> AsyncIterator[bytes]:
        next_offset = 0
        pause_ms = limits.LOAD_RETRY_MS_MIN
        while next_offset < end_offset:
            result = await self._fetch(partition, next_offset)
            if result.fields.error_code == ErrorCode.request_timed_out:
                # The disk is slow, which says nothing of what it holds; what it reads late is in memory then.
                log.info("the log's disk is slow", topic=self._topic, partition=partition, offset=next_offset)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, limits.LOAD_RETRY_MS_MAX)
                continue
            pause_ms = limits.LOAD_RETRY_MS_MIN
            if result.fields.error_code == ErrorCode.offset_out_of_range:
                # Records below the log's start were deleted: go on from where it starts.
                start = await self._look_up(partition, EARLIEST)
                if start <= next_offset:
                    raise KafkaError(ErrorCode.offset_out_of_range, f"offset {next_offset} cannot be read")
                next_offset = start
                continue
            _raise_for(result.fields.error_code, "")
            for _, header in iterate_headers(result.records):
                next_offset = header.next_offset
            if result.records:
                yield bytes(result.records)
            elif result.fields.high_watermark >= end_offset:
                return  # compaction left nothing of the last records

    async def committed_end(self, partition: int) -> int:
        return await self._look_up(partition, LATEST)

    async def producers(self, partition: int) -> Sequence[LogProducer]:
        record, storage = self._leader_of(partition)
        item = PartitionOfTopic(topic_id=record.topic_id, partition=partition)
        request = DescribeProducersRequest(partitions=[item])
        try:
            response = await storage.DescribeProducers(
                request, timeout=self._config.offsets_commit_timeout_ms / 1000
            )
        except LinkError as error:
            raise KafkaError(NOBODY_COORDINATES, str(error)) from error
        result = response.results[0]
        _raise_for(result.error_code, "")
        return [
            LogProducer(
                Producer(each.producer_id, each.producer_epoch),
                each.coordinator_epoch,
                is_open=each.current_transaction_start_offset >= 0,
            )
            for each in result.producers
        ]

    async def close(self) -> None:
        """Close all links; what waits on them fails."""
        for address in list(self._links):
            self._drop(address)
        await asyncio.gather(*self._closing)

    def on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Close links to addresses at which no storage node is any more; what waits on them fails."""
        addresses = {node.address for node in new.nodes.values()}
        for address in self._links.keys() - addresses:
            log.info("connection to a storage node that is gone is closed", address=address)
            self._drop(address)

    def _drop(self, address: str) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(address).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _fetch(self, partition: int, offset: int) -> PartitionFetched:
        record, storage = self._leader_of(partition)
        buffer_bytes = self._load_buffer_bytes
        item = PartitionFetch(
            topic_id=record.topic_id,
            partition=partition,
            fetch_offset=offset,
            max_bytes=buffer_bytes,
            current_leader_epoch=record.leader_epoch,
            last_fetched_epoch=-1,
        )
        request = FetchRequest(
            partitions=[item], max_wait_ms=limits.FETCH_WAIT_MS, min_bytes=1, max_bytes=buffer_bytes
        )
        timeout_ms = limits.FETCH_WAIT_MS + self._config.offsets_commit_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                result = await storage.fetches.send(request)
        except LinkError as error:
            raise KafkaError(NOBODY_COORDINATES, str(error)) from error
        except TimeoutError as error:
            raise KafkaError(ErrorCode.request_timed_out, f"{storage.address} does not answer") from error
        return result.partitions[0]

    async def _look_up(self, partition: int, timestamp_ms: int) -> int:
        record, storage = self._leader_of(partition)
        item = ListOffsetsPartition(
            topic_id=record.topic_id,
            partition=partition,
            current_leader_epoch=record.leader_epoch,
            timestamp_ms=timestamp_ms,
        )
        try:
            timeout_seconds = self._config.offsets_commit_timeout_ms / 1000
            response = await storage.ListOffsets(
                ListOffsetsRequest(partitions=[item]), timeout=timeout_seconds
            )
        except LinkError as error:
            raise KafkaError(NOBODY_COORDINATES, str(error)) from error
        _raise_for(response.results[0].error_code, "")
        return response.results[0].offset

    def _leader_of(self, partition: int) -> tuple[PartitionRecord, StorageLink]:
        record = led_partition(self._image(), self._topic, partition)
        if record is ErrorCode.unknown_topic_or_partition:
            raise KafkaError(record, f"no {self._topic}-{partition}")
        link = None if isinstance(record, ErrorCode) else self.link_to(record.leader)
        if isinstance(record, ErrorCode) or link is None:
            raise KafkaError(NOBODY_COORDINATES, f"{self._topic}-{partition} has no leader")
        return record, link

    def link_to(self, node_id: int) -> StorageLink | None:
        """The link to a storage node; None when no such node is registered, or it is fenced."""
        node = self._image().nodes.get(node_id)
        if node is None or node.fenced:
            return None
        link = self._links.get(node.address)
        if link is None:
            link = self._network.connect_storage(node.address, self.stream_counts, reads_for_clients=False)
            self._links[node.address] = link
        return link


def _append_to(
    record: PartitionRecord, coordinator_epoch: int, records: bytes, expected_end: int | None
) -> PartitionAppend:
    """`records` for the partition, as its owner under the epoch sends them."""
    return PartitionAppend(
        topic_id=record.topic_id,
        partition=record.partition,
        leader_epoch=record.leader_epoch,
        coordinator_epoch=coordinator_epoch,
        expected_log_end=expected_end,
        records=records,
    )


def _raise_for(code: int, message: str) -> None:
    if code != ErrorCode.none:
        raise KafkaError(ErrorCode(code), message)
