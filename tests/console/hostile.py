"""Two hundred texts that a console must survive: what runs, what breaks out, what turns around, what is too long."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

NUMBER: Final = 200
MARK: Final = "__pwned"
"""What the texts set on `window` if they are ever run; § in them is the statement that does."""
_RUN: Final = f"window.{MARK}=1"

_SCRIPTS: Final = (
    "<script>§</script>", "<SCRIPT SRC=data:text/javascript,§></SCRIPT>", "<scr<script>ipt>§</scr</script>ipt>",
    "<img src=x onerror=§>", "<img src=x onerror='§'>", "<svg onload=§>", "<svg><script>§</script></svg>",
    "<body onload=§>", "<iframe srcdoc='<script>parent.§</script>'></iframe>", "<details open ontoggle=§>x</details>",
    "<video><source onerror=§></video>", "<math><mtext></table><img src=x onerror=§>", "<input autofocus onfocus=§>",
    "<a href='javascript:§'>press</a>", "javascript:§", "JaVaScRiPt:§", "\tjava\nscript:§",
    "data:text/html,<script>§</script>", "<form action=javascript:§><button>go</button></form>",
    "<object data='javascript:§'>", "<embed src='javascript:§'>", "<link rel=stylesheet href='javascript:§'>",
    "<meta http-equiv=refresh content='0;javascript:§'>", "<base href='javascript:§//'>",
    "</script><script>§</script>", "</style><script>§</script>", "</title><script>§</script>",
    "</textarea><script>§</script>", "</bdi></td></tr></table><script>§</script>", "--><script>§</script><!--",
    "]]><script>§</script>", "<![CDATA[<script>§</script>]]>", "\x00<script>§</script>", "<script\x00>§</script>",
    "＜script＞§＜/script＞", "&lt;script&gt;§&lt;/script&gt;", "\\u003cscript\\u003e§\\u003c/script\\u003e",
    "%3Cscript%3E§%3C/script%3E",
)  # fmt: skip
_BREAKOUTS: Final = (
    '" onmouseover="§', "' onmouseover='§", '"><script>§</script>', "'><script>§</script>", "` onmouseover=`§`",
    '" autofocus onfocus="§', '" style="position:fixed;inset:0" onclick="§', "x\" y='", "\\\"><img src=x onerror=§>",
    "</a><a href=\"javascript:§\">", "';§;//", "\";§;//", "`;§;//", "\\';§;//", "*/§;/*", "\u2028§\u2029", "${{§}}",
    "${{`${{§}}`}}",
)  # fmt: skip
_TEMPLATES: Final = (
    "{{constructor.constructor('§')()}}", "{{§}}", "#{§}", "<%= § %>", "{% § %}", "[[§]]", "{{7*7}}", "${7*7}",
    "{{toString}}", "{{__proto__}}", "__proto__", "constructor", "hasOwnProperty", "toString", "valueOf", "prototype",
    "undefined", "null", "NaN", "true", "-0", "[object Object]",
)  # fmt: skip
_QUERIES: Final = (
    "' OR 1=1 --", "'; DROP TABLE holdfast_letters; --", '" OR ""="', "1; SELECT pg_sleep(10)", "%' --", "_%\\", "\\",
    "\\\\", "''", '""', "`", "$1", ":name", "?", "%s", "%(x)s",
)  # fmt: skip
_PATHS: Final = (
    "../../../etc/passwd", "..\\..\\windows", "/", "//evil.example/x", "a/b/c", "a%2Fb", "%", "%00", "%zz",
    "?q=1&r=2#s", "#", "?", "&amp;", "a?b=c", "a#b", ".", "..", "file:///etc/passwd", "http://evil.example",
)  # fmt: skip
_FORMULAS: Final = (
    "=1+1", '=HYPERLINK("http://evil.example")', "@SUM(A1)", "+1|cmd", "-1+1|cmd", "\t=1", "\r=1",
)  # fmt: skip
_DIRECTIONS: Final = (
    "\u202egnp.exe", "abc\u202edef\u202cghi", "\u2066isolate\u2069", "\u200frtl mark", "\u061carabic mark",
    "مرحبا بالعالم", "שלום עולם <b>bold</b>", "abc مرحبا 123 שלום", "\u202e\u202e\u202e\u202e", "\u2067" * 20 + "x",
)  # fmt: skip
_UNSEEN: Final = (
    "\u200b", "a\u200bb\u200bc", "\ufeff", "\u00ad" * 40, "\u2060", "\u180e", " ", "\t", "\n", "\r\n", "a\nb\nc\nd",
    "\x07\x08\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x7f", "\x85", "\u3000", "\u00a0" * 30, "\u115f", "\u3164",
)  # fmt: skip
_SIGNS: Final = (
    "👩‍👩‍👧‍👦", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👍🏿", "🇩🇪🇫🇷", "e\u0301\u0301\u0301", "Z" + "\u0335\u0336\u0337\u0338\u0351\u0352\u0357" * 30,
    "ﷺ", "﷽", "꧅𒐫", "𒈙𒈙𒈙", "ⓕⓐⓝⓒⓨ", "ａｂｃ", "漢字かな交じり文", "한국어", "Ω≈ç√∫˜µ≤≥÷", "ß", "İ", "ﬃ",
    "\U0001f4a9" * 50,
)  # fmt: skip
_STYLES: Final = (
    "<style>*{display:none}</style>", "<div style='position:fixed;inset:0;background:red;z-index:99999'>x</div>",
    "<link rel=stylesheet href=//evil.example>", "</div></div></div></main>", "<table><tr><td>", "<!--", "<plaintext>",
    "<xmp>", "<marquee>x</marquee>", "<h1>huge</h1>", "<br>" * 20,
)  # fmt: skip
_LONG: Final[tuple[Callable[[], str], ...]] = (
    lambda: "x" * 200, lambda: "W" * 5000, lambda: "long words " * 500, lambda: "a-" * 2000, lambda: "\u0e01" * 3000,
    lambda: "line\n" * 1000, lambda: "W" * 100_000, lambda: "👍" * 2000, lambda: "." * 3000, lambda: "/" * 3000,
)  # fmt: skip


def hostile(number: int = NUMBER) -> list[str]:
    """So many texts, each different, always the same ones."""
    return list(itertools.islice(_each_once(), number))


def short(longest: int, number: int = NUMBER) -> list[str]:
    """The texts cut to so many characters, for names: different, not empty, and nothing but spaces is left out."""
    return list(dict.fromkeys(text[:longest] for text in hostile(number) if text.strip()))


def _each_once() -> Iterator[str]:
    told: set[str] = set()
    for text in _all():
        if text not in told:
            told.add(text)
            yield text


def _all() -> Iterator[str]:
    yield from (text.replace("§", _RUN) for text in (*_SCRIPTS, *_BREAKOUTS, *_TEMPLATES))
    yield from (*_QUERIES, *_PATHS, *_FORMULAS, *_DIRECTIONS, *_UNSEEN, *_SIGNS, *_STYLES)
    yield from (make() for make in _LONG)
    for at in itertools.count(1):
        yield f'{at}"><img src=x onerror={_RUN}>' + "\u202e" * (at % 3) + "z" * at
