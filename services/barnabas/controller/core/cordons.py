"""Which nodes get no new replicas, because all of their log directories are cordoned (KIP-1066)."""

from __future__ import annotations

from typing import Final

from barnabas.kernel.cordoned import are_all_cordoned, problem_of_cordons
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import NodeRecord
from barnabas.metadata.config_def import split_list
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import MetadataImage

CORDONED: Final = "cordoned.log.dirs"


def uncordoned_nodes(image: MetadataImage) -> list[NodeRecord]:
    """The nodes that new replicas may go to by themselves, by id. Who names a node by hand is not held back."""
    return [node for _, node in sorted(image.nodes.items()) if not is_cordoned(image, node)]


def is_cordoned(image: MetadataImage, node: NodeRecord) -> bool:
    """Whether cordoned.log.dirs of the node has all of its directories that work, by name or by `*`."""
    cordoned = effective_broker_setting(image, CORDONED, node_id=node.node_id).value
    if not cordoned:
        return False
    assert isinstance(cordoned, tuple)
    offline = node.offline_log_dirs[:]
    return are_all_cordoned([each for each in _log_dirs(node) if each not in offline], cordoned)


def check_cordons(node: NodeRecord, cordoned: str) -> None:
    """Raises KafkaError INVALID_REQUEST for a value that names what is no log directory of the node."""
    problem = problem_of_cordons(_log_dirs(node), split_list(cordoned))
    if problem:
        raise KafkaError(ErrorCode.invalid_request, problem)


def _log_dirs(node: NodeRecord) -> tuple[str, ...]:
    return split_list(node.configs.get("log.dirs", ""))
