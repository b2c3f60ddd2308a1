"""Storage nodes are forgotten: who leads then, and what becomes of one that comes again."""

from __future__ import annotations

import pytest
from test_controller_elections import after, cluster, node, state

from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.controller.core.unregistration import unregister_node
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import UnregisterBrokerRequest
from barnabas.metadata.image import NO_LEADER, MetadataImage


def unregistered(image: MetadataImage, node_id: int) -> MetadataImage:
    decision = unregister_node(image, UnregisterBrokerRequest(node_id=node_id))
    assert decision.response.node_epoch == image.nodes[node_id].node_epoch
    return after(image, decision)


def test_others_lead_and_it_stays_a_replica() -> None:
    image = unregistered(cluster((1, 2, 3), (1, 3), 1), 1)
    assert state(image) == (3, 6, 1, [3])
    assert list(image.topics["t"].partitions[0].replicas) == [1, 2, 3]
    assert set(image.nodes) == {2, 3}
    assert 1 not in image.eligible_epochs


def test_a_fenced_one_has_left_already() -> None:
    fenced = cluster((1, 2, 3), (1, 3), 1)
    fenced = after(fenced, fence_node(fenced, 1))
    image = unregistered(fenced, 1)
    assert state(image) == state(fenced)
    assert set(image.nodes) == {2, 3}


def test_one_that_is_there_and_alone_has_what_others_shall_have_is_not_forgotten() -> None:
    with pytest.raises(
        KafkaError, match=r"broker 1 is there, .* could lead 1 partitions such as t-0: wait"
    ) as caught:
        unregister_node(cluster((1, 2), (1,), 1), UnregisterBrokerRequest(node_id=1))
    assert caught.value.code is ErrorCode.invalid_request


def test_what_another_has_a_copy_of_it_does_not_lead_when_it_comes_again_for_it_may_have_nothing() -> None:
    image = cluster((1, 2), (1,), 1)
    image = unregistered(after(image, fence_node(image, 1)), 1)
    assert state(image) == (NO_LEADER, 6, 1, [])
    image = after(image, register_node(image, node(1)))
    assert state(image)[0] == NO_LEADER


def test_what_it_has_alone_waits_for_it_and_it_leads_when_it_comes_again() -> None:
    before = cluster((1,), (1,), 1)
    image = unregistered(before, 1)
    assert state(image) == (NO_LEADER, 6, 1, [])
    image = after(image, register_node(image, node(1)))
    assert state(image)[0] == 1
    assert state(image)[1] > 6
    assert image.nodes[1].node_epoch > before.nodes[1].node_epoch
    assert image.nodes[1].position == before.nodes[1].position


@pytest.mark.parametrize("node_id", [-1, 9])
def test_one_that_is_not_known_cannot_be_forgotten(node_id: int) -> None:
    with pytest.raises(KafkaError, match=f"Broker ID {node_id} is not currently registered") as caught:
        unregister_node(cluster((1,), (1,), 1), UnregisterBrokerRequest(node_id=node_id))
    assert caught.value.code is ErrorCode.broker_id_not_registered
