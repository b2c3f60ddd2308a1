"""The term of an active controller, which it begins before anything else."""

from __future__ import annotations

from barnabas.controller.core.decision import Decision
from barnabas.controller.core.producer_ids import skipped_producer_ids
from barnabas.messages.metadata_pb2 import MetadataRecord, Term, TermsRecord
from barnabas.metadata.history import TERMS_MAX
from barnabas.metadata.image import TERMS_KEY, MetadataImage


def begin_term(image: MetadataImage, term_id: str, now_ms: int) -> Decision[None]:
    """The term begins after all that is in `image`, which is all that former terms have stored; what they have handed
    out is more, if `image` was restored from a backup.
    """
    term = Term(term_id=term_id, first_revision=image.revision + 1)
    terms = TermsRecord(terms=[*image.terms, term][-TERMS_MAX:])
    begun = MetadataRecord(key=TERMS_KEY, terms=terms)
    return Decision((begun, *skipped_producer_ids(image, now_ms)), None)
