"""Where the arguments of a task come from: the workflow's input, what earlier stages left, or the definition itself.

A binding is JSON: `["in", name]`, `["out", ref, key, …]`, `["own", key]`, `["is", value]`, `["list", […]]` or
`["dict", {…}]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from holdfast.errors import TaskError
from holdfast.store.codec import plain

Binding = Sequence[Any]


class Promise:
    """What a stage will leave, or a part of it. Give it to another task, or return it."""

    __slots__ = ("path", "ref")

    def __init__(self, ref: str, path: tuple[str | int, ...] = ()) -> None:
        self.ref = ref
        self.path = path

    def __getitem__(self, key: str | int) -> Promise:
        if not isinstance(key, str | int):
            raise TypeError(
                f"a part of {self!r} is named by a text or a whole number, got {key!r}; take more in a task"
            )
        return Promise(self.ref, (*self.path, key))

    def __repr__(self) -> str:
        return f"<what {self.ref!r} leaves{''.join(f'[{key!r}]' for key in self.path)}>"

    def _ask(self, *_: object) -> Any:
        raise TypeError(
            f"{self!r} is not known before the workflow runs; decide in a task, or by a condition on a stage"
        )

    def _look_into(self, *_: object) -> Any:
        raise TypeError(f"{self!r} is not known before the workflow runs; give it to a task as a whole")

    # An answer would be one about the promise, and a text would be its repr: both would be stored for what is promised.
    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _ask
    __str__ = __format__ = __iter__ = __len__ = __int__ = __float__ = __add__ = __radd__ = __mod__ = _look_into
    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __neg__ = _look_into
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` asks for these before there is anything to name
            raise AttributeError(name)
        raise AttributeError(f"{self!r} is not known before the workflow runs; a part of it is [{name!r}]")


class Own(NamedTuple):
    """What the stage itself has in its context: a jump brings it."""

    key: str


class Unknown:
    """Stands for an input of a workflow that is only sketched. It can be handed on, and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _look(self, *_: object) -> Any:
        raise TypeError(f"it looks at {self._name!r}")

    __bool__ = __eq__ = __str__ = __format__ = __getitem__ = __iter__ = __len__ = __contains__ = _look
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __add__ = __radd__ = __sub__ = __mul__ = __mod__ = _look
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python asks of whatever is handed on
            raise AttributeError(name)
        self._look()


def _kept(value: Any, *_: object) -> Any:
    return value


def _tracking(kind: type) -> type:
    """Its copies are itself, as those of a text or number are, and what is pickled is the plain value. It has the name
    of what it stands for, since Python's own messages name it."""
    own = {"__slots__": (), "__copy__": _kept, "__deepcopy__": _kept, "__reduce__": lambda self: (kind, (kind(self),))}
    return type(kind.__name__, (kind,), own)


_TRACKED: Final = {kind: _tracking(kind) for kind in (str, int, float)}


def tracked(value: Any) -> Any:
    """The value as an object of its own, so that it is known again: two equal texts or numbers may be one object."""
    kind = _TRACKED.get(type(value))
    return value if kind is None else kind(value)


def bind(value: Any, inputs: Mapping[int, str], path: str) -> Binding:
    """The binding of an argument. `inputs` are the workflow's own arguments by identity, as `tracked` gave them; `path`
    is what an error calls it.

    A timedelta becomes seconds. Raises TypeError or ValueError, naming the place, for what is not JSON.
    Tuples, not lists: Python's search for cycles passes over those that hold texts.
    """
    if isinstance(value, Promise):
        return ("out", value.ref, *value.path)
    if isinstance(value, Own):
        return ("own", value.key)
    if _is_input(value, inputs):
        return ("in", inputs[id(value)])
    if isinstance(value, timedelta):
        return ("is", value.total_seconds())
    if isinstance(value, list | tuple) and _is_composed(value, inputs):
        return ("list", tuple([bind(item, inputs, f"{path}[{at}]") for at, item in enumerate(value)]))
    if isinstance(value, dict) and _is_composed(value.values(), inputs):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise TypeError(f"{path} has the key {odd[0]!r}; keys of stored data are texts")
        return ("dict", {str(key): bind(item, inputs, f"{path}.{key}") for key, item in value.items()})
    return ("is", plain(value, path))


def sources(binding: Binding) -> Iterator[str]:
    """The stages that a binding needs."""
    match binding:
        case ["out", ref, *_]:
            yield ref
        case ["list", items]:
            for item in items:
                yield from sources(item)
        case ["dict", items]:
            for item in items.values():
                yield from sources(item)


def resolve(
    binding: Binding, inputs: Mapping[str, Any], outputs: Callable[[str], Any], context: Mapping[str, Any] = {}
) -> Any:
    """The value; `context` is the stage's own. Raises TaskError if what an earlier stage left has no such part.

    Lists and dicts are copies: whoever gets them may change them, and nobody else sees that.
    """
    kind, what = binding[0], binding[1]
    value: Any
    if kind == "out":
        value = outputs(what)
        for key in binding[2:]:
            try:
                value = value[key]
            except (LookupError, TypeError):
                raise TaskError(f"what stage {what!r} left has no {key!r}") from None
    elif kind == "in":
        value = inputs[what]
    elif kind == "own":
        value = context.get(what)
    elif kind == "list":
        return [resolve(item, inputs, outputs, context) for item in what]
    elif kind == "dict":
        return {key: resolve(item, inputs, outputs, context) for key, item in what.items()}
    else:
        value = what
    return plain(value) if type(value) in (dict, list) else value


def _is_input(value: Any, inputs: Mapping[int, str]) -> bool:
    return id(value) in inputs and value is not None and not isinstance(value, bool)


def _is_composed(items: Iterable[Any], inputs: Mapping[int, str]) -> bool:
    """Whether something in it is not known before the workflow runs, differs from run to run, or is no JSON itself."""
    for item in items:
        if isinstance(item, Promise | timedelta) or _is_input(item, inputs):
            return True
        if isinstance(item, list | tuple) and _is_composed(item, inputs):
            return True
        if isinstance(item, dict) and _is_composed(item.values(), inputs):
            return True
    return False
