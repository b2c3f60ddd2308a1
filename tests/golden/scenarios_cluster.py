"""What a cluster says of itself: versions, brokers, topics, log directories."""

from __future__ import annotations

from typing import Any

from golden_session import SOFTWARE, UNKNOWN_TOPIC, Run, scenario

API_VERSIONS, METADATA, ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS, LIST_REASSIGNMENTS = 18, 3, 34, 35, 46
DESCRIBE_SCRAM, DESCRIBE_QUORUM, UPDATE_FEATURES, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = (
    50,
    55,
    57,
    60,
    75,
)
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, UNREGISTER_BROKER = 29, 30, 31, 64
PRODUCE = 0

READER = {"principal": "User:reader", "host": "*", "operation": 3, "permission_type": 3}
ACL = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, **READER}
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@scenario(API_VERSIONS)
def api_versions(run: Run) -> None:
    run.ask("asked", SOFTWARE)
    if run.version >= 3:
        for step, name, version in (
            ("no name", "", "1.0"),
            ("no version", "golden", ""),
            ("bad name", "not a name!", "1.0"),
            ("bad version", "golden", "-1.0-"),
        ):
            run.ask(step, {"client_software_name": name, "client_software_version": version})


@scenario(METADATA)
def metadata(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("known", {"topics": [{"name": topic.name}]})
    # Before version 4 every topic that is asked for comes to be: the one that nobody has must not.
    missing = UNKNOWN_TOPIC.name if run.version >= 4 else run.name("missing")
    unknown: dict[str, Any] = {"topics": [{"name": missing}], "allow_auto_topic_creation": False}
    run.ask("unknown, not to be created" if run.version >= 4 else "unknown", unknown)
    for step, name in (
        ("empty name", ""),
        ("name with a space", "not a name"),
        ("name with a slash", "not/a/name"),
        ("dot", "."),
        ("dots", ".."),
        ("longest name", "n" * 249),
        ("too long a name", "n" * 250),
    ):
        run.ask(step, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    run.ask(
        "known and unknown",
        {"topics": [{"name": topic.name}, *unknown["topics"]], "allow_auto_topic_creation": False},
    )
    run.ask("known twice", {"topics": [{"name": topic.name}, {"name": topic.name}]})
    if run.version >= 1:
        run.ask("no topics", {"topics": []})
    if run.version >= 8:
        run.ask(
            "with authorized operations",
            {
                "topics": [{"name": topic.name}, *unknown["topics"], {"name": "."}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
                "include_cluster_authorized_operations": True,
            },
        )


@scenario(METADATA)
def metadata_by_id(run: Run) -> None:
    if run.version < 10:
        return
    topic = run.topic()
    run.ask("null name, id", {"topics": [{"name": None, "topic_id": topic.topic_id}]})
    run.ask("null name, unknown id", {"topics": [{"name": None, "topic_id": UNKNOWN_TOPIC.topic_id}]})
    run.ask("null name, no id", {"topics": [{"name": None, "topic_id": None}]})
    run.ask(
        "unknown id, with authorized operations",
        {
            "topics": [{"name": None, "topic_id": UNKNOWN_TOPIC.topic_id}],
            "include_topic_authorized_operations": True,
        },
    )
    run.ask("name and id", {"topics": [{"name": topic.name, "topic_id": topic.topic_id}]})


@scenario(METADATA)
def metadata_creates(run: Run) -> None:
    name = run.name("created")
    body = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    run.ask("new", body)
    created = run.wait(
        METADATA, {**body, "allow_auto_topic_creation": False}, lambda answer: not answer.topics[0].error_code
    )
    run.know(name, created.topics[0].topic_id)
    run.wait_readable(name)
    run.ask("created", body)
    run.ask("colliding", {**body, "topics": [{"name": name.replace("_", ".")}]})


@scenario(DESCRIBE_CLUSTER)
def describe_cluster(run: Run) -> None:
    run.ask("asked", {})
    run.ask("with authorized operations", {"include_cluster_authorized_operations": True})
    if run.version >= 1:
        run.ask("controllers", {"endpoint_type": 2})
        run.ask("endpoints of another type", {"endpoint_type": 3})
    if run.version >= 2:
        run.ask("with fenced brokers", {"include_fenced_brokers": True})


@scenario(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(run: Run) -> None:
    first, second = run.topic("a", partitions=3), run.topic("b", partitions=2)
    both = [{"name": second.name}, {"name": first.name}]
    run.ask("both", {"topics": both, "response_partition_limit": 2000})
    run.ask("unknown", {"topics": [{"name": UNKNOWN_TOPIC.name}], "response_partition_limit": 10})
    run.ask("invalid name", {"topics": [{"name": "not a name"}], "response_partition_limit": 10})
    run.ask(
        "known and unknown",
        {"topics": [{"name": first.name}, {"name": UNKNOWN_TOPIC.name}], "response_partition_limit": 10},
    )
    for limit in (0, 1, 2, 3, 4, 5, -1):
        run.ask(f"limit {limit}", {"topics": both, "response_partition_limit": limit})
    for name, index in (
        (first.name, 1),
        (first.name, 3),
        (second.name, 0),
        (second.name, 1),
        ("c", 0),
        (first.name, -1),
    ):
        cursor = {"topic_name": name, "partition_index": index}
        step = f"from {name.rpartition('-')[2]} {index}"
        run.ask(step, {"topics": both, "response_partition_limit": 2, "cursor": cursor})
    run.ask("twice", {"topics": [{"name": first.name}] * 2, "response_partition_limit": 10})


@scenario(LIST_REASSIGNMENTS)
def list_partition_reassignments(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("all", {"timeout": 10_000, "topics": None})
    run.ask("none", {"timeout": 10_000, "topics": []})
    run.ask("known", {"timeout": 10_000, "topics": [{"name": topic.name, "partition_indexes": [0, 1, 7]}]})
    run.ask(
        "unknown", {"timeout": 10_000, "topics": [{"name": UNKNOWN_TOPIC.name, "partition_indexes": [0]}]}
    )


@scenario(DESCRIBE_LOG_DIRS)
def describe_log_dirs(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("known", {"topics": [{"topic": topic.name, "partitions": [0, 1]}]})
    run.ask("one partition", {"topics": [{"topic": topic.name, "partitions": [1]}]})
    run.ask("no partitions", {"topics": [{"topic": topic.name, "partitions": []}]})
    run.ask("unknown partition", {"topics": [{"topic": topic.name, "partitions": [9]}]})
    run.ask("unknown", {"topics": [{"topic": UNKNOWN_TOPIC.name, "partitions": [0]}]})
    run.ask("no topics", {"topics": []})


@scenario(ALTER_LOG_DIRS)
def alter_replica_log_dirs(run: Run) -> None:
    topic, more = run.topic(partitions=2), run.topic("more")
    (directory, *_) = run.quietly(DESCRIBE_LOG_DIRS, {"topics": []}).results
    here = directory.log_dir

    def alter(step: str, *dirs: tuple[str, str, list[int]]) -> None:
        wanted = [
            {"path": path, "topics": [{"name": name, "partitions": parts}]} for path, name, parts in dirs
        ]
        run.ask(step, {"dirs": wanted})

    alter("where it is", (here, topic.name, [0, 1]))
    alter("several topics", (here, topic.name, [1]), (here, more.name, [0]))
    alter("no such directory", ("/nowhere", topic.name, [0]))
    alter("another way to write it", (here + "/", topic.name, [0]))
    alter("no path", ("", topic.name, [0]))
    alter("no such partition", (here, topic.name, [0, 7]))
    alter("no such topic", (here, run.name("nobody"), [0]))
    alter("too long a name", (here, "x" * 240, [0]))
    alter("too long, and no such directory", ("/nowhere", "x" * 240, [0]))
    alter("twice", ("/nowhere", topic.name, [0]), (here, topic.name, [0]))
    alter("no partitions", (here, topic.name, []))
    alter("nothing")


@scenario(DESCRIBE_QUORUM)
def describe_quorum(run: Run) -> None:
    metadata_log = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    run.ask("metadata log", {"topics": [metadata_log]})
    run.ask("no topics", {"topics": []})
    run.ask("another topic", {"topics": [{**metadata_log, "topic_name": UNKNOWN_TOPIC.name}]})
    run.ask("another partition", {"topics": [{**metadata_log, "partitions": [{"partition_index": 1}]}]})


@scenario(DESCRIBE_SCRAM)
def describe_user_scram_credentials(run: Run) -> None:
    run.ask("everyone", {"users": None})
    run.ask("nobody", {"users": []})
    run.ask("unknown", {"users": [{"name": "nobody"}]})
    run.ask("twice", {"users": [{"name": "nobody"}, {"name": "nobody"}, {"name": "other"}]})
    run.ask("empty name", {"users": [{"name": ""}]})


@scenario(DESCRIBE_ACLS)
def describe_acls(run: Run) -> None:
    run.ask("all", ANY_ACL)
    run.ask("of a topic", {**ANY_ACL, "resource_type_filter": 2, "resource_name_filter": "orders"})


@scenario(CREATE_ACLS)
def create_acls(run: Run) -> None:
    run.ask("one", {"creations": [ACL]})
    run.ask("twice", {"creations": [ACL, ACL]})
    run.ask("none", {"creations": []})


@scenario(DELETE_ACLS)
def delete_acls(run: Run) -> None:
    run.ask("one", {"filters": [ANY_ACL]})
    run.ask("twice", {"filters": [ANY_ACL, ANY_ACL]})
    run.ask("none", {"filters": []})


@scenario(UNREGISTER_BROKER)
def unregister_broker(run: Run) -> None:
    run.ask("unknown", {"broker_id": 99})
    run.ask("negative", {"broker_id": -1})


@scenario(UPDATE_FEATURES)
def update_features(run: Run) -> None:
    def update(step: str, *features: dict[str, Any], validate_only: bool = True) -> None:
        run.ask(step, {"timeout": 10_000, "feature_updates": features, "validate_only": validate_only})

    if run.version >= 1:
        update("nothing")
        update("unknown", {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1})
        update("same level", {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1})
        update("too high", {"feature": "group.version", "max_version_level": 99, "upgrade_type": 1})
        update("negative", {"feature": "group.version", "max_version_level": -1, "upgrade_type": 1})
        update(
            "down, asked as up", {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 1}
        )
        update("down", {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 2})
        update("unknown type", {"feature": "group.version", "max_version_level": 1, "upgrade_type": 9})
        update(
            "metadata version down",
            {"feature": "metadata.version", "max_version_level": 29, "upgrade_type": 2},
        )
    else:
        update("unknown", {"feature": "no.such.feature", "max_version_level": 1}, validate_only=False)
        update("too high", {"feature": "group.version", "max_version_level": 99}, validate_only=False)
