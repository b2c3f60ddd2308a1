"""Quota entities and their store keys, and how the image replays quotas and features."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.messages.metadata_pb2 import ClientQuotaRecord, FeatureRecord, MetadataRecord
from barnabas.metadata.client_quotas import (
    CLIENT_QUOTAS_PREFIX,
    ENTITY_TYPES,
    QuotaEntity,
    client_quota_key,
    entity_parts,
    quota_entity,
)
from barnabas.metadata.image import MetadataImage, feature_key

names = st.one_of(
    st.none(), st.text(min_size=1), st.sampled_from(["user", "a=b", "a,b", "client-id=x", "%3D"])
)
entities = st.dictionaries(st.sampled_from(ENTITY_TYPES), names, min_size=1).map(
    lambda parts: tuple(sorted(parts.items()))
)


def quota(entity: QuotaEntity, **values: float) -> MetadataRecord:
    record = ClientQuotaRecord(entity=entity_parts(entity), values=values)
    return MetadataRecord(key=client_quota_key(entity), client_quota=record)


@given(entities, entities)
def test_one_entity_has_one_key(one: QuotaEntity, other: QuotaEntity) -> None:
    assert (client_quota_key(one) == client_quota_key(other)) == (one == other)


@given(entities)
def test_an_entity_survives_its_message_in_any_order(entity: QuotaEntity) -> None:
    parts = entity_parts(entity)
    assert quota_entity(parts) == quota_entity(parts[::-1]) == entity


def test_keys_are_readable() -> None:
    assert client_quota_key((("client-id", None), ("user", "ä/b=c"))) == (
        CLIENT_QUOTAS_PREFIX + "client-id,user=%C3%A4%2Fb%3Dc"
    )


def test_the_image_replays_quotas() -> None:
    entity = (("user", "u"),)
    image = MetadataImage().apply([quota(entity, producer_byte_rate=1.0)], 1)
    assert image.client_quotas == {entity: {"producer_byte_rate": 1.0}}
    changed = image.apply([quota(entity, consumer_byte_rate=2.0)], 2)
    assert changed.client_quotas == {entity: {"consumer_byte_rate": 2.0}}
    assert image.client_quotas == {entity: {"producer_byte_rate": 1.0}}, "an image never changes"
    assert changed.apply([MetadataRecord(key=client_quota_key(entity))], 3).client_quotas == {}


def test_the_image_replays_features() -> None:
    record = MetadataRecord(key=feature_key("f.v"), feature=FeatureRecord(name="f.v", level=3))
    image = MetadataImage().apply([record], 1)
    assert image.features == {"f.v": 3}
    assert image.apply([MetadataRecord(key=feature_key("f.v"))], 2).features == {}
