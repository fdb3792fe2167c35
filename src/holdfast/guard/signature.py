"""A function's parameters as text: how a wrapper with the same signature declares them and passes them on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class Signature:
    """`declared` goes into the def, `passed` into the call; `positional` and `keywords` build args and kwargs."""

    __slots__ = ("declared", "defaults", "keywords", "passed", "positional")

    def __init__(
        self,
        declared: str = "*args, **kwargs",
        passed: str = "*args, **kwargs",
        positional: str = "*args,",
        keywords: str = "**kwargs",
        defaults: dict[str, Any] | None = None,
    ) -> None:
        self.declared = declared
        self.passed = passed
        self.positional = positional
        self.keywords = keywords
        self.defaults = {} if defaults is None else defaults

    @classmethod
    def of(cls, fn: Callable[..., Any] | None) -> Signature:
        """The exact parameters where they can be known: packing `*args, **kwargs` costs more than the guard itself."""
        if fn is None:
            return cls()
        try:
            parameters = list(inspect.signature(fn, follow_wrapped=False).parameters.values())
        except (TypeError, ValueError):
            return cls()
        # Names that end in an underscore belong to the wrapper.
        if any(p.name.endswith("_") or not p.name.isidentifier() for p in parameters):
            return cls()
        return cls._exact(parameters)

    @classmethod
    def _exact(cls, parameters: list[inspect.Parameter]) -> Signature:
        made = cls("", "", "", "")
        declared: list[str] = []
        passed: list[str] = []
        positional: list[str] = []
        keywords: list[str] = []
        for index, p in enumerate(parameters):
            text = p.name
            if p.default is not p.empty:
                text = f"{p.name}=default{index}_"
                made.defaults[f"default{index}_"] = p.default
            if p.kind is p.VAR_POSITIONAL:
                declared.append(f"*{p.name}")
                passed.append(f"*{p.name}")
                positional.append(f"*{p.name}")
            elif p.kind is p.VAR_KEYWORD:
                declared.append(f"**{p.name}")
                passed.append(f"**{p.name}")
                keywords.append(f"**{p.name}")
            elif p.kind is p.KEYWORD_ONLY:
                if not any(part.startswith("*") for part in declared):
                    declared.append("*")
                declared.append(text)
                passed.append(f"{p.name}={p.name}")
                keywords.append(f"{p.name!r}: {p.name}")
            else:
                declared.append(text)
                passed.append(p.name)
                positional.append(p.name)
                following = parameters[index + 1].kind if index + 1 < len(parameters) else None
                if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
                    declared.append("/")
        made.declared = ", ".join(declared)
        made.passed = ", ".join(passed)
        made.positional = ", ".join(positional) + ("," if positional else "")
        made.keywords = ", ".join(keywords)
        return made
