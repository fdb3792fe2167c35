"""Holdfast, as it comes (context, deadline and metrics on) and lean (without context and metrics)."""

from functools import cached_property, partial
from importlib import import_module
from itertools import count as numbers
from typing import ClassVar

import holdfast as hf
from benchmarks.rows import BOTH

OPEN_FOR = 3600
FIRST = """
from holdfast import Breaker, Guard, Retry, count
@Guard("first", Retry(attempts=3, base=0.2), Breaker(count(5, window=60), open_for=30))
def fn(x):
    return x
fn(1)
"""


class Ours:
    label = "ours"
    colours = BOTH
    imports = "import holdfast"
    first = FIRST
    options: ClassVar[dict[str, bool]] = {}
    serial = numbers()

    def guard(self, fn, *policies):
        return hf.Guard(f"bench-{next(self.serial)}", *policies, **self.options)(fn)

    @property
    def attempts(self):
        return hf.Retry(attempts=3, base=0.0, jitter="none")

    @property
    def circuit(self):
        return hf.Breaker(hf.count(5, window=60), open_for=OPEN_FOR)

    def retry(self, fn):
        return self.guard(fn, self.attempts)

    def breaker(self, fn, failures=5):
        return self.guard(fn, hf.Breaker(hf.consecutive(failures), open_for=OPEN_FOR))

    def breaker_count(self, fn):
        return self.guard(fn, self.circuit)

    def breaker_ratio(self, fn):
        return self.guard(fn, hf.Breaker(hf.ratio(0.5, window=60), open_for=OPEN_FOR))

    def bulkhead(self, fn, limit=20):
        return self.guard(fn, hf.Bulkhead(limit, queue=1_000))

    def rate_burst(self, fn):
        return self.guard(fn, hf.RateLimit(1e9, burst=1_000_000))

    def rate_steady(self, fn):
        return self.guard(fn, hf.RateLimit(1e9, burst=1))

    def timeout(self, fn):
        return self.guard(fn, hf.Timeout(total=2))

    def retry_breaker(self, fn):
        return self.guard(fn, self.attempts, self.circuit)

    def retry_breaker_timeout(self, fn):
        return self.guard(fn, self.attempts, self.circuit, hf.Timeout(attempt=2))

    def one_breaker(self):
        return self.make_circuit()

    @cached_property
    def make_circuit(self):
        """What a guard keeps per circuit, its lock included; policy, clock and hub are shared."""
        circuit = import_module("holdfast.guard.circuit").LiveCircuit
        clock = import_module("holdfast.core.clock").SYSTEM_CLOCK
        hub = import_module("holdfast.telemetry.hub").Hub()
        return partial(circuit, "bench", self.circuit, clock, hub)


class Lean(Ours):
    label = "lean"
    options: ClassVar = {"metrics": False, "context": False}
    imports = first = one_breaker = None


CONTENDERS = (Ours(), Lean())
