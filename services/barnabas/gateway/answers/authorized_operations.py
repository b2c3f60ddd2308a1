"""What a client may do, as a bit field: bit n for the operation with code n (KIP-430).

Nobody is refused anything while there is no authorizer, so a client may do all that its kind of resource knows; a
Kafka without an authorizer answers the same.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's codes of operations (Java's AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED_FOR: Final = -(2**31)

_CONFIGS: Final = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

TOPIC_OPERATIONS: Final = _bits(
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, *_CONFIGS
)
GROUP_OPERATIONS: Final = _bits(Operation.READ, Operation.DELETE, *_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE, *_CONFIGS
)
