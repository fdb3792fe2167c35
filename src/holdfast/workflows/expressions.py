"""Conditions as text: names, attributes, subscripts, comparisons, and/or/not, if-else, lists and literals.

    Expression.parse("order.total > 100 and order.country in ['DE', 'FR']").evaluate({"order": {...}})

There are no calls and no arithmetic, so a condition can neither do anything nor take long. `a.b` reads the key "b" of
a mapping, never an attribute of a Python object. What is not there is None, and None is neither below nor above
anything. `true`, `false` and `null` mean what they mean in JSON.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from holdfast.errors import PermanentError, WorkflowDefinitionError

LONGEST: Final = 2000
DEEPEST: Final = 40
_ALLOWED: Final = "names, attributes, subscripts, comparisons, and/or/not, if-else, lists and literals"
_LITERALS: Final = {"true": True, "false": False, "null": None}
_NOT_ALLOWED: Final = {
    ast.Call: "a call",
    ast.BinOp: "arithmetic",
    ast.UnaryOp: "arithmetic",
    ast.Lambda: "a lambda",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "an f-string",
    ast.Starred: "unpacking",
    ast.Slice: "a slice",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
}
_ORDERINGS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition, checked and ready to be evaluated as often as needed."""

    text: str
    root: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Raises WorkflowDefinitionError (`bad_expression`): what is not allowed, and where."""
        if not isinstance(text, str):
            raise WorkflowDefinitionError("bad_expression", f"a condition is a text, got {text!r}")
        if len(text) > LONGEST:
            raise WorkflowDefinitionError(
                "bad_expression", f"the condition has {len(text)} characters, at most {LONGEST} are allowed"
            )
        source = text.strip()
        try:
            root = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            _refuse(source, f"{error.msg}{_place(source, error.lineno, (error.offset or 1) - 1)}")
        except (ValueError, RecursionError, MemoryError) as error:
            _refuse(source, str(error) or "it is nested too deep")
        _check(root, source, 0)
        return cls(source, root)

    @property
    def names(self) -> set[str]:
        """What it asks for."""
        asked = {node.id for node in ast.walk(self.root) if isinstance(node, ast.Name)}
        return asked - set(_LITERALS)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Its value. Raises PermanentError for two values that have no order, such as a text and a number."""
        return _Evaluation(self.text, names).value(self.root)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a condition that is needed once; see Expression."""
    return Expression.parse(text).evaluate(names)


def _check(node: ast.AST, source: str, depth: int) -> None:
    """Refuse every kind of node that `_Evaluation` does not know."""
    if depth > DEEPEST:
        _refuse(source, f"it is nested more than {DEEPEST} deep")
    match node:
        case ast.Constant(value=value):
            if not (value is None or isinstance(value, bool | int | float | str)):
                _refuse_node(source, node, f"{type(value).__name__} literal")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) in (int, float):
            pass
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() | ast.IfExp() | ast.Name() | ast.Attribute():
            pass
        case ast.Subscript() | ast.List() | ast.Tuple() | ast.expr_context() | ast.boolop() | ast.Not() | ast.cmpop():
            pass
        case ast.Compare():
            _check_identity(node, source)
        case _:
            _refuse_node(source, node, _NOT_ALLOWED.get(type(node), type(node).__name__))
    if not isinstance(node, ast.UnaryOp) or isinstance(node.op, ast.Not):
        for child in ast.iter_child_nodes(node):
            _check(child, source, depth + 1)


def _check_identity(node: ast.Compare, source: str) -> None:
    """`is` asks for None, True and False only: which equal values are one object is an accident."""
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.Is | ast.IsNot) and not (_is_singleton(left) or _is_singleton(right)):
            _refuse_node(source, node, "`is` between two values (write ==)")
        left = right


def _is_singleton(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _LITERALS
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _refuse_node(source: str, node: ast.AST, what: str) -> NoReturn:
    line = getattr(node, "lineno", 1)
    text = source.split("\n")[line - 1].encode()[: getattr(node, "col_offset", 0)].decode(errors="replace")
    _refuse(source, f"{what} is not allowed{_place(source, line, len(text))}; use {_ALLOWED}")


def _refuse(source: str, what: str) -> NoReturn:
    shown = source if len(source) <= 80 else source[:79] + "…"
    raise WorkflowDefinitionError("bad_expression", f"condition {shown!r}: {what}") from None


def _place(source: str, line: int | None, column: int) -> str:
    before = sum(len(one) + 1 for one in source.split("\n")[: (line or 1) - 1])
    return f" at character {before + column + 1}"


class _Evaluation:
    """One evaluation: the names it may read, and the text for its errors."""

    __slots__ = ("_names", "_text")

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._text = text
        self._names = names

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return _LITERALS[name] if name in _LITERALS else self._names.get(name)
            case ast.Attribute(value=inner, attr=name):
                return _item(self.value(inner), name)
            case ast.Subscript(value=inner, slice=key):
                return _item(self.value(inner), self.value(key))
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp(op=op, values=values):
                return self._either(values, until=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self.value(inner)
            case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case _:
                raise AssertionError(f"{ast.dump(node)} was not refused when it was parsed")

    def _either(self, values: list[ast.expr], until: bool) -> Any:
        found = None
        for node in values:
            found = self.value(node)
            if bool(found) is until:
                break
        return found

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if not self._holds(op, left, right):
                return False
            left = right
        return True

    def _holds(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        match op:
            case ast.Eq():
                return bool(left == right)
            case ast.NotEq():
                return bool(left != right)
            case ast.Is():
                return left is right
            case ast.IsNot():
                return left is not right
            case ast.In():
                return _contains(right, left)
            case ast.NotIn():
                return not _contains(right, left)
        if left is None or right is None:
            return False
        try:
            return bool(_ORDERINGS[type(op)](left, right))
        except TypeError:
            kinds = f"{type(left).__name__} and {type(right).__name__}"
            raise PermanentError(f"condition {self._text!r}: {kinds} have no order") from None


def _item(holder: Any, key: Any) -> Any:
    """What a mapping has under a key, or a list at a place; None where there is nothing."""
    if isinstance(holder, Mapping):
        return holder.get(key) if _can_be_a_key(key) else None
    if isinstance(holder, list | tuple | str) and type(key) is int and -len(holder) <= key < len(holder):
        return holder[key]
    return None


def _contains(holder: Any, item: Any) -> bool:
    if isinstance(holder, str):
        return isinstance(item, str) and item in holder
    if isinstance(holder, Mapping):
        return _can_be_a_key(item) and item in holder
    return isinstance(holder, list | tuple) and item in holder


def _can_be_a_key(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)
