"""A partition gives up its place in a log directory without being deleted (`checkpoints/stray`), and gets it back.

While checkpoints on disk name one that has no directory of its name, one of `deleted_directories` says that it is not
missing; the stray one cannot say it, for another topic of its name may have come and be lost meanwhile. Nor does
anything name a stray one: gone when the node starts, it is missed by nobody.
"""

from __future__ import annotations

import contextlib
import os

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.checkpoints.stray import StrayFacts, StrayKey, remove_facts, stray_name, write_facts
from barnabas.log.deleted_directories import gone_name
from barnabas.log.errors import LogStoreError, storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import MoveFacts
from barnabas.log.small_files import exists, sync_directory


def set_aside(home: LogDirectory, topic: str, stray: StrayKey, high_watermark: int) -> StrayFacts | None:
    """Close a partition and make it a stray one; None when it is not on disk. Raises KAFKA_STORAGE_ERROR, and
    LogStoreError where it was set aside here before, and not taken back: both stay as they are.
    """
    key = (topic, stray.partition)
    files, directory = home.environment.files, os.path.join(home.path, directory_name(*key))
    aside = os.path.join(home.path, stray_name(topic, stray))
    # If it cannot be closed, what its checkpoints say already holds; the rest is recovered if it is taken back.
    with contextlib.suppress(KafkaError):
        home.close_partition(*key)
    facts = StrayFacts(
        topic,
        home.environment.clock.now_ms(),
        home.recovery_points.get(key, 0),
        home.log_start_offsets.get(key, 0),
        max(high_watermark, home.high_watermarks.get(key, 0)),
        home.cleaner_offsets.get(key, -1),
    )
    with storage_errors(home.path):
        if not exists(files, directory):
            return None  # nobody said that it is deleted: who asks for it hears that it is lost
        if exists(files, aside):
            raise LogStoreError(
                f"{directory} is not set aside, for {aside} is an earlier copy of the same partition: stop the node, "
                "and move the one away that has less"
            )
        write_facts(files, directory, facts)
        home.deleted.note(key, home.environment.new_id())
        try:
            files.rename(directory, aside)
        except OSError:
            home.deleted.remove([key])
            raise
        # Durably, before another directory has the name. A disk that does not say so changes nothing for this process.
        with contextlib.suppress(OSError):
            sync_directory(files, home.path)
    home.forget(key)
    return facts


def take_back(home: LogDirectory, topic: str, stray: StrayKey, facts: StrayFacts) -> bool:
    """Make a stray partition one of `topic` again, not opened yet. False where it is gone: the checkpoints then say
    what there was, and so it is missing, also at the next start. Raises KAFKA_STORAGE_ERROR.
    """
    key = (topic, stray.partition)
    files, directory = home.environment.files, os.path.join(home.path, directory_name(*key))
    aside = os.path.join(home.path, stray_name(facts.topic, stray))
    home.forget_place(key)
    with storage_errors(home.path):
        is_there = exists(files, aside)
        if is_there:
            home.deleted.note(key, home.environment.new_id())
    # First what says where its log begins: a crash in between must not bring deleted records back.
    home.adopt(
        key,
        MoveFacts(
            facts.recovery_point,
            facts.log_start_offset,
            facts.high_watermark,
            facts.first_dirty_offset,
        ),
    )
    home.write_checkpoints()
    if not is_there:
        return False
    with storage_errors(home.path):
        files.rename(aside, directory)
    home.deleted.remove([key])
    with contextlib.suppress(OSError):  # it is back; setting it aside again writes them anew
        remove_facts(files, directory)
    return True


def delete_stray(home: LogDirectory, stray: StrayKey, facts: StrayFacts) -> None:
    """Delete a partition that is set aside. Raises KAFKA_STORAGE_ERROR."""
    key = (facts.topic, stray.partition)
    files, gone = home.environment.files, os.path.join(home.path, gone_name(*key, home.environment.new_id()))
    with storage_errors(home.path):
        files.rename(os.path.join(home.path, stray_name(facts.topic, stray)), gone)
    with contextlib.suppress(OSError):  # else it may come back: it stays whole until the next start
        sync_directory(files, home.path)
        files.remove_tree(gone)
    home.forget_marked(key)  # of a `take_back` that failed the checkpoints may speak yet
