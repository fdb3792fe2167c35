"""Workflows: find, start, show, draw and follow them; dead items, and finalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request, Response

from holdfast.access.rights import REVEAL
from holdfast.core.redact import redact
from holdfast.errors import (
    DeadLetterError,
    HoldfastError,
    InvalidValue,
    WorkflowDefinitionError,
    WorkflowNotFoundError,
    some_of,
)
from holdfast.server.problems import ProblemError, invalid, not_found, refused
from holdfast.server.routes.workflow_rows import find_row, find_stage, outline, row_of, stage_rows
from holdfast.server.routes.workflow_search import filtered, search
from holdfast.server.routes.workflow_shapes import (
    Changed,
    DeadShown,
    Facets,
    Graph,
    Guarantees,
    LogItem,
    Past,
    StageShown,
    StartRequest,
    StrandedWork,
    Timeline,
    WorkflowRow,
    WorkflowShown,
)
from holdfast.server.routing import ADMIN, Asked, Asking, Routes
from holdfast.server.shapes import After, Id, Limit, MayReason, Page, Reasoned, page_of
from holdfast.store.codec import instant
from holdfast.views.plain import masked, plain
from holdfast.views.workflows import by_stage, dead_document, entry_document, finalizer_document, lanes_of
from holdfast.workflows.layers import arranged, links_of
from holdfast.workflows.model import Workflow
from holdfast.workflows.picture import liveness, picture
from holdfast.workflows.records import DEFINITION
from holdfast.workflows.workflows import Workflows

routes: Final = Routes("workflows")
LAST_SEQ: Final = 999_999_999
MOST_DRAWN: Final = 1000
"""Stages of a graph that is laid out. Nobody follows the lines of a larger one, and it would take seconds."""
MOST_TOLD: Final = 5000
"""Transactions that a timeline is made from."""
_MOST_NAMES: Final = 1000
_MOST_CHILDREN: Final = 50
_MOST_FINALIZERS: Final = 100

Stage = Annotated[str, Path(min_length=1, max_length=400, description="The name of a stage.")]
Item = Annotated[str, Path(min_length=1, max_length=500, description="The id of a dead item.")]
Seq = Annotated[int, Path(ge=0, le=LAST_SEQ, description="The number of a transaction in its log.")]


@routes.reads(response_model=Page[WorkflowRow])
def find(
    asked: Asking, where: Annotated[dict[str, Any], Depends(filtered)], limit: Limit = 50, after: After = None
) -> Any:
    """Workflows, the newest first. Of several conditions a page may find few, or none, and still have a `next`."""
    found, following = search(asked.hold.workflows, where, limit, after)
    return {"items": [row_of(asked, one) for one in found], "next": following}


@routes.reads("/facets", response_model=Facets)
def facets(asked: Asking) -> Any:
    """How many workflows there are by status, and which names they have."""
    flows = asked.hold.workflows
    made = {one.name for one in asked.hold.store.page(DEFINITION, by="id", limit=_MOST_NAMES)}
    return {"by_status": flows.counts(), "names": sorted(made | set(flows.known)), "startable": sorted(flows.known)}


@routes.reads("/stranded", response_model=list[StrandedWork])
def stranded(asked: Asking, limit: Limit = 100) -> Any:
    """Work that is due and that no worker can take, and why; what has waited longest first."""
    return [plain(one) for one in asked.hold.workflows.stranded(limit=limit)]


@routes.reads("/describe", response_model=Guarantees)
def describe(asked: Asking, name: Annotated[str, Query(min_length=1, max_length=400)]) -> Any:
    """What a workflow guarantees, by the name that it is known by or by its id."""
    trouble = f"its body cannot be read without an input: `holdfast workflow describe {name} --input …` takes one"
    return by_program(lambda: asked.hold.workflows.describe(name), trouble).to_document()


@routes.reads("/dead", response_model=Page[DeadShown])
def find_dead(asked: Asking, workflow: str | None = None, limit: Limit = 50, after: After = None) -> Any:
    """Items and messages that nobody could do anything with, the last one first."""
    found = asked.hold.workflows.dead.list(workflow or None, after=after, limit=limit + 1)
    return page_of(found, limit, dead_document, lambda one: one.cursor)


@routes.acts("/dead/{item:path}/replay", response_model=Changed)
def replay_dead(asked: Asking, item: Item, body: MayReason) -> Any:
    """Have a dead item tried again, from its first attempt."""
    return _with_dead(asked, item, asked.hold.workflows.dead.replay)


@routes.acts("/dead/{item:path}/discard", ADMIN, response_model=Changed)
def discard_dead(asked: Asking, item: Item, body: Reasoned) -> Any:
    """Forget a dead item: it is deleted, and what it was to do is not done."""
    return _with_dead(asked, item, asked.hold.workflows.dead.discard)


@routes.acts("/dead/{item:path}/reveal", REVEAL, response_model=DeadShown)
def reveal_dead(asked: Asking, item: Item, body: Reasoned) -> Any:
    """A dead item as it was kept."""
    return dead_document(_dead(asked, item), reveal=True)


@routes.acts("/finalizers/{finalizer}/run", response_model=Changed)
def finalize(asked: Asking, finalizer: Annotated[str, Path(min_length=1, max_length=500)], body: MayReason) -> Any:
    """Have a finalizer that failed or was lost run again, by whichever worker."""
    try:
        asked.hold.workflows.finalizers.run_again(finalizer, by=asked.by)
    except WorkflowNotFoundError:
        raise not_found("finalizer", finalizer) from None
    return {"changed": True}


@routes.acts("", response_model=WorkflowRow, status_code=201)
def start(asked: Asking, body: StartRequest, request: Request) -> Any:
    """Start a workflow that the program of this server has made known. The same key gives the first one that had it."""
    need_program(request, "start a workflow", "holdfast workflow start")
    flows = asked.hold.workflows
    if body.name not in flows.known:
        raise unknown_name(flows, body.name)
    given, key = tuple(body.input) if isinstance(body.input, list) else body.input, body.idempotency_key
    # Not by `start`, whose own words would be taken out of the input.
    (made,) = by_program(lambda: flows.start_many(body.name, [given], idempotency_keys=[key]))
    return find_row(asked, made.id)


@routes.reads("/{id}", response_model=WorkflowShown)
def show(asked: Asking, id: Id) -> Any:
    """One workflow: its stages, the work in hand, what it waits for, and what it guarantees."""
    flows, now = asked.hold.workflows, instant(asked.hold.store.now())
    workflow, record = flows.workflow(id), flows.record(id)
    work = flows.work(id)
    paused = workflow.paused
    return {
        **{name: plain(getattr(workflow, name)) for name in _PLAIN},
        "reason": record.reason, "created_at": instant(record.created_at), "parent": record.parent,
        "pipeline": record.pipeline, "place": flows.place(id),
        "paused": plain(paused), "is_paused": paused is not None and paused.is_paused,
        "forked_from": None if workflow.forked_from is None else list(workflow.forked_from),
        "context": masked(plain(workflow.context)), "trigger": masked(plain(workflow.trigger)),
        "stages": stage_rows(flows, workflow, now), "work": [plain(one) for one in work],
        "children": [row_of(asked, one) for one in flows.find(parent=id, limit=_MOST_CHILDREN)],
        "finalizers": [finalizer_document(one) for one in flows.finalizers.find(id, limit=_MOST_FINALIZERS)],
        "guarantees": flows.get(id).describe().to_document(),
    }  # fmt: skip


_PLAIN: Final = (
    "id", "name", "application", "type", "status", "version", "start_time", "end_time", "canceled_by", "queue",
    "priority", "max_concurrent_executions", "idempotency_key", "code_version", "origin", "dead_letter",
)  # fmt: skip


@routes.reads("/{id}/log", response_model=Page[LogItem])
def log(
    asked: Asking,
    id: Id,
    after: Annotated[int, Query(ge=0, le=LAST_SEQ, description="Only what came after this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many transactions at most.")] = 100,
) -> Any:
    """What happened to a workflow, the first first; `next` is the number to go on after."""
    found = asked.hold.workflows.log(id, after=after, limit=limit + 1)
    seqs = sorted({entry.seq for entry in found})
    last = seqs[limit - 1] if len(seqs) > limit else None
    items = [entry_document(entry) for entry in found if last is None or entry.seq <= last]
    return {"items": items, "next": None if last is None else str(last)}


@routes.reads("/{id}/at/{seq}", response_model=Past)
def state_at(asked: Asking, id: Id, seq: Seq) -> Any:
    """Where a workflow and its stages stood after the transaction of that number; 0: before the first one."""
    try:
        return plain(asked.hold.workflows.state_at(id, seq))
    except InvalidValue as error:
        raise ProblemError(404, "seq_not_found", str(error)) from None


@routes.reads("/{id}/graph", response_model=Graph)
def graph(asked: Asking, id: Id) -> Any:
    """The stages of a workflow, laid out to be drawn."""
    workflow = asked.hold.workflows.workflow(id)
    number = len(workflow.stages)
    shown = {"id": id, "status": workflow.status, "stages": number, "drawn": number <= MOST_DRAWN}
    return {**shown, **(_drawn(workflow) if number <= MOST_DRAWN else {"nodes": [], "edges": []})}


@routes.reads(
    "/{id}/graph.svg",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}, "description": "The picture"}},
)
def graph_svg(asked: Asking, id: Id) -> Response:
    """The same as a picture."""
    workflow = asked.hold.workflows.workflow(id)
    if len(workflow.stages) > MOST_DRAWN:
        raise refused("too_many_stages", f"it has {len(workflow.stages)} stages, and {MOST_DRAWN} can be drawn")
    drawn = picture(workflow, instant(asked.hold.store.now()))
    # Opened by itself it is a document of this origin: it may have its own style, and nothing else.
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return Response(drawn.encode("utf-8", "replace"), media_type="image/svg+xml", headers=headers)


@routes.reads("/{id}/timeline", response_model=Timeline)
def timeline(asked: Asking, id: Id) -> Any:
    """What the stages of a workflow spent their time on: calls, waits, further attempts."""
    flows = asked.hold.workflows
    version, entries = flows.record(id).version, flows.log(id, limit=MOST_TOLD)
    complete, now = not entries or entries[-1].seq >= version, instant(asked.hold.store.now())
    lanes = [plain(lane) for lane in lanes_of(entries, by_stage(flows.work(id)), now)]
    return {"id": id, "now": now, "lanes": lanes, "complete": complete}


@routes.reads("/{id}/stages/{stage:path}", response_model=StageShown)
def show_stage(asked: Asking, id: Id, stage: Stage) -> Any:
    """One stage: its tasks, what it got and what it left."""
    return find_stage(asked, id, stage, reveal=False)


def need_program(request: Request, what: str, command: str) -> None:
    """Raises ProblemError where the program's functions are not in this process."""
    if not request.app.state.has_program:
        raise refused(
            "no_program",
            f"to {what} the functions of its program are needed, and this server has none: "
            f"serve with --app, or run `{command}` there",
        )


def unknown_name(flows: Workflows, name: str) -> ProblemError:
    """No workflow can be started by that name."""
    problem, there = not_found("workflow name", name), some_of(flows.known)
    return ProblemError(404, problem.error, f"{problem.message}; known are {there}; hold.workflows.add(…) adds one")


def by_program(act: Callable[[], Any], trouble: str = "the workflow does not take this input") -> Any:
    """What comes of functions of the program's, which are given what a client has sent. `trouble` is what it means if
    they raise. Raises ProblemError."""
    try:
        return act()
    except WorkflowDefinitionError as error:
        raise ProblemError(409 if error.code in _TAKEN else 422, error.code, redact(str(error), 2000)) from None
    except HoldfastError:
        raise
    except Exception as error:
        raise invalid("bad_input", redact(f"{trouble}: {type(error).__name__}: {error}")) from error


_TAKEN: Final = frozenset({"key_taken", "id_taken"})


def _drawn(workflow: Workflow) -> dict[str, Any]:
    links = links_of(workflow.stages)
    layout = arranged((stage.ref_id for stage in workflow.stages), links)
    parents = {stage.id: stage.ref_id for stage in workflow.stages}
    stages = {stage.ref_id: stage for stage in workflow.stages}
    nodes = [{**outline(stage, parents), "place": layout.places[stage.ref_id]._asdict()} for stage in workflow.stages]
    edges = [
        {
            "source": link.source,
            "target": link.target,
            "owner": link.owner,
            "state": liveness(link, stages),
            "way": [spot._asdict() for spot in layout.routes[link.source, link.target]],
        }
        for link in links
    ]
    return {"nodes": nodes, "edges": edges}


def _dead(asked: Asked, item: str) -> Any:
    try:
        return asked.hold.workflows.dead.show(item)
    except DeadLetterError:
        raise not_found("dead item", item) from None


def _with_dead(asked: Asked, item: str, act: Callable[[str], None]) -> dict[str, bool]:
    _dead(asked, item)
    try:
        act(item)
    except DeadLetterError:  # somebody was faster
        return {"changed": False}
    return {"changed": True}
