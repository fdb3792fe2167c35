"""What an answer that is no success says: problem+json, with a code for programs and a sentence for people."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from holdfast.core.redact import redact
from holdfast.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidValue,
    MissingExtra,
    PolicyError,
    SchemaError,
    StageNotFoundError,
    StoreUnavailable,
    WorkflowNotFoundError,
)

MEDIA_TYPE: Final = "application/problem+json"
_LONGEST_LIST: Final = 2000
_LOG: Final = logging.getLogger("holdfast.server")


class Problem(BaseModel):
    """An answer that is no success. `error` stays what it is for programs; `message` is for people."""

    type: str = "about:blank"
    title: str
    status: int
    error: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class ProblemError(Exception):
    """Ends a request with a problem. `headers` go with the answer."""

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})


def not_found(what: str, id: str) -> ProblemError:
    """There is no such thing: `error` is `letter_not_found`, `workflow_not_found` and so on."""
    return ProblemError(404, f"{what.replace(' ', '_')}_not_found", f"there is no {what} {redact(id, 200)!r}")


def refused(error: str, message: str, **details: Any) -> ProblemError:
    """What is asked for cannot be done to the thing as it is now."""
    return ProblemError(409, error, message, details)


def invalid(error: str, message: str, **details: Any) -> ProblemError:
    """What is asked for cannot be meant."""
    return ProblemError(422, error, message, details)


def answer(
    status: int, error: str, message: str, details: Mapping[str, Any] | None = None, headers: Any = None
) -> JSONResponse:
    """The response that says so."""
    return JSONResponse(document(status, error, message, details), status, headers=headers, media_type=MEDIA_TYPE)


def document(status: int, error: str, message: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What it says."""
    shown = Problem(title=TITLES.get(status, "Error"), status=status, error=error, message=message)
    return shown.model_dump() | {"details": dict(details or {})}


TITLES: Final[Mapping[int, str]] = {
    400: "Bad request", 401: "Not signed in", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    409: "Not possible now", 412: "Changed meanwhile", 413: "Too large", 415: "Not JSON", 422: "Not valid",
    429: "Too many requests", 500: "Server error", 501: "Not there", 503: "Not ready",
}  # fmt: skip

RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"description": "The request was refused", "content": {MEDIA_TYPE: {"schema": {
        "$ref": "#/components/schemas/Problem"}}}},
    "5XX": {"description": "The store or the server failed", "content": {MEDIA_TYPE: {"schema": {
        "$ref": "#/components/schemas/Problem"}}}},
}  # fmt: skip


def install(app: FastAPI) -> None:
    """Answer every error of the app with a problem."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> JSONResponse:
        return answer(error.status, error.error, error.message, error.details, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        fields = [{"where": ".".join(map(str, one["loc"])), "what": one["msg"]} for one in error.errors()]
        said = "; ".join(f"{one['where']}: {one['what']}" for one in fields[:5])
        return answer(422, "invalid_request", redact(said), {"fields": fields[:20]})

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "no_such_path", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        return answer(error.status_code, code, str(error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        found = translated(error)
        if found is None:
            reference = secrets.token_hex(8)
            where = repr(redact(request.url.path, 200))
            _LOG.error("%s %s failed (reference %s)", request.method, where, reference, exc_info=error)
            said = f"something failed in the server; its log says what, under {reference}"
            found = ProblemError(500, "server_error", said, {"reference": reference})
        return answer(found.status, found.error, found.message, found.details, found.headers)

    app.add_exception_handler(HoldfastError, unexpected)


def translated(error: Exception) -> ProblemError | None:
    """What an error of Holdfast's means for whoever asked; None for one that nobody expected.

    A ValueError that is not ours is one of those: who asked can do nothing about it, and may not read what it says.
    """
    text = redact(str(error))
    match error:
        case StoreUnavailable():
            return ProblemError(503, "store_away", text, headers={"Retry-After": "1"})
        case SchemaError():
            return ProblemError(503, "schema_not_current", text)
        case StageNotFoundError():
            return ProblemError(404, "stage_not_found", redact(str(error), _LONGEST_LIST))
        case WorkflowNotFoundError():
            return ProblemError(404, "workflow_not_found", text)
        case Conflict():
            return ProblemError(409, "changed_meanwhile", text)
        case MissingExtra():
            return ProblemError(501, "extra_missing", text)
        case ConfigurationError():
            return ProblemError(409, "not_configured", text)
        case PolicyError() | InvalidValue():
            return ProblemError(422, "invalid_value", text)
        case HoldfastError():
            return ProblemError(409, "refused", text)
    return None
