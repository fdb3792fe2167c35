"""The workflows that a worker has in its memory, and how they come there."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Any, Final

from holdfast.store.codec import to_json
from holdfast.store.port import Store
from holdfast.workflows.log import Standing, as_of_now
from holdfast.workflows.plan import Blueprint, id_of, parse_blueprint
from holdfast.workflows.records import DEFINITION, STAGE, WORKFLOW
from holdfast.workflows.run import Run

MOST: Final = 2000
MOST_MADE: Final = 64
"""How many definitions are known again without making their text."""
_log: Final = logging.getLogger("holdfast")


class Blueprints:
    """Definitions that were read or made; a process has few of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, Blueprint] = OrderedDict()
        self._made: dict[str, Blueprint] = {}

    def add(self, blueprint: Blueprint) -> None:
        self._known[blueprint.id] = blueprint
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def has(self, id: str) -> bool:
        return id in self._known

    def made_from(self, document: Mapping[str, Any], form: str | None = None) -> Blueprint:
        """The blueprint of a definition, the one that is here already if there is one. It is not added: whoever stores
        it does that. `form` tells the definition from every other one, for who knows it already."""
        form = form or repr(document)  # of what JSON holds, each value has a word of its own
        made = self._made.get(form)
        if made is None:
            text = to_json(dict(document))
            made = self._known.get(id_of(text)) or parse_blueprint(text)
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            self._made[form] = made
        return made

    def of(self, ids: Iterable[str]) -> dict[str, Blueprint]:
        wanted = set(ids)
        lacking = [id for id in wanted if id not in self._known]
        if lacking:
            for record in self._store.get(DEFINITION, lacking):
                if record is not None:
                    try:
                        self.add(parse_blueprint(record.graph))
                    except Exception:  # one that nobody understands must not hold up the others
                        _log.exception("workflow definition %s cannot be read", record.id)
        return {id: self._known[id] for id in wanted if id in self._known}


class Runs:
    """A cache. Whoever finds out that one of them has changed forgets it. Used by one thread at a time."""

    def __init__(self, store: Store, blueprints: Blueprints, *, strict: bool = False) -> None:
        self._store = store
        self._strict = strict
        self.blueprints = blueprints
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def get(self, id: str) -> Run | None:
        return self._runs.get(id)

    def know_all(self, ids: Iterable[str]) -> bool:
        """Whether these workflows are here with all their stages."""
        runs = self._runs
        for id in ids:
            run = runs.get(id)
            if run is None or not run.knows_all:
                return False
        return True

    def add(self, run: Run) -> None:
        run.strict = self._strict  # whoever has started it may not have known
        self._runs[run.id] = run
        while len(self._runs) > MOST:
            self._runs.popitem(last=False)

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._runs.pop(id, None)

    def read(self, ids: Iterable[str]) -> None:
        """Have these workflows here, if they exist."""
        lacking = [*filterfalse(self._runs.__contains__, ids)]
        if lacking:
            records = self._store.get(WORKFLOW, lacking)
            self._add_all(as_of_now(self._store, [(one, one.version) for one in records if one is not None]))

    def refresh(self, ids: Iterable[str]) -> None:
        """Have these workflows here as they are stored now."""
        wanted = list(dict.fromkeys(ids))
        read: list[Standing] = []
        for record in self._store.get(WORKFLOW, wanted):
            if record is not None:
                had = self._runs.get(record.id)
                read.append((record, record.version if had is None or had.record != record else had.seq))
        self._add_all(as_of_now(self._store, read))

    def meet(self, wanted: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Have these stages of workflows that are here, and those that hear of their ends; one question for all."""
        asked: list[tuple[Run, list[str]]] = []
        for id, refs in wanted:
            run = self._runs.get(id)
            if run is not None and not run.knows_all and (lacking := run.ahead(refs)):
                asked.append((run, lacking))
        if asked:
            found = self._store.get(STAGE, [one for run, refs in asked for one in run.ids_of(refs)])
            at = 0
            for run, refs in asked:
                run.add(refs, found[at : at + len(refs)])
                at += len(refs)

    def read_with(self, id: str, refs: Iterable[str]) -> Run | None:
        """The workflow as it is stored, with these stages and whatever is next to them."""
        self.read((id,))
        run = self._runs.get(id)
        if run is not None:
            plan = run.blueprint.plan.stages
            near: dict[str, None] = {}
            for ref in refs:
                near |= dict.fromkeys((ref, *plan[ref].after))
                if (parent := plan[ref].parent) is not None:
                    near |= dict.fromkeys((parent, *(name for kin in plan[parent].children.values() for name in kin)))
            run.read(self._store, near)
        return run

    def _add_all(self, found: Sequence[Standing]) -> None:
        blueprints = self.blueprints.of(record.definition for record, _ in found)
        for record, seq in found:
            had = self._runs.get(record.id)
            if had is not None and (had.record, had.seq) == (record, seq):
                continue
            if record.definition in blueprints:
                self.add(Run(record, blueprints[record.definition], seq))
