"""`partition.metadata`: which topic, by id, a partition directory belongs to (KIP-516); and directory names."""

from __future__ import annotations

import base64
import binascii
import os
import re
import uuid

from barnabas.kernel.files import NAME_BYTES_MAX, Files
from barnabas.log.errors import LogStoreError
from barnabas.log.small_files import read_whole, write_atomically

FILE_NAME = "partition.metadata"
_VERSION = 0
_DIRECTORY = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)$")


def uuid_to_text(value: uuid.UUID) -> str:
    """A uuid as Kafka writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> uuid.UUID:
    """The inverse of `uuid_to_text`; raises ValueError."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a base64 uuid") from error


def directory_name(topic: str, partition: int) -> str:
    """The name of a partition's directory."""
    return f"{topic}-{partition}"


def cut_name(topic: str, rest: str) -> str:
    """The name of a directory that is not the partition's own: the topic's part is cut off where it would be too long,
    as in Kafka.
    """
    return topic[: NAME_BYTES_MAX - len(rest)] + rest


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """(topic, partition), or None when the directory is not a partition's."""
    match = _DIRECTORY.match(name)
    return None if match is None else (match["topic"], int(match["partition"]))


def read_topic_id(files: Files, directory: str) -> uuid.UUID | None:
    """The topic id in the file; None when there is none. Raises LogStoreError for one that cannot be read.

    A file without content is none: the power went before it had reached the disk, and so before anything of the log
    was durable (`LogFlusher`).
    """
    path = f"{directory}/{FILE_NAME}"
    try:
        text = read_whole(files, path).decode().strip("\0")
        if not text:
            return None
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        if fields["version"] != str(_VERSION):
            raise ValueError(f"version {fields['version']}")
        return uuid_from_text(fields["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise LogStoreError(f"{path} cannot be read ({error}); restore it or remove the partition") from error


def ensure_topic_id(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    """Write the file, or check that it names the same topic; raises LogStoreError when it names another."""
    present = read_topic_id(files, directory)
    if present is None:
        text = f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}"
        write_atomically(files, os.path.join(directory, FILE_NAME), text.encode(), sync=False)
    elif present != topic_id:
        raise LogStoreError(
            f"{directory} belongs to topic id {uuid_to_text(present)}, not {uuid_to_text(topic_id)}: a topic of "
            f"the same name was deleted and created again; move the directory away"
        )
