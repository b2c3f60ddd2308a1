"""What producers are to send again to partitions that this node does not have: not yet, or not any more.

Gateways may hear of a new topic, or of a new leader, a moment before this node does. What they send then is refused;
the batches behind it may come when the partition is here. Its log knows nothing of the producer and would take one of
them for its first, unless it is told what was refused before there was a log.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.records.batch import Buffer
from barnabas.storage import limits

Key = tuple[bytes, int]
"""(topic id, index)"""


class RefusedWhileAbsent:
    """Owns the refused sequences of the partitions that are not here. For the event loop.

    Who sends to partitions that nobody has heard of takes a bounded amount of memory: beyond the limit the partition
    remembered first is forgotten.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` as in `RefusedSequences`."""
        self._now = now
        self._partitions: dict[Key, RefusedSequences] = {}
        self._sizes: dict[Key, int] = {}
        """What each counts against the limit: itself and its producers."""
        self._size = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, key: Key, records: Buffer) -> None:
        """A batch is refused because its partition is not here. One without a sequence leaves nothing."""
        refused = self._partitions.get(key)
        if refused is None:
            refused = RefusedSequences(self._now)
        refused.add(records)
        if len(refused):
            self.keep(key, refused)

    def keep(self, key: Key, refused: RefusedSequences) -> None:
        """The partition is not here, or no longer; who still has to do with its log may add to `refused`.

        What is added so is counted with the partition's next refusal: it is no more than what waited for its log.
        """
        self._partitions[key] = refused
        size = 1 + len(refused)
        self._size += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while self._size > limits.REFUSED_WHILE_ABSENT_MAX:
            self._forget(next(iter(self._partitions)))

    def take(self, key: Key) -> RefusedSequences:
        """What the partition's log has to know: the partition is here from now on."""
        refused = self._partitions.get(key)
        if refused is None:
            return RefusedSequences(self._now)
        self._forget(key)
        return refused

    def forget_topics(self, topic_ids: Container[bytes]) -> None:
        """These topics were deleted: none of their partitions will come again."""
        for key in [each for each in self._partitions if each[0] in topic_ids]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self._partitions[key]
        self._size -= self._sizes.pop(key)
