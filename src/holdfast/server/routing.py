"""Routes, each with the right that it needs. One without a right cannot be written down, so nothing is open by mistake.

What changes something is written into the audit trail before it is done: who, what, on which thing, and why.

A request is one hop to a thread: what comes before an endpoint does not wait for anything, and the endpoint's thread
also writes its answer as JSON.

A parameter in the address that a route does not declare is refused: a filter that is misspelt would find everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import ResponseValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from holdfast.access.rights import ADMIN, OPERATE, READ, RESOURCES, Identity
from holdfast.app import Holdfast
from holdfast.core.redact import redact
from holdfast.server.problems import RESPONSES, ProblemError, invalid
from holdfast.server.shapes import Body
from holdfast.server.trail import Trail

F = TypeVar("F", bound=Callable[..., Any])
RIGHT: Final = "x-right"
"""Where the OpenAPI document says which right a route needs."""
PUBLIC: Final = "public"
"""What it says of a route that anybody may ask."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is allowed: by whom, and what it is about."""

    hold: Holdfast
    identity: Identity
    trail: Trail
    target: dict[str, str] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """Who asks, for records."""
        return self.identity.name


async def _asked(request: Request) -> Asked:
    state = request.app.state
    target = {name: str(value) for name, value in request.path_params.items()}
    return Asked(state.hold, request.state.identity, state.trail, target)


Asking = Annotated[Asked, Depends(_asked)]
"""The first parameter of every endpoint."""


class Routes(APIRouter):
    """The routes of one resource, below `/<resource>` unless `prefix` says otherwise."""

    def __init__(self, resource: str, prefix: str | None = None) -> None:
        if resource not in RESOURCES:
            raise ValueError(f"there is no resource {resource!r}; add it to holdfast.access.rights.RESOURCES")
        super().__init__(prefix=f"/{resource}" if prefix is None else prefix, tags=[resource])
        self.resource = resource

    def reads(self, path: str = "", act: str = READ, method: str = "GET", **options: Any) -> Callable[[F], F]:
        """An endpoint that changes nothing: for GET, or for POST where the question is too long for an address."""
        return self._adds(path, method, act, options)

    def acts(self, path: str, act: str = OPERATE, method: str = "POST", **options: Any) -> Callable[[F], F]:
        """An endpoint that changes something: what it is asked is in the audit trail before it is done.

        `act` is the right that it needs. A body with a field `reason` gives the reason. What it is about (`on_…`) are
        the names in its path, and the fields that its body's class names in `audited`; how it is to be done (`with_…`)
        everything else in the query and the body, except what the class names in `withheld`.
        """

        def add(function: F) -> F:
            right = f"{self.resource}:{act}"
            self._adds(path, method, act, options)(_audited(function, f"{self.resource}.{function.__name__}", right))
            return function

        return add

    def open(self, path: str, method: str = "GET", **options: Any) -> Callable[[F], F]:
        """An endpoint that anybody may ask, signed in or not."""
        return self._adds(path, method, None, options)

    def _adds(self, path: str, method: str, act: str | None, options: dict[str, Any]) -> Callable[[F], F]:
        right = None if act is None else f"{self.resource}:{act}"
        # Probes of machines that add something of their own to an address are answered all the same.
        needed = [] if right is None else [Depends(_needs(right)), Depends(_known)]

        def add(function: Any) -> Any:
            self.add_api_route(
                path,
                _answered(function, options.get("response_model"), options.get("status_code", 200)),
                methods=[method],
                dependencies=[*needed, *options.pop("dependencies", ())],
                operation_id=f"{self.prefix.strip('/') or self.resource}_{function.__name__}",
                openapi_extra={RIGHT: PUBLIC if right is None else right},
                responses={**RESPONSES, **options.pop("responses", {})},
                **options,
            )
            return function

        return add


def _needs(right: str) -> Callable[[Request], Any]:
    async def check(request: Request) -> None:
        identity: Identity | None = getattr(request.state, "identity", None)
        if identity is None:
            raise ProblemError(
                401, "unauthorized", "sign in, or send a token: Authorization: Bearer hf_…",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip
        allows = request.app.state.authorize
        if not identity.may(right) or not (allows is None or await run_in_threadpool(allows, identity, right, request)):
            raise ProblemError(
                403, "forbidden", f"{identity.name} may not do this: it needs the right {right}", {"right": right}
            )

    return check


async def _known(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    known = _parameters(request.scope["route"].dependant)
    strange = [name for name in request.query_params if name not in known]
    if strange:
        said = ", ".join(sorted(known)) or "none"
        raise invalid(
            "unknown_parameter", f"there is no parameter {redact(strange[0], 200)!r} here; there are: {said}",
            unknown=[redact(name, 200) for name in strange[:20]], known=sorted(known),
        )  # fmt: skip


def _parameters(asked: Dependant) -> set[str]:
    """The names that a route reads from its query, itself or by what it depends on."""
    return {one.alias for one in asked.query_params}.union(*map(_parameters, asked.dependencies))


def _answered(function: Callable[..., Any], model: Any, status: int) -> Callable[..., Any]:
    """The function, answering with JSON of the model; FastAPI would check it in another thread, and write it in the
    event loop. Left alone is what awaits, and what adds headers to an answer that FastAPI makes.
    """
    adds_headers = "response" in signature(function).parameters
    if model is None or adds_headers or iscoroutinefunction(function):
        return function
    shape: TypeAdapter[Any] = TypeAdapter(model)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if isinstance(found, Response):
            return found
        try:
            body = shape.dump_json(shape.validate_python(found, from_attributes=True), by_alias=True)
        except ValidationError as error:  # of ours, and not of what was asked
            raise ResponseValidationError(errors=error.errors(), body=found) from error
        return Response(body, status, media_type="application/json")

    return run


def _audited(function: Callable[..., Any], act: str, right: str) -> Callable[..., Any]:
    """The function, noted before it is run and again if it fails."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        asked: Asked = kwargs["asked"]
        bodies = [value for value in kwargs.values() if isinstance(value, Body)]
        reason = next((str(why) for body in bodies if (why := getattr(body, "reason", None))), "")
        about, how = _facts(asked, kwargs, bodies)
        asked.trail.acted(asked.identity, act, right, about, reason, how)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            asked.trail.failed(asked.identity, act, about, error)
            raise

    if "asked" not in signature(function).parameters:
        raise TypeError(f"{act} changes something, and must take asked: Asking")
    return run


def _facts(asked: Asked, kwargs: dict[str, Any], bodies: list[Body]) -> tuple[dict[str, str], dict[str, str]]:
    """What is asked for, as texts: what it is about, and how it is to be done."""
    about: dict[str, Any] = dict(asked.target)
    how = {name: value for name, value in kwargs.items() if name not in about and isinstance(value, str | int | float)}
    for body in bodies:
        for name, value in body.given().items():
            if name not in body.withheld and name != "reason":
                (about if name in body.audited else how)[name] = value
    return {name: _text(value) for name, value in about.items()}, {name: _text(value) for name, value in how.items()}


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


__all__ = ["ADMIN", "OPERATE", "PUBLIC", "READ", "RIGHT", "Asked", "Asking", "Routes"]
