"""Finalized features: what a cluster starts with, and UpdateFeatures as a decision."""

from __future__ import annotations

import pytest

from barnabas.controller.core.features import finalize_release_levels, update_features
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages.metadata_pb2 import FeatureRecord, MetadataRecord
from barnabas.metadata.features import (
    GROUP_VERSION,
    METADATA_VERSION,
    RELEASE_LEVELS,
    RELEASE_METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from barnabas.metadata.image import MetadataImage, feature_key


def image_at(level: int) -> MetadataImage:
    record = FeatureRecord(name=METADATA_VERSION, level=level)
    return MetadataImage().apply([MetadataRecord(key=feature_key(METADATA_VERSION), feature=record)], 1)


def update(
    image: MetadataImage, *updates: tuple[str, int, int], validate_only: bool = False
) -> tuple[MetadataImage, pb.UpdateFeaturesResponse]:
    request = pb.UpdateFeaturesRequest(
        updates=[
            pb.FeatureUpdate(name=name, level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    decision = update_features(image, request)
    return image.apply(decision.records, 2), decision.response


def test_a_cluster_without_levels_gets_those_of_the_release_once() -> None:
    decision = finalize_release_levels(MetadataImage())
    image = MetadataImage().apply(decision.records, 1)
    levels = {METADATA_VERSION: RELEASE_METADATA_VERSION, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert image.features == levels == RELEASE_LEVELS
    assert not finalize_release_levels(image).records


def test_a_store_of_an_earlier_release_gets_what_it_lacks() -> None:
    image = image_at(20)
    image = image.apply(finalize_release_levels(image).records, 2)
    assert image.features == {**RELEASE_LEVELS, METADATA_VERSION: 20}, "a level that was chosen stays"


@pytest.mark.parametrize("level", [0, 1])
def test_a_lower_level_of_transactions_that_was_chosen_stays(level: int) -> None:
    image = MetadataImage().apply(finalize_release_levels(MetadataImage()).records, 1)
    image, response = update(image, (TRANSACTION_VERSION, level, SAFE_DOWNGRADE))
    assert response.result.error_code == 0
    assert image.features[TRANSACTION_VERSION] == level
    assert not finalize_release_levels(image).records, "the next controller leaves it"
    for higher in range(level + 1, 3):
        image, response = update(image, (TRANSACTION_VERSION, higher, UPGRADE))
        assert (response.result.error_code, image.features[TRANSACTION_VERSION]) == (0, higher)
    assert update(image, (TRANSACTION_VERSION, 3, UPGRADE))[1].result.error_code


def test_consumer_groups_that_were_switched_off_stay_so() -> None:
    image, _ = update(image_at(20), (GROUP_VERSION, 1, UPGRADE))
    image, _ = update(image, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    assert image.features == {METADATA_VERSION: 20, GROUP_VERSION: 0}
    image = image.apply(finalize_release_levels(image).records, 3)
    assert image.features[GROUP_VERSION] == 0


def test_an_upgrade_is_stored() -> None:
    image, response = update(image_at(20), (METADATA_VERSION, 25, UPGRADE))
    assert image.features == {METADATA_VERSION: 25}
    assert [result.error_code for result in response.results] == [0]


def test_validate_only_and_the_same_level_store_nothing() -> None:
    image, response = update(image_at(20), (METADATA_VERSION, 25, UPGRADE), validate_only=True)
    assert (image.features, response.result.error_code) == ({METADATA_VERSION: 20}, 0)
    for kind in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        _, response = update(image_at(20), (METADATA_VERSION, 20, kind))
        assert response.result.error_code == 0


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("nope", 1, UPGRADE, "does not know"),
        ("nope", 0, SAFE_DOWNGRADE, "does not know"),
        ("share.version", 1, UPGRADE, "does not support"),
        (GROUP_VERSION, 2, UPGRADE, "levels 0 to 1"),
        (METADATA_VERSION, 31, UPGRADE, "levels 7 to 30"),
        (METADATA_VERSION, 6, SAFE_DOWNGRADE, "levels 7 to 30"),
        (METADATA_VERSION, -1, SAFE_DOWNGRADE, "less than 0"),
        (METADATA_VERSION, 19, UPGRADE, "ask for a safe or unsafe downgrade"),
        (METADATA_VERSION, 21, SAFE_DOWNGRADE, "would be an upgrade"),
        (METADATA_VERSION, 19, SAFE_DOWNGRADE, "metadata would be lost"),
        (METADATA_VERSION, 19, UNSAFE_DOWNGRADE, "unsafe downgrade"),
        (METADATA_VERSION, 20, 0, "upgrade type 0"),
        (METADATA_VERSION, 20, 9, "upgrade type 9"),
    ],
)
def test_refused(name: str, level: int, kind: int, reason: str) -> None:
    image, response = update(image_at(20), (name, level, kind))
    assert response.result.error_code == ErrorCode.invalid_update_version
    assert reason in response.result.error_message
    assert image.features == {METADATA_VERSION: 20}


def test_all_or_none() -> None:
    image, response = update(image_at(20), (METADATA_VERSION, 25, UPGRADE), ("nope", 1, UPGRADE))
    assert image.features == {METADATA_VERSION: 20}
    assert "nope" in response.result.error_message
    assert not response.results


def test_off_can_always_be_asked_for() -> None:
    for name, levels in SUPPORTED_FEATURES.items():
        if levels.low == 0:
            assert update(image_at(20), (name, 0, SAFE_DOWNGRADE))[1].result.error_code == 0
