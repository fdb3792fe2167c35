"""The http task: a request, through a guard of the application where its stage names one.

| what came back                                   | the task                                                  |
|--------------------------------------------------|-----------------------------------------------------------|
| an expected status (2xx)                         | succeeds                                                  |
| 502, 503, 504, a broken connection, a timeout    | is tried again if the request may be made twice           |
| no connection at all                             | is tried again, whatever the method                       |
| 429 with Retry-After                             | is tried again then, whatever the method: nothing was done |
| any other status                                 | fails                                                     |
| a guard's refusal                                | is tried again when the guard says; it costs no attempt   |

GET, HEAD, OPTIONS, TRACE, PUT and DELETE may be made twice; POST and PATCH only with `idempotent`, which says that the
server honours the Idempotency-Key that every request carries. The waiting between tries is the engine's: no worker
sleeps here.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from holdfast.core.classify import RETRIED_STATUSES, default_classify, retry_after_hint, was_not_sent
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence, OutcomeKind, Verdict
from holdfast.core.redact import MASK, is_secret_key, redact
from holdfast.errors import ConfigurationError, PermanentError, TaskError, TransientError
from holdfast.guard.call import IDEMPOTENT
from holdfast.guard.call import Call as GuardedCall
from holdfast.guard.driver import drive
from holdfast.guard.guard import Guard
from holdfast.guard.http_rules import IDEMPOTENCY_KEY, HttpRules, answer, is_idempotent
from holdfast.outbox.publishers.address import Reach, bounded, public_only
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task
from holdfast.workflows.tasks.http_request import HttpResult, checked_url, request
from holdfast.workflows.tasks.placeholders import filled
from holdfast.workflows.tasks.settings import (
    check_flag,
    check_names,
    check_text,
    check_time,
    check_wholes,
    settings_of,
)

# Our own refusals: another try would meet the same one, and they say nothing about the dependency.
_OURS: Final = Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=Evidence.NEUTRAL)
_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request. Placeholders in `url` are percent-encoded, those in headers put in as they are."""

    url: str
    method: str = "GET"
    headers: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    body: str | None = None
    timeout: float = 30.0
    expected_statuses: Sequence[int] = range(200, 300)
    redirects: int = 0
    """How many redirects of GET and HEAD are followed."""
    idempotent: bool = False
    """Whether the server makes one of two requests with the same Idempotency-Key."""
    guard: str | None = None

    def __post_init__(self) -> None:
        check_text("url", self.url)
        check_text("method", self.method)
        if self.method.upper() not in _METHODS:
            raise ConfigurationError(f"method must be one of {', '.join(sorted(_METHODS))}, got {self.method!r}")
        check_names("headers", self.headers)
        check_names("params", self.params)
        check_text("body", self.body, optional=True, empty=True)
        if self.body is not None and self.json is not None:
            raise ConfigurationError("body and json are both given; a request has one of them")
        check_time("timeout", self.timeout)
        check_wholes("expected_statuses", self.expected_statuses)
        if type(self.redirects) is not int or not 0 <= self.redirects <= 20:
            raise ConfigurationError(f"redirects must be 0..20, got {self.redirects!r}")
        check_flag("idempotent", self.idempotent)
        check_text("guard", self.guard, optional=True)

    @property
    def may_repeat(self) -> bool:
        return self.idempotent or is_idempotent(self.method, None)

    def send(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        guard: Guard | None = None,
        reach: Reach = public_only,
        tls: ssl.SSLContext | None = None,
    ) -> HttpResult:
        """The answer, if its status is expected. Raises TransientError, TaskError or PermanentError by the table above,
        and a guard's own refusals."""
        url, headers, body = self._made(values or {}, key)

        def attempt() -> HttpResult:
            return request(
                self.method.upper(),
                url,
                headers=headers,
                body=body,
                timeout=self.timeout,
                reach=reach,
                redirects=self.redirects,
                tls=tls,
            )

        what = f"{self.method.upper()} {redact(url, 200)}"
        try:
            found = attempt() if guard is None else _guarded(guard, attempt, self.may_repeat)
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(what, error) from error
        return self._judged(what, found)

    def _made(self, values: Mapping[str, Any], key: str | None) -> tuple[str, dict[str, str], bytes | None]:
        url = filled(self.url, values, lambda text: quote(text, safe=""))
        if self.params:
            url, mark, fragment = url.partition("#")
            url += ("&" if "?" in url else "?") + urlencode({name: str(one) for name, one in self.params.items()})
            url += mark + fragment
        checked_url(url)
        headers = {name: filled(str(one), values) for name, one in self.headers.items()}
        body = None if self.body is None else self.body.encode()
        if self.json is not None:
            body = json.dumps(self.json, ensure_ascii=False).encode()
            headers.setdefault("Content-Type", "application/json")
        for name, one in headers.items():
            if "\n" in name + one or "\r" in name + one:
                raise ConfigurationError(f"the header {name!r} has a line break in it")
            if any(ord(letter) > 255 for letter in name + one):
                raise ConfigurationError(f"the header {name!r} has letters that no header can hold; encode them")
        if key is not None and IDEMPOTENCY_KEY.lower() not in {name.lower() for name in headers}:
            headers[IDEMPOTENCY_KEY] = key
        return url, headers, body

    def _failure(self, what: str, error: Exception) -> Exception:
        story = redact(str(error) or type(error).__name__)
        if was_not_sent(error):
            return TransientError(f"{what}: no connection: {story}")
        if self.may_repeat:
            return TransientError(f"{what}: {story}")
        return PermanentError(f"{what}: {story}; it may have been done, and a {self.method.upper()} is not made twice")

    def _judged(self, what: str, found: HttpResult) -> HttpResult:
        if found.status in self.expected_statuses:
            return found
        hint = retry_after_hint(found, SYSTEM_CLOCK.wall)
        story = f"{what} was answered with {found.status}{_said(found)}"
        if (found.status == 429 and hint is not None) or (found.status in RETRIED_STATUSES and self.may_repeat):
            raise TransientError(story, retry_after=hint)
        # A policy may retry a TaskError; what may have been done and must not be done twice is no matter of policy.
        raise (PermanentError if not self.may_repeat and found.status >= 500 else TaskError)(story)


class HttpTask(Task):
    """Makes the request in its stage's context; publishes `response`: `status`, `headers`, `url`, `body` or `json`.

    What only the application may decide is given here and not in a stage: `guards` finds a guard by its name
    (`hold.guard`), `reach` says which addresses may be called; without it public ones only, or those of
    HOLDFAST_WEBHOOK_REACH, which bounds any other `reach` too.
    """

    def __init__(
        self,
        *,
        guards: Callable[[str], Guard] | None = None,
        reach: Reach = public_only,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guards = guards
        self._asked = reach
        self._reach = bounded(reach) or reach
        self._tls = tls

    def confine(self, listed: Sequence[str]) -> None:
        """Call nothing but what the operator lists. Called by the registry that it is in."""
        self._reach = bounded(self._asked, listed) or self._asked

    def execute(self, stage: StageExecution) -> TaskResult:
        call = settings_of(HttpCall, "http", stage.context)
        running = current_task()
        key = None if running is None else running.idempotency_key
        guard = None if call.guard is None else self._guard(call.guard)
        found = call.send(stage.context, key=key, guard=guard, reach=self._reach, tls=self._tls)
        return TaskResult.success({"response": _published(found)})

    def _guard(self, name: str) -> Guard:
        if self._guards is None:
            raise ConfigurationError(
                f"the guard {name!r} is not known here; make the task with HttpTask(guards=hold.guard)"
            )
        return self._guards(name)


def _guarded(guard: Guard, attempt: Callable[[], HttpResult], may_repeat: bool) -> HttpResult:
    """The request as one guarded call, with the rules of HTTP where the guard has none of its own."""
    plan = guard.plan_in_context()
    rules = HttpRules(clock=plan.clock)
    setting = copy(plan.setting)
    if setting.judge is None:
        setting.judge = rules.judge
    classify = rules.classify if setting.classify is default_classify else setting.classify
    setting.classify = lambda error: (
        _OURS if isinstance(error, PermanentError | ConfigurationError) else classify(error)
    )
    call = GuardedCall(setting, False, attempt, properties={IDEMPOTENT: may_repeat})
    found: HttpResult = answer(drive(plan.perform(call)))
    return found


def _published(found: HttpResult) -> dict[str, Any]:
    headers = {name: MASK if is_secret_key(name) else value for name, value in found.headers.items()}
    published: dict[str, Any] = {"status": found.status, "headers": headers, "url": redact(found.url, None)}
    kind, _, rest = found.headers.get("content-type", "").partition(";")
    if found.body and (kind.strip() == "application/json" or kind.strip().endswith("+json")):
        try:
            return {**published, "json": json.loads(found.body)}
        except ValueError as error:
            raise TaskError(f"{published['url']} answered with what it calls JSON and is none: {error}") from error
    return {**published, "body": _text(found.body, rest)}


def _text(body: bytes, parameters: str) -> str:
    charset = parameters.partition("charset=")[2].split(";")[0].strip(" \"'") or "utf-8"
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _said(found: HttpResult) -> str:
    text = redact(found.body[:2000].decode("utf-8", "replace").strip(), 200)
    return f": {text}" if text else ""
