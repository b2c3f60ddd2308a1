"""Which nodes get no new replicas, because all of their log directories are cordoned (KIP-1066)."""

from __future__ import annotations

from barnabas.kernel.cordoned import are_all_cordoned
from barnabas.messages.metadata_pb2 import NodeRecord
from barnabas.metadata.config_def import split_list
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import MetadataImage


def uncordoned_nodes(image: MetadataImage) -> list[NodeRecord]:
    """The nodes that new replicas may go to by themselves, by id. Who names a node by hand is not held back."""
    return [node for _, node in sorted(image.nodes.items()) if not is_cordoned(image, node)]


def is_cordoned(image: MetadataImage, node: NodeRecord) -> bool:
    """Whether cordoned.log.dirs of the node has all of its directories, by name or by `*`."""
    cordoned = effective_broker_setting(image, "cordoned.log.dirs", node_id=node.node_id).value
    if not cordoned:
        return False
    assert isinstance(cordoned, tuple)
    directories = split_list(node.configs.get("log.dirs", ""))
    return are_all_cordoned(directories, cordoned)
