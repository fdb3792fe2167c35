import os
import re
import threading

import pytest

from holdfast.core.ids import id_source, new_call_id


def test_an_id_has_twelve_hexadecimal_characters():
    assert all(re.fullmatch("[0-9a-f]{12}", new_call_id()) for _ in range(1000))


def test_ids_do_not_repeat():
    assert len({new_call_id() for _ in range(20_000)}) == 20_000


def test_sources_are_independent():
    assert id_source()() != id_source()()


def test_threads_get_different_ids():
    drawn: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(new_call_id() for _ in range(5000))) for mine in drawn
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for mine in drawn for each in mine}) == 20_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_the_ids_of_its_parent():
    source = id_source()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source().encode())
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 12).decode() != source()
    os.close(reader)
    os.waitpid(child, 0)
