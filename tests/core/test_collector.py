import gc

import pytest

from holdfast.core.collector import YOUNG, as_before, relieve


@pytest.fixture(autouse=True)
def _collector():
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)


def test_it_leaves_alone_what_is_there_and_comes_less_often_until_the_program_is_done():
    gc.set_threshold(700, 11, 12)
    with as_before():
        relieve()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (YOUNG, 11, 12)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("told", [0, 50_000])
def test_who_has_turned_the_collector_off_or_made_it_rarer_is_obeyed(told):
    gc.set_threshold(told, 10, 10)
    with as_before():
        relieve()
        assert gc.get_threshold()[0] == told


def test_it_is_as_before_also_after_a_failure():
    gc.set_threshold(700, 10, 10)
    with pytest.raises(RuntimeError), as_before():
        relieve()
        raise RuntimeError
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0
