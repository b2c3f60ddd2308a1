"""`meta.properties`: to which cluster and node a log directory belongs, and its own id (KIP-631, KIP-858)."""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.partition_metadata import uuid_from_text, uuid_to_text
from barnabas.log.errors import LogStoreError
from barnabas.log.small_files import read_whole, write_atomically

FILE_NAME = "meta.properties"
_VERSION = "1"


class MetaProperties(NamedTuple):
    """What the file says."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """The file's content; None when there is none. Raises LogStoreError for a file that cannot be read."""
    path = os.path.join(directory, FILE_NAME)
    try:
        text = read_whole(files, path).decode()
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, OSError) as error:
        raise LogStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}, not {_VERSION}")
        directory_id = uuid_from_text(fields["directory.id"])
        return MetaProperties(fields["cluster.id"], int(fields["node.id"]), directory_id)
    except (KeyError, ValueError) as error:
        raise LogStoreError(f"{path} cannot be read ({error}); restore it from a backup") from error


def check_meta_properties(
    files: Files, directory: str, cluster_id: str, node_id: int
) -> MetaProperties | None:
    """The file's content, once it names this cluster and node. Raises LogStoreError when it names others."""
    present = read_meta_properties(files, directory)
    if present is not None and present.cluster_id != cluster_id:
        raise LogStoreError(
            f"{directory} belongs to cluster {present.cluster_id}, this is cluster {cluster_id}: "
            f"give the node a log directory of its own"
        )
    if present is not None and present.node_id != node_id:
        raise LogStoreError(
            f"{directory} belongs to node {present.node_id}, this is node {node_id}: "
            f"give the node a log directory of its own"
        )
    return present


def write_meta_properties(files: Files, directory: str, properties: MetaProperties) -> None:
    """Write the file, durable."""
    text = (
        f"#\ncluster.id={properties.cluster_id}\ndirectory.id={uuid_to_text(properties.directory_id)}\n"
        f"node.id={properties.node_id}\nversion={_VERSION}\n"
    )
    write_atomically(files, os.path.join(directory, FILE_NAME), text.encode(), sync=True)
