"""`Holdfast(url)`: the parts put together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Breaker, Holdfast, Hub, PolicyError, Retry, StoreUnavailable, consecutive, open_store
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.testing.clock import ManualClock


def test_making_one_touches_neither_file_nor_thread(tmp_path: Path) -> None:
    code = f"""
import threading
from holdfast import Holdfast
hold = Holdfast("sqlite:///{tmp_path}/x.db")
assert threading.active_count() == 1, threading.enumerate()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_guard_is_found_again_by_its_name() -> None:
    with Holdfast("memory://", telemetry=Hub(), background=False) as hold:
        made = hold.guard("payments", Retry(attempts=2))
        assert hold.guard("payments") is made
        assert hold.guards == {"payments": made}
        with pytest.raises(PolicyError, match="there is a guard 'payments' already"):
            hold.guard("payments", Retry(attempts=3))
        with pytest.raises(PolicyError, match="there is no guard 'stock' yet"):
            hold.guard("stock")


def test_two_functions_of_one_name_are_refused() -> None:
    with Holdfast("memory://", telemetry=Hub(), background=False) as hold:
        pay = hold.guard("payments", Retry(attempts=1), dead_letter=True)
        pay.replayable(name="charge")(lambda order_id: None)
        with pytest.raises(PolicyError, match="another function called 'charge'"):
            pay.replayable(name="charge")(lambda order_id: None)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "127.0.0.1:1"),
        ("redis://127.0.0.1:1/0", "127.0.0.1:1"),
        ("sqlite:////nowhere/at/all.db", "nowhere"),
    ],
)
def test_an_unreachable_store_says_so_in_one_line(url: str, message: str) -> None:
    with Holdfast(url, telemetry=Hub(), background=False) as hold, pytest.raises(StoreUnavailable) as caught:
        hold.letters.count()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("nothing", [None, 5, Path("shop.db")])
def test_what_is_no_url_and_no_store_is_refused_at_once(nothing: Any) -> None:
    """As where a variable of the environment is not set."""
    with pytest.raises(TypeError, match=r"^url is .*; give a text such as 'sqlite:///holdfast.db'"):
        Holdfast(nothing)
    with pytest.raises(TypeError, match=r"^url is .*; give a text such as 'sqlite:///holdfast.db'"):
        open_store(nothing)


def test_a_wrong_url_says_which_ones_there_are() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        Holdfast("ftp://somewhere")


def test_a_password_is_never_shown() -> None:
    with Holdfast("postgresql://me:hunter2@127.0.0.1:1/none", telemetry=Hub(), background=False) as hold:
        assert "hunter2" not in repr(hold)
        with pytest.raises(StoreUnavailable) as caught:
            hold.letters.count()
        assert "hunter2" not in str(caught.value)


def test_an_outage_from_its_first_failure_to_the_last_drained_letter(tmp_path: Path) -> None:
    """The whole way: calls fail, the breaker opens, letters pile up, it heals, everything is done, in order."""
    clock = ManualClock()
    done: list[str] = []
    down = True
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=clock, telemetry=Hub(), background=False) as hold:
        pay = hold.guard("payments", Breaker(consecutive(2), open_for=30), dead_letter=True)

        @pay.replayable
        def charge(order_id: str, amount: int) -> None:
            if down:
                raise ConnectionError("down")
            done.append(f"{order_id}:{amount}")

        for number in range(6):
            with pytest.raises(Exception, match=r"down|circuit_open"):
                charge(f"o{number % 2}", number)
        hold.breakers.sharing.sync()
        assert hold.letters.get_facet_counts() == {"by_status": {"pending": 6}, "by_domain": {"payments": 6}}
        worker = hold.worker()
        worker.run_once()
        assert done == []  # the breaker is open: nothing is tried, no attempt is burnt
        assert {letter.retry_count for letter in hold.letters.find()} == {0}

        down = False
        clock.advance(31)
        for _ in range(5):
            hold.breakers.sharing.sync()
            worker.run_once()
        assert pay.circuit.state == "closed"
        assert sorted(done) == [f"o{number % 2}:{number}" for number in range(6) if number % 2 == 0] + [
            f"o{number % 2}:{number}" for number in range(6) if number % 2
        ]
        for order in ("o0", "o1"):
            mine = [entry for entry in done if entry.startswith(order)]
            assert mine == sorted(mine)
        assert hold.letters.get_facet_counts()["by_status"] == {"resolved": 6}


def test_two_programs_on_one_store_share_breaker_and_letters(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/h.db", ManualClock()
    with (
        Holdfast(url, clock=clock, telemetry=Hub(), background=False) as one,
        Holdfast(url, clock=clock, telemetry=Hub(), background=False) as two,
    ):
        first = one.guard("payments", Breaker(consecutive(1), open_for=30), dead_letter=True)
        second = two.guard("payments", Breaker(consecutive(1), open_for=30), dead_letter=True)
        first.run(lambda: missing)  # type: ignore[name-defined]  # noqa: F821  # a programming error is no evidence
        assert first.circuit.state == "closed"

        def down() -> None:
            raise ConnectionError("down")

        first.run(down)
        one.breakers.sharing.sync()
        two.breakers.sharing.sync()
        assert second.circuit.state == "open"
        assert second.run(lambda: 5).reason == "circuit_open"
        assert one.letters.count() == two.letters.count() == 3


def test_a_breaker_that_is_added_later_is_shared_too_and_one_that_two_guards_have_once() -> None:
    with Holdfast("memory://", clock=ManualClock(), telemetry=Hub(), background=False) as hold:
        guard = hold.guard("late", Retry(attempts=1))
        assert hold.breakers.status().shared == ()
        guard.replace(Breaker(consecutive(1)))
        assert hold.breakers.status().shared == ("late",)
        guard.replace(Breaker(consecutive(2)))
        breaker = CircuitBreakerStrategy("both")
        hold.guard("one", breaker)
        hold.guard("two", breaker)
        assert hold.breakers.status().shared == ("both", "late")
        hold.guard("own", Breaker(), shared=False).replace(Breaker(consecutive(3)))
        assert hold.breakers.status().shared == ("both", "late")
