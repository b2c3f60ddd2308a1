"""The logs of replicas are opened, or created: for the threads of a log directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.errors import LogStoreError
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER
from barnabas.storage.directories.directory_work import Opened
from barnabas.storage.directories.errors import DirectoryOffline
from barnabas.storage.directories.failed_openings import is_for_now
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.replica.replica import Replica

log = get_logger("storage.replicas")


def open_all(directories: LogDirectories, node_id: int, path: str, batch: Iterable[Replica]) -> list[Opened]:
    """Open or create the logs in the directory of the path; one that fails does not touch the others."""
    opened: list[Opened] = []
    for replica in batch:
        try:
            opened.append(_open(directories, node_id, path, replica))
        except DirectoryOffline as error:
            opened.append(Opened(replica, failure=error))
        except (LogStoreError, KafkaError) as error:
            if not is_for_now(error):
                log.error("cannot open a partition", partition=replica.name, reason=str(error))
            opened.append(Opened(replica, failure=error))
        except Exception as error:
            log.exception("cannot open a partition", partition=replica.name)
            opened.append(Opened(replica, failure=error))
    return opened


def _open(directories: LogDirectories, node_id: int, path: str, replica: Replica) -> Opened:
    topic_id = uuid.UUID(bytes=replica.topic_id)
    record: PartitionRecord = replica.record  # the event loop may put another one in its place meanwhile
    may_begin_anew = _may_begin_anew(record, node_id)
    home = directories.find_home(path, replica.topic, replica.index, topic_id, may_begin_anew=may_begin_anew)
    if home != path:
        return Opened(replica, moved_to=home)
    found, high_watermark = directories.open_partition(
        path,
        replica.topic,
        replica.index,
        topic_id,
        replica.settings.log,
        may_begin_anew=may_begin_anew,
    )
    if record.leader == node_id:
        found.assign_epoch_start(record.leader_epoch)
    return Opened(replica, found, high_watermark)


def _may_begin_anew(record: PartitionRecord, node_id: int) -> bool:
    """Whether the node may begin a log anew that it has lost. Who led with that would have the others drop what they
    have, so nobody may who leads, or might be elected without being asked for.
    """
    if len(record.replicas) == 1:  # there are none before the metadata are known
        return True  # nobody else has anything to drop
    if record.leader == NO_LEADER:
        return False  # who led last is in line as well
    return node_id not in {record.leader, *record.isr, *record.eligible_leader_replicas}
