"""Ids of entries: ascending, and different in every process."""

from __future__ import annotations

import os
from uuid import UUID

import pytest

from holdfast.outbox.ids import entry_ids

CHANCE = (1 << 62) - 1


def test_ids_ascend_and_are_of_version_7() -> None:
    new_ids, new_id = entry_ids()
    made = [*new_ids(300), new_id(), *new_ids(1), *(new_id() for _ in range(300)), *new_ids(2)]
    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}
    assert {UUID(str(one)) for one in made} == set(made)
    assert repr(made[0].is_safe) == repr(UUID(int=1).is_safe)
    assert len({one.int & CHANCE for one in made}) == len(made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_chances_of_its_own() -> None:
    new_ids, new_id = entry_ids()
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(new_id()).encode())
        os._exit(0)
    os.close(writer)
    theirs = UUID(os.read(reader, 36).decode())
    os.close(reader)
    os.waitpid(child, 0)
    assert theirs.int & CHANCE != new_ids(1)[0].int & CHANCE
