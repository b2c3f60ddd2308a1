"""What can be wrong with a store on disk when it is opened."""

from __future__ import annotations


class LogStoreError(Exception):
    """The store cannot be used as it is; nothing in it was changed. The message says what to do.

    Raised only while opening: a store that belongs to another cluster or node, is in use by another process, or has a
    file that cannot be read. What goes wrong later is a `KafkaError` with KAFKA_STORAGE_ERROR.
    """
