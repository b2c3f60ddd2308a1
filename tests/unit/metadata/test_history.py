"""Which metadata continue which: an older revision never, a restored backup not even when it has grown further."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.messages.controller_pb2 import MetadataDelta, WatchRequest
from barnabas.messages.metadata_pb2 import (
    ClusterRecord,
    GatewayRecord,
    MetadataRecord,
    Term,
    TermsRecord,
)
from barnabas.metadata import history
from barnabas.metadata.history import HistoryRefused, check_continues, term_id
from barnabas.metadata.image import CLUSTER_KEY, TERMS_KEY, MetadataImage
from barnabas.metadata.subscription import MetadataSubscription


def terms(**first_revisions: int) -> MetadataRecord:
    listed = [Term(term_id=name, first_revision=first) for name, first in first_revisions.items()]
    return MetadataRecord(key=TERMS_KEY, terms=TermsRecord(terms=listed))


def image(revision: int, **first_revisions: int) -> MetadataImage:
    return MetadataImage().apply([terms(**first_revisions)] if first_revisions else [], revision)


def continues(offered: MetadataImage, known_revision: int, known_term_id: str) -> bool:
    try:
        check_continues(offered, known_revision, known_term_id)
    except HistoryRefused:
        return False
    return True


@pytest.mark.parametrize(
    ("revision", "term", "accepted"),
    [
        (0, "", True),
        (90, "a", True),
        (100, "a", True),
        (101, "a", False),  # the backup is of revision 100: what "a" did after it is not in this history
        (120, "a", False),
        (130, "b", False),
        (110, "c", True),
        (200, "c", True),
        (201, "c", False),
        (150, "", True),
        (201, "", False),
    ],
)
def test_who_may_follow_a_restored_backup(revision: int, term: str, accepted: bool) -> None:
    """The backup was taken in term a at revision 100; b came after it, and c with the restored store."""
    assert continues(image(200, a=50, c=101), revision, term) is accepted


def test_terms_that_are_too_old_to_be_kept_are_judged_by_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TERMS_MAX", 2)
    assert continues(image(200, c=100, d=150), 90, "a")
    assert not continues(image(200, c=100, d=150), 110, "a")
    assert term_id(image(200, c=100, d=150)) == "d"


CLUSTER = MetadataRecord(key=CLUSTER_KEY, cluster=ClusterRecord(cluster_id="c"))
OTHER_CLUSTER = MetadataRecord(key=CLUSTER_KEY, cluster=ClusterRecord(cluster_id="d"))
GATEWAY = MetadataRecord(key="gateways/g", gateway=GatewayRecord(gateway_id="g"))


@pytest.mark.parametrize(
    "offered",
    [
        MetadataDelta(revision=100, snapshot=True, records=[CLUSTER, terms(a=50)]),
        MetadataDelta(revision=500, snapshot=True, records=[CLUSTER, terms(x=101)]),
        MetadataDelta(revision=500, snapshot=True, records=[OTHER_CLUSTER, terms(a=50)]),
        MetadataDelta(revision=500, snapshot=True),
        MetadataDelta(revision=120, records=[MetadataRecord(key="gateways/g")]),
    ],
)
async def test_a_subscriber_keeps_its_image_when_it_is_offered_other_metadata(offered: MetadataDelta) -> None:
    network: Any = SimpleNamespace(connect_controller=lambda address: None)
    subscription = MetadataSubscription(network, ["unix:/nobody"], WatchRequest)
    seen: list[int] = []
    subscription.on_change(lambda _, new: seen.append(new.revision))
    subscription._replay(MetadataDelta(revision=120, snapshot=True, records=[CLUSTER, terms(a=50), GATEWAY]))
    kept = subscription.image
    with pytest.raises(HistoryRefused):
        subscription._replay(offered)
    assert subscription.image is kept
    assert seen == [120]
    subscription._replay(MetadataDelta(revision=121, snapshot=True, records=[CLUSTER, terms(a=50, b=121)]))
    assert seen == [120, 121]
