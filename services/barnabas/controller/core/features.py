"""Finalized features: what a new cluster starts with, and UpdateFeatures (KIP-584, KIP-778)."""

from __future__ import annotations

from barnabas.controller.core.decision import Decision, failure
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from barnabas.messages.controller_pb2 import (
    FeatureUpdate,
    ResourceResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.messages.metadata_pb2 import FeatureRecord, MetadataRecord
from barnabas.metadata.features import METADATA_VERSION, RELEASE_LEVELS, SUPPORTED_FEATURES
from barnabas.metadata.image import MetadataImage, feature_key


def finalize_release_levels(image: MetadataImage) -> Decision[None]:
    """Give a cluster that has no level for a feature of this release the release's own: a new one, or an old store."""
    missing = (item for item in RELEASE_LEVELS.items() if item[0] not in image.features)
    return Decision(tuple(_record(name, level) for name, level in missing), None)


def update_features(image: MetadataImage, request: UpdateFeaturesRequest) -> Decision[UpdateFeaturesResponse]:
    """Change all the features named, or none when one of them cannot be: the answer then says which, and why."""
    records = {}
    for update in request.updates:
        try:
            _check(image, update)
        except KafkaError as error:
            message = f"Nothing was changed, because one feature cannot be: {error.message}"
            result = failure(KafkaError(error.code, message))
            return Decision((), UpdateFeaturesResponse(result=result))
        # Of two updates of one feature the last one counts.
        records[update.name] = _record(update.name, update.level)
    changed = tuple(
        record for name, record in records.items() if record.feature.level != image.features.get(name, 0)
    )
    response = UpdateFeaturesResponse(
        result=ResourceResult(), results=[ResourceResult() for _ in request.updates]
    )
    return Decision(() if request.validate_only else changed, response)


def _check(image: MetadataImage, update: FeatureUpdate) -> None:
    """Raise KafkaError INVALID_UPDATE_VERSION for a change that is not possible; the order of the rules is Kafka's."""
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(update, f"there is no upgrade type {update.upgrade_type}: use 1, 2 or 3")
    if update.level < 0:
        raise _invalid(update, "a level cannot be less than 0")
    levels = SUPPORTED_FEATURES.get(update.name)
    if levels is None:
        raise _invalid(update, "this controller does not know the feature")
    if update.level not in levels:
        if levels.high == 0:
            raise _invalid(update, "this controller does not support the feature")
        raise _invalid(update, f"this controller only supports levels {levels.low} to {levels.high}")
    current = image.features.get(update.name, 0)
    if update.level < current and update.upgrade_type == UPGRADE:
        raise _invalid(update, f"it is at level {current}: ask for a safe or unsafe downgrade to lower it")
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _invalid(update, f"it is at level {current}: this would be an upgrade, not a downgrade")
    if update.name == METADATA_VERSION and update.level < current:
        # The records of the newest level cannot be written in the shape of an older one (KAFKA-13896).
        kind = "An unsafe downgrade" if update.upgrade_type == UNSAFE_DOWNGRADE else "A downgrade"
        raise _invalid(update, f"{kind} from {current} is refused, because metadata would be lost")


def _invalid(update: FeatureUpdate, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_update_version, f"{update.name} cannot be set to level {update.level}: {reason}."
    )


def _record(name: str, level: int) -> MetadataRecord:
    """The record of a level; level 0 is the absence of one, but where that would become the release's level."""
    if level == 0 and name not in RELEASE_LEVELS:
        return MetadataRecord(key=feature_key(name))
    return MetadataRecord(key=feature_key(name), feature=FeatureRecord(name=name, level=level))
