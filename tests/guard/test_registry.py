"""The registry: named pipelines, built once, when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import PolicyError
from holdfast.guard.pipeline import ResiliencePipeline
from holdfast.guard.registry import ResiliencePipelineRegistry, get_pipeline_registry
from holdfast.telemetry.hub import Hub

PATIENCE_S = 10.0


@pytest.fixture
def registry() -> ResiliencePipelineRegistry:
    return ResiliencePipelineRegistry()


def pipeline(name: str = "made") -> ResiliencePipeline:
    return ResiliencePipeline(name=name, telemetry=Hub())


def together(*tasks: Callable[[], Any]) -> list[Any]:
    """Run the tasks in threads of their own; what each returned or raised."""
    results: list[Any] = [None] * len(tasks)

    def run(index: int, task: Callable[[], Any]) -> None:
        try:
            results[index] = task()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "deadlock"
    return results


def test_a_pipeline_is_built_when_it_is_first_asked_for(registry):
    built = []
    registry.register("db", lambda: built.append("db") or pipeline())
    assert built == []
    assert registry.get("db") is registry.get("db")
    assert built == ["db"]


def test_an_unknown_name_is_a_key_error_that_lists_the_known_ones(registry):
    registry.register("search", pipeline)
    registry.register("db", pipeline)
    with pytest.raises(KeyError, match=r"'mail'.*'db', 'search'"):
        registry.get("mail")


def test_an_empty_registry_says_so(registry):
    with pytest.raises(KeyError, match="known names: none"):
        registry.get("mail")


def test_names_are_sorted(registry):
    for name in ("search", "db", "mail"):
        registry.register(name, pipeline)
    assert registry.names() == ["db", "mail", "search"]


def test_registering_again_gives_a_new_instance(registry):
    registry.register("db", pipeline)
    old = registry.get("db")
    registry.register("db", pipeline)
    assert registry.get("db") is not old
    assert registry.names() == ["db"]


def test_a_factory_runs_once_however_many_threads_ask(registry):
    built, go = [], threading.Barrier(8)

    def build() -> ResiliencePipeline:
        built.append(threading.get_ident())
        return pipeline()

    def ask() -> ResiliencePipeline:
        go.wait(PATIENCE_S)
        return registry.get("db")

    registry.register("db", build)
    results = together(*[ask] * 8)
    assert len(built) == 1
    assert len({id(result) for result in results}) == 1


def test_those_who_ask_meanwhile_wait_for_the_pipeline(registry):
    begun, finish, built = threading.Event(), threading.Event(), []

    def build() -> ResiliencePipeline:
        begun.set()
        assert finish.wait(PATIENCE_S)
        built.append(1)
        return pipeline()

    def ask_later() -> ResiliencePipeline:
        assert begun.wait(PATIENCE_S)
        finish.set()
        return registry.get("db")

    registry.register("db", build)
    first, second = together(lambda: registry.get("db"), ask_later)
    assert first is second
    assert built == [1]


def test_a_factory_may_ask_for_another_pipeline(registry):
    registry.register("db", pipeline)
    registry.register("orders", lambda: ResiliencePipeline(registry.get("db").strategies, telemetry=Hub()))
    assert isinstance(registry.get("orders"), ResiliencePipeline)


def test_a_factory_may_register_and_list(registry):
    def build() -> ResiliencePipeline:
        registry.register("mail", pipeline)
        assert registry.names() == ["db", "mail"]
        return pipeline()

    registry.register("db", build)
    registry.get("db")


def test_a_pipeline_that_needs_itself_is_an_error(registry):
    registry.register("db", lambda: registry.get("db"))
    with pytest.raises(PolicyError, match="db -> db"):
        registry.get("db")


def test_a_circle_is_an_error_that_names_it(registry):
    for name, needs in (("a", "b"), ("b", "c"), ("c", "a")):
        registry.register(name, lambda needs=needs: registry.get(needs))
    with pytest.raises(PolicyError, match="a -> b -> c -> a"):
        registry.get("a")


def test_after_a_circle_is_broken_the_names_work(registry):
    registry.register("a", lambda: registry.get("b"))
    registry.register("b", lambda: registry.get("a"))
    with pytest.raises(PolicyError):
        registry.get("a")
    registry.register("b", pipeline)
    assert registry.get("a") is registry.get("b")


def test_threads_that_build_pipelines_that_need_each_other_do_not_hang(registry):
    both = threading.Barrier(2)

    def factory_that_needs(name: str) -> Callable[[], ResiliencePipeline]:
        meetings = iter([both])

        def build() -> ResiliencePipeline:
            for meeting in meetings:
                meeting.wait(PATIENCE_S)  # each thread is inside its own factory now
            return registry.get(name)

        return build

    registry.register("a", factory_that_needs("b"))
    registry.register("b", factory_that_needs("a"))
    for result in together(lambda: registry.get("a"), lambda: registry.get("b")):
        assert isinstance(result, PolicyError)
        assert "need each other" in str(result)


def test_threads_that_build_pipelines_that_share_one_all_get_it(registry):
    both, built = threading.Barrier(2), []

    def build() -> ResiliencePipeline:
        both.wait(PATIENCE_S)
        return ResiliencePipeline(registry.get("shared").strategies, telemetry=Hub())

    registry.register("a", build)
    registry.register("b", build)
    registry.register("shared", lambda: built.append(1) or pipeline())
    results = together(lambda: registry.get("a"), lambda: registry.get("b"))
    assert all(isinstance(result, ResiliencePipeline) for result in results)
    assert built == [1]


def test_a_factory_that_fails_is_run_again_by_the_next_caller(registry):
    results: list[Any] = [RuntimeError("no configuration yet"), None]

    def build() -> ResiliencePipeline:
        error = results.pop(0)
        if error is not None:
            raise error
        return pipeline()

    registry.register("db", build)
    with pytest.raises(RuntimeError, match="no configuration yet"):
        registry.get("db")
    assert isinstance(registry.get("db"), ResiliencePipeline)


def test_one_who_waited_for_a_factory_that_failed_builds_it_himself(registry):
    begun, failing = threading.Event(), threading.Event()
    turns = iter([True, False])

    def build() -> ResiliencePipeline:
        if next(turns):
            begun.set()
            assert failing.wait(PATIENCE_S)
            raise RuntimeError("first")
        return pipeline()

    def ask_later() -> ResiliencePipeline:
        assert begun.wait(PATIENCE_S)
        failing.set()
        return registry.get("db")

    registry.register("db", build)
    first, second = together(lambda: registry.get("db"), ask_later)
    assert isinstance(first, RuntimeError)
    assert isinstance(second, ResiliencePipeline)


def test_a_factory_that_returns_no_pipeline_is_a_type_error(registry):
    registry.register("db", lambda: None)
    with pytest.raises(TypeError, match="'db' returned None"):
        registry.get("db")


def test_something_that_is_no_factory_is_a_type_error(registry):
    with pytest.raises(TypeError, match="needs a factory"):
        registry.register("db", pipeline())


def test_there_is_one_registry_for_the_process():
    go = threading.Barrier(4)

    def ask() -> ResiliencePipelineRegistry:
        go.wait(PATIENCE_S)
        return get_pipeline_registry()

    assert len({id(registry) for registry in together(*[ask] * 4)}) == 1
