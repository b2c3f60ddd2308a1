"""Which partitions this node has, and the work on disk that follows from the metadata.

Data is deleted on an order only: the metadata says that the topic was deleted, or gives a partition that this node has
followed to other nodes. A partition that is merely absent (from a restored backup's metadata, say) is set aside as
stray for a day, and taken back when its topic id comes again.

An image only changes what is in memory; creating, opening and deleting logs is left to `run`, which does it in the
threads of each log directory (`DirectoryWork`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.validators import ConfigValue
from barnabas.records.batch import Buffer
from barnabas.storage import limits
from barnabas.storage.counts import NodeCounts
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.directory_work import DirectoryWork, Opened
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.moves.log_moves import LogMoves
from barnabas.storage.replica.error_codes import NOT_LEADER
from barnabas.storage.replica.followed import Followed
from barnabas.storage.replica.isr_changes import IsrChanges
from barnabas.storage.replica.newer_epochs import NewerEpochs
from barnabas.storage.replica.opening import open_all
from barnabas.storage.replica.refused_while_absent import RefusedWhileAbsent
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replica_reports import ReplicaReports
from barnabas.storage.replica.replication_quota import ReplicationQuotas
from barnabas.storage.replica.topic_settings import KEEPS_EVERYTHING, TopicSettings, TopicSettingsReader

log = get_logger("storage.replicas")


class Replicas:
    """Owner of the partitions of this node and of the metadata that they follow."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        directories: LogDirectories,
        lanes: Mapping[str, DirectoryLane],
        purgatory: FetchPurgatory,
        clock: Clock,
        *,
        static: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`lanes` by the paths of `directories`; `static` are the broker settings of this node's configuration
        file.
        """
        self.image = MetadataImage()
        self.by_partition: dict[tuple[bytes, int], Replica] = {}
        self.newer_epochs = NewerEpochs()
        self.isr_changes = IsrChanges(node_id, lambda: self.image)
        self.reports = ReplicaReports(node_id)
        self.refused_while_absent = RefusedWhileAbsent(clock.monotonic)
        self.counts = NodeCounts(directories.flush_times)
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._directories = directories
        self._purgatory = purgatory
        self._clock = clock
        self._static = static
        self._settings = TopicSettingsReader(node_id, static)
        backoff_ms = self.broker_value("replica.fetch.backoff.ms")
        assert isinstance(backoff_ms, int)
        self.quotas = ReplicationQuotas(self.broker_value)
        self.followed = Followed(backoff_ms, self.quotas.follower)
        self._open_all = partial(open_all, directories, node_id)
        self._work = {
            path: DirectoryWork(
                lane,
                clock,
                open_all=self._open_all,
                remove_all=self._remove_all,
                on_opened=self._on_opened,
                on_set_aside=self._on_set_aside,
            )
            for path, lane in lanes.items()
        }
        self._places: dict[Replica, DirectoryWork] = {}
        self.moves = LogMoves(
            directories,
            lanes,
            broker_value=self.broker_value,
            on_moved=self._on_moved,
            clear_up=lambda path, work: self._work[path].clear_up(work),
        )
        self._changed = asyncio.Event()
        """Set when there is other metadata, and when logs were opened."""
        self._unnamed_since: dict[tuple[bytes, int], float] = {}
        """Since when partitions are asked for that these metadata do not name, by the monotonic clock, in seconds."""

    # -- looking up ---------------------------------------------------------------------------------------------

    def find(self, topic_id: bytes, index: int) -> Replica | None:
        """The partition, if this node has a replica of it."""
        return self.by_partition.get((topic_id, index))

    def absence(self, topic_id: bytes, index: int) -> int:
        """Kafka's error code for a partition that `find` did not find.

        UNKNOWN_TOPIC_ID says that the topic was never heard of here, which may be because it is new.
        """
        if topic_id in self.image.deleted_topics:
            return int(ErrorCode.unknown_topic_or_partition)
        if topic_id not in self.image.topics_by_id:
            return int(ErrorCode.unknown_topic_id)
        if self.image.partition(topic_id, index) is None:
            return int(ErrorCode.unknown_topic_or_partition)
        return NOT_LEADER

    def refuse(self, topic_id: bytes, index: int, records: Buffer) -> int:
        """As `absence`, of an append: should the partition come here, what was refused has to come first."""
        if topic_id not in self.image.deleted_topics:
            self.refused_while_absent.add((topic_id, index), records)
        return self.absence(topic_id, index)

    async def wait_until_open(self, keys: Iterable[tuple[bytes, int]]) -> None:
        """Wait until the logs of these partitions, (topic id, index) each, are open; OPENING_WAIT_MS_MAX at most.

        One that the metadata here does not name yet is waited for too: who asks may be a moment ahead. One that has
        been opening, or looked for while nothing names it, for so long is not: a client has its questions answered one
        after the other, and were each to wait, whatever it asks behind them would come late by as many seconds.
        """
        wanted = list(keys)
        seconds = max((self._seconds_to_come(*key) for key in wanted), default=0.0)
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                while any(self._seconds_to_come(*key) > 0 for key in wanted):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return  # what is not there now is refused, and the sender tries again

    def _seconds_to_come(self, topic_id: bytes, index: int) -> float:
        """How long a log that is not open may still be waited for; 0 or less where there is nothing to wait for."""
        seconds_max = limits.OPENING_WAIT_MS_MAX / 1000
        replica = self.find(topic_id, index)
        if replica is not None:
            open_by = replica.opening_since + seconds_max
            return open_by - self._clock.monotonic() if replica.is_opening else 0.0
        if self.image.partition(topic_id, index) is not None or topic_id in self.image.deleted_topics:
            return 0.0
        key, now = (topic_id, index), self._clock.monotonic()
        if key not in self._unnamed_since and len(self._unnamed_since) >= limits.UNNAMED_PARTITIONS_MAX:
            self._unnamed_since.clear()
        return self._unnamed_since.setdefault(key, now) + seconds_max - now

    @property
    def is_settled(self) -> bool:
        """Whether every log that the metadata asks for is open, or could not be opened."""
        return not self.moves.is_waited_for and all(work.is_settled for work in self._work.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be done on disk, and nothing is being done."""
        return self.moves.is_clear and all(work.is_idle for work in self._work.values())

    @property
    def offline_directories(self) -> Collection[str]:
        """The paths of the log directories that could not be read when the node started."""
        return self._directories.offline

    @property
    def stray_count(self) -> int:
        """Partitions on disk that are set aside."""
        return len(self._directories.strays.keys)

    def high_watermarks(self, lane: DirectoryLane | None = None) -> dict[PartitionKey, int]:
        """The high watermark of every open partition, or of those of one log directory."""
        return {
            (replica.topic, replica.index): replica.high_watermark
            for replica in self.by_partition.values()
            if replica.log is not None and (lane is None or replica.lane is lane)
        }

    def broker_value(self, name: str) -> ConfigValue:
        """The value of a broker setting as this node has it now, with what was changed while it runs."""
        return effective_broker_setting(self.image, name, node_id=self.node_id, static=self._static).value

    # -- following the metadata ---------------------------------------------------------------------------------

    def on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Follow the newest metadata; for MetadataSubscription.on_change."""
        old, self.image = self.image, new
        self._unnamed_since.clear()
        if new.configs is not old.configs:
            self.quotas.follow(new, self.node_id)
        changes = new.changes_since(old)
        if changes is None:
            self._follow_everything(old)
        else:
            for topic_id, index in changes.partitions:
                self._follow(topic_id, index, old)
            for topic_id in changes.topics:
                for index in range(_partition_count(old, topic_id)):
                    self._follow(topic_id, index, old)
            if changes.deleted_topics:
                self._on_topics_deleted(changes.deleted_topics)
            self._update_settings(changes.configs)
        if new.eligible_epochs is not old.eligible_epochs:
            # A follower that has everything does not fetch again: it may be let in by this alone.
            for replica in self.by_partition.values():
                self._look_at_followers(replica)
        self._changed.set()

    def _follow_everything(self, old: MetadataImage) -> None:
        for topic in self.image.topics_by_id.values():
            for index in range(len(topic.partitions)):
                self._follow(topic.topic_id, index, old)
        for replica in list(self.by_partition.values()):
            if self.image.partition(replica.topic_id, replica.index) is None:
                self._leave_absent(replica)
        self._on_topics_deleted(self.image.deleted_topics)
        self._update_all_settings()
        if self.image.revision > 0 and self.image.cluster_id == self._cluster_id:
            self._directories.forget_unclaimed()
            here = {(replica.topic, replica.index) for replica in self.by_partition.values()}
            self.moves.forget_unclaimed(here)

    def _follow(self, topic_id: bytes, index: int, old: MetadataImage) -> None:
        """Have the partition if the metadata says so, and take the part in it that it gives to this node; `old` is what
        was followed before.
        """
        replica = self.by_partition.get((topic_id, index))
        record = self.image.partition(topic_id, index)
        if record is None:
            if replica is not None:
                self._leave_absent(replica)
            return
        if self.node_id not in record.replicas:
            if replica is not None:
                # An order to one who was a replica; to one who just started it may be old news of a restored backup.
                self._leave(replica, is_order=self.node_id in replica.record.replicas)
            return
        topic = self.image.topics_by_id[topic_id]
        last = KEEPS_EVERYTHING if replica is None else replica.settings
        settings = self._settings.read(self.image, topic.name, last)
        if replica is None:
            replica = self._add(topic.name, topic_id, index, topic.internal, settings)
            # Created while this process followed the metadata, for topic ids are given once: it is on no disk.
            is_new = old.cluster_id == self._cluster_id and topic_id not in old.topics_by_id
            self.moves.when_clear((topic.name, index), partial(self._begin, replica, is_new=is_new))
        replica.internal = topic.internal
        replica.update_settings(settings)
        replica.follow(record)
        self.newer_epochs.on_followed(replica)
        self._look_at_followers(replica)
        if replica.is_offline and replica in self._places:
            self._places[replica].try_again(replica)

    def _look_at_followers(self, replica: Replica) -> None:
        """What the metadata say now of those who follow it may be what was waited for."""
        self.isr_changes.look_at(replica)
        replica.deletions.look(self.image.eligible_epochs)

    def _update_settings(self, resources: Collection[tuple[int, str]]) -> None:
        """Obey what was set on these resources; a broker's settings are the defaults of all topics."""
        if any(resource_type != TOPIC_RESOURCE for resource_type, _ in resources):
            self._update_all_settings()
            return
        for _, name in resources:
            topic = self.image.topics.get(name)
            if topic is not None:
                for index in range(len(topic.partitions)):
                    replica = self.by_partition.get((topic.topic_id, index))
                    if replica is not None:
                        self._update_settings_of(replica)

    def _update_all_settings(self) -> None:
        for replica in self.by_partition.values():
            self._update_settings_of(replica)

    def _update_settings_of(self, replica: Replica) -> None:
        replica.update_settings(self._settings.read(self.image, replica.topic, replica.settings))

    def _add(
        self, topic: str, topic_id: bytes, index: int, internal: bool, settings: TopicSettings
    ) -> Replica:
        replica = Replica(
            topic,
            topic_id,
            index,
            internal=internal,
            node_id=self.node_id,
            settings=settings,
            counts=self.counts.add_partition(topic),
            purgatory=self._purgatory,
            clock=self._clock,
            refused=self._take_refused(topic_id, index),
            followed=self.followed,
            reports=self.reports,
        )
        self.by_partition[topic_id, index] = replica
        return replica

    def _take_refused(self, topic_id: bytes, index: int) -> RefusedSequences:
        """What clients were told to send again to a partition that is here from now on."""
        refused = self.refused_while_absent.take((topic_id, index))
        if len(refused):
            expiration_ms = self.broker_value("producer.id.expiration.ms")
            assert isinstance(expiration_ms, int)
            refused.expire(expiration_ms / 1000)
        return refused

    def _leave_absent(self, replica: Replica) -> None:
        """The metadata does not have the partition; nothing follows from metadata of no or another cluster."""
        if self.image.revision > 0 and self.image.cluster_id == self._cluster_id:
            self._leave(replica, is_order=replica.topic_id in self.image.deleted_topics)

    def _leave(self, replica: Replica, *, is_order: bool) -> None:
        """Have the partition no longer: delete it by order, else set it aside."""
        if is_order:
            log.info("partition is removed from this node", partition=replica.name)
        else:
            log.warning(
                "the metadata does not know a partition that nobody deleted: it is kept as stray for a while",
                partition=replica.name,
                topic_id=str(uuid.UUID(bytes=replica.topic_id)),
                kept_hours=limits.STRAY_KEPT_MS // 3_600_000,
            )
        del self.by_partition[replica.topic_id, replica.index]
        self.counts.remove_partition(replica.topic)
        if replica in self._places:
            self._places[replica].leave(replica)
            self.moves.leave(replica, partial(self._remove, replica, is_order=is_order), is_order=is_order)
        self.newer_epochs.on_left(replica)
        self.isr_changes.on_left(replica)
        self.reports.on_left(replica)
        if replica.topic_id not in self.image.deleted_topics:
            # It may come again; what still waits for it is refused below, and remembered as well. Many that were
            # deleted would displace others.
            self.refused_while_absent.keep((replica.topic_id, replica.index), replica.appending.refused)
        replica.on_removed()

    def _on_topics_deleted(self, topic_ids: Container[bytes]) -> None:
        self.refused_while_absent.forget_topics(topic_ids)
        self._delete_strays(topic_ids)

    def _delete_strays(self, topic_ids: Container[bytes]) -> None:
        """Delete what was set aside of topics of which it is known by now that they were deleted."""
        doomed = [stray for stray in self._directories.strays.keys if stray.topic_id.bytes in topic_ids]
        if self.image.cluster_id == self._cluster_id:
            self._delete_set_aside(doomed)

    def _on_set_aside(self) -> None:
        self._delete_strays(self.image.deleted_topics)  # said meanwhile, when they were no strays yet

    def _delete_set_aside(self, strays: Iterable[StrayKey], grace_ms: int = 0) -> None:
        for stray in strays:
            work = self._work.get(self._directories.strays.path_of(stray))
            if work is not None:
                work.delete_stray(stray, grace_ms)

    async def expire_strays(self) -> None:
        """Delete what was set aside long enough ago. What is known again and could not be taken back is kept."""
        expired = self._directories.strays.expired(limits.STRAY_KEPT_MS)
        unknown = [
            stray for stray in expired if self.image.partition(stray.topic_id.bytes, stray.partition) is None
        ]
        self._delete_set_aside(unknown, limits.STRAY_KEPT_MS)

    # -- work on disk -------------------------------------------------------------------------------------------

    def _place(self, replica: Replica, *, is_new: bool) -> DirectoryWork:
        """Give the partition its directory; a new one goes where the disk answers, if there is such a place."""
        unwell = [path for path, work in self._work.items() if work.lane.is_unwell]
        path = self._directories.claim(
            replica.topic,
            replica.index,
            uuid.UUID(bytes=replica.topic_id),
            is_new=is_new,
            avoid=unwell,
            cordoned=self.moves.cordoned,
            preferred=self.moves.take_preferred(replica.topic, replica.index),
        )
        self._places[replica] = work = self._work[path]
        return work

    def _begin(self, replica: Replica, *, is_new: bool) -> None:
        """Have the partition's log opened or created, unless it has left again."""
        if self.find(replica.topic_id, replica.index) is not replica:
            return
        if self.moves.is_given_up((replica.topic, replica.index)):
            replica.on_open_failed()
        else:
            self._place(replica, is_new=is_new).open(replica)
        self._changed.set()

    def _remove(self, replica: Replica, *, is_order: bool) -> None:
        """Remove what a replica that has left has on disk, or set it aside."""
        work = self._places.pop(replica)
        if is_order:
            work.delete(replica)
        else:
            work.set_aside(replica)
        self._directories.release(replica.topic, replica.index)

    async def recover(self) -> None:
        """Open every partition that is on disk, before the node takes part in the cluster.

        Each log directory in its own threads, so that a slow one does not hold up another.
        """
        by_lane: dict[DirectoryLane, list[Replica]] = {}
        for topic, index, topic_id in self._directories.found:
            if topic_id is None:
                log.warning(
                    "a partition without partition.metadata is left alone", partition=f"{topic}-{index}"
                )
                continue
            replica = self._add(topic, topic_id.bytes, index, False, KEEPS_EVERYTHING)
            by_lane.setdefault(self._place(replica, is_new=False).lane, []).append(replica)
        work = [
            self._recover(lane, replicas[start : start + limits.RECOVERY_BATCH])
            for lane, replicas in by_lane.items()
            for start in range(0, len(replicas), limits.RECOVERY_BATCH)
        ]
        await asyncio.gather(*work)
        if work:
            log.info("opened the partitions on disk", partitions=len(self.by_partition))

    async def _recover(self, lane: DirectoryLane, batch: Sequence[Replica]) -> None:
        loop = asyncio.get_running_loop()
        self._on_opened(lane, await loop.run_in_executor(lane.opening, self._open_all, lane.path, batch))

    async def run(self) -> None:
        """Create, open and delete logs as the metadata asks, until cancelled; each directory at its own pace."""
        async with asyncio.TaskGroup() as tasks:
            for work in self._work.values():
                tasks.create_task(work.run(), name="log directory")
            tasks.create_task(self.moves.run(), name="moves between log directories")

    def _on_opened(self, lane: DirectoryLane, opened: Iterable[Opened]) -> None:
        for replica, found, high_watermark, moved_to, failure in opened:
            if self.find(replica.topic_id, replica.index) is not replica:
                continue  # removed meanwhile; its files go with the next deletions
            work = self._places[replica]
            if moved_to:
                work.leave(replica)
                self._places[replica] = self._work[moved_to]
                self._places[replica].open(replica)
            elif failure is not None:
                replica.on_open_failed()
                work.on_open_failed(replica, failure)
            else:
                assert found is not None, "a log is opened, or it is not"
                replica.on_open(found, high_watermark, lane)
                work.on_opened(replica)
                self.newer_epochs.on_followed(replica)
                self.moves.on_opened(replica)
        self._changed.set()

    def _on_moved(self, replica: Replica, path: str) -> None:
        self._directories.relocate((replica.topic, replica.index), path)
        self._places[replica] = self._work[path]

    def _remove_all(
        self, doomed: Iterable[Replica], aside: Iterable[Replica], strays: Mapping[StrayKey, int]
    ) -> None:
        """In a thread: delete and set aside."""
        for replica in doomed:
            topic_id = uuid.UUID(bytes=replica.topic_id)
            self._directories.delete_partition(replica.topic, replica.index, topic_id)
        for replica in aside:
            topic_id = uuid.UUID(bytes=replica.topic_id)
            self._directories.set_aside(replica.topic, replica.index, topic_id, replica.high_watermark)
        for stray, grace_ms in strays.items():
            self._directories.strays.delete(stray, grace_ms=grace_ms)


def _partition_count(image: MetadataImage, topic_id: bytes) -> int:
    topic = image.topics_by_id.get(topic_id)
    return 0 if topic is None else len(topic.partitions)
