"""Values whose names in the code differ from those in stored documents: promise I27."""

from __future__ import annotations

import json
from dataclasses import replace

from support.builders import appended, new_log
from tidefold.domain.log_state import ChangeSet, LogState
from tidefold.ledger.stored_form import decode_stored, encode, list_stored_names


def state() -> LogState:
    return appended(appended(new_log()))


def test_a_state_comes_back_as_it_was() -> None:
    made = state()
    assert made.change_sets
    assert decode_stored(encode(made), LogState) == made
    assert decode_stored(encode(made.change_sets), tuple[ChangeSet, ...]) == made.change_sets


def test_the_location_of_a_change_set_is_stored_among_its_fields() -> None:
    [first, *_] = json.loads(encode(state().change_sets))
    assert list(first)[:8] == ["sqn", "segment", "ordinal", "offset", "length", "checksum", "rows", "key_groups"]
    assert tuple(first) == list_stored_names(ChangeSet)


def test_a_field_that_an_older_document_lacks_has_its_default() -> None:
    [first, *_] = json.loads(encode(state().change_sets))
    for name in ("floor", "first", "top", "schema", "times"):
        del first[name]
    [found] = decode_stored(json.dumps([first]).encode(), tuple[ChangeSet, ...])
    assert found == replace(state().change_sets[0], floor=None, first=None, top=None, schema=1, times=None)
