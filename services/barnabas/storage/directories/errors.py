"""Why a partition's log is not opened although its disk refuses nothing now."""

from __future__ import annotations

from barnabas.kernel.errors import ErrorCode, KafkaError


class LogLost(KafkaError):
    """A log that others copy was here, and is gone, or not all of it is back: whoever led with what there is would have
    them drop what they have.
    """

    def __init__(self, partition: str) -> None:
        super().__init__(
            ErrorCode.kafka_storage_error,
            f"the directory of {partition} is gone, or came back without all that it had: this node has no replica of "
            "it for now. Bring it back, renamed to its place in one step. If another replica leads, this one is copied "
            "as soon as it is neither in sync nor eligible: if that takes long, start the node again. If none can "
            "lead: kafka-leader-election --election-type unclean, which loses what the one that is elected lacks",
        )


class DirectoryOffline(KafkaError):
    """The partition's log directory could not be read when the node started; it has been said why."""

    def __init__(self, path: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{path} is offline until the node is started again")
