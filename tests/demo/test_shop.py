"""The shop of the demo, and the world outside of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.demo.crew import Crew
from holdfast.demo.customers import Customers, order_of
from holdfast.demo.ending import Ending, Stopped
from holdfast.demo.outside import Outside, System
from holdfast.demo.shop import DECLINED, Shop, open_shop
from holdfast.demo.show import Silence
from holdfast.demo.stage import Broken, Stage
from holdfast.demo.standing import sagas, standing
from holdfast.demo.summary import summed_up


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = open_shop(tmp_path, tmp_path / "shop.db")
    with shop.hold:
        yield shop


@pytest.fixture
def stage(shop: Shop, tmp_path: Path) -> Stage:
    return Stage(shop, Crew(tmp_path, tmp_path / "shop.db"), Customers(shop, 7), Silence(), Ending())


def test_what_is_asked_twice_under_one_key_is_done_once(tmp_path: Path) -> None:
    outside = Outside(tmp_path / "book.db")
    for _ in range(2):
        assert outside.ask(System.PAYMENTS, "charge", "k-1", "o-1") == "charge o-1"
    outside.ask(System.PAYMENTS, "charge", "k-2", "o-2")
    assert outside.asked("charge", "o-1") == 2
    assert outside.times_done("charge") == {"o-1": 1, "o-2": 1}


def test_the_book_would_show_a_second_charge_under_another_key(tmp_path: Path) -> None:
    outside = Outside(tmp_path / "book.db")
    for key in ("k-1", "k-2"):
        outside.ask(System.PAYMENTS, "charge", key, "o-1")
    assert outside.times_done("charge") == {"o-1": 2}


def test_a_system_that_is_down_does_nothing_until_it_is_repaired(tmp_path: Path) -> None:
    outside, elsewhere = (Outside(tmp_path / "book.db") for _ in range(2))
    outside.fail(System.MAIL)
    assert elsewhere.down() == ("mail",)
    with pytest.raises(ConnectionError, match="mail is down"):
        elsewhere.ask(System.MAIL, "send", "k", "o-1")
    assert elsewhere.times_done("send") == {}
    outside.repair(System.MAIL)
    assert elsewhere.ask(System.MAIL, "send", "k", "o-1") == "send o-1"


def test_the_same_seed_gives_the_same_orders() -> None:
    assert [order_of(7, number) for number in range(50)] == [order_of(7, number) for number in range(50)]
    assert order_of(7, 1) != order_of(8, 1)
    assert any(order_of(7, number).is_express for number in range(100))
    assert any(order_of(7, number).is_parcel for number in range(100))


def test_an_order_that_the_bank_cannot_take_is_kept_and_one_that_it_can_has_a_receipt(shop: Shop) -> None:
    assert shop.pay("o-1", 500)
    shop.outside.fail(System.PAYMENTS)
    assert shop.pay("o-2", 500)
    stands = standing(shop.hold)
    assert (stands.letters_kept, stands.letters_waiting, stands.entries_waiting) == (1, 1, 1)
    assert shop.outside.times_done("charge") == {"o-1": 1}


def test_an_article_is_looked_up_as_last_seen_while_the_warehouse_is_away(shop: Shop) -> None:
    assert shop.look_up("rope") == "look_up rope"
    shop.outside.fail(System.STOCK)
    assert shop.look_up("rope") == "as last seen"


def test_a_declined_card_undoes_the_express_order(shop: Shop) -> None:
    shop.send_express("x-1", DECLINED)
    shop.send_express("x-2")
    worker = shop.hold.works.worker()
    while worker.run_once():
        pass
    assert sagas(shop.hold) == {"compensated": 1, "completed": 1}
    assert shop.outside.times_done("reserve") == {"x-1": 1, "x-2": 1}
    assert shop.outside.times_done("release") == {"x-1": 1}
    assert shop.outside.times_done("charge_card") == {"x-2": 1}


def test_customers_place_orders_until_they_are_stopped(shop: Shop) -> None:
    customers = Customers(shop, 7, per_second=200)
    customers.start()
    while len(customers.placed) < 5:
        threading.Event().wait(0.01)
    customers.stop()
    placed = set(customers.placed)
    assert shop.outside.times_done("charge") == dict.fromkeys(placed, 1)
    assert customers.lost == set()


def test_the_summary_counts_what_the_bank_has_twice_or_never(stage: Stage) -> None:
    stage.customers.placed |= {"o-1", "o-2", "o-3"}
    for key in ("k-1", "k-2"):
        stage.shop.outside.ask(System.PAYMENTS, "charge", key, "o-1")
    stage.shop.pay("o-2", 500)
    summary = summed_up(stage, 1.0)
    assert (summary.orders, summary.charged, summary.charged_twice, summary.never_charged) == (3, 2, 1, 1)
    assert summary.document()["entries"] == {"pending": 1}
    assert ("charged by the bank / twice / never", "2 / 1 / 1") in summary.rows()
    assert ("dead letters", "none") in summary.rows()


def test_a_promise_that_does_not_come_true_in_its_time_is_broken(stage: Stage) -> None:
    with pytest.raises(Broken, match="letters drain: not within 0 s"):
        stage.until("letters drain", 0.0, lambda now: now.letters_kept)


def test_who_waits_hears_that_an_end_is_wanted(stage: Stage) -> None:
    stage.ending.is_wanted = True
    with pytest.raises(Stopped):
        stage.pause(60)
    with pytest.raises(Stopped):
        stage.until("nothing", 60, lambda now: False)


def test_a_worker_that_ends_by_itself_breaks_the_story_with_its_last_words(stage: Stage) -> None:
    stage.crew.command = [sys.executable, "-c", "raise SystemExit('no disk')"]
    stage.crew.start()
    with pytest.raises(Broken, match="the worker ended by itself: no disk"):
        stage.until("the worker works", 30, lambda now: False)


def test_a_worker_ends_when_the_demo_is_no_more(shop: Shop, tmp_path: Path) -> None:
    crew = Crew(tmp_path, tmp_path / "shop.db")
    crew.start()
    process = crew.process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as if whoever has started it was killed
    process.stdin = None
    assert process.wait(30) == 0
