"""What several views share: the colours of the page, and characters, counts and probabilities as a reader sees them.

An `x_view` turns data into pictures, as HTML or SVG text or as a figure, and its `x_widget` puts knobs to it. Views
are pure functions: the same arguments give the same string. Nothing is fetched, and every string that comes from a
reader or a vocabulary is escaped before it becomes markup.
"""

from __future__ import annotations

import unicodedata

from course_lib.display.colors import ROLES

MARKS = {" ": "␣", "\n": "↵", "\t": "⇥"}

# Colours follow the light or dark theme of JupyterLab and fall back to a light page.
SHOWN = ("query", "key", "cache")  # the roles that widgets show, in the colours that drawings give them
THEME = """\
.course{--ink:var(--jp-ui-font-color1,#212121);--faint:var(--jp-ui-font-color2,#616161);\
--line:var(--jp-border-color2,#ccc);--kept:#0072b2;--mono:var(--jp-code-font-family,monospace);\
color:var(--ink);font:14px/1.45 var(--jp-ui-font-family,system-ui,sans-serif)}
body[data-jp-theme-light=false] .course{--kept:#56b4e9}
.course p{margin:4px 0}.course .faint{color:var(--faint)}.course b{font-weight:600}
.course{""" + "".join(f"--{role}:{ROLES[role].light};" for role in SHOWN) + """}
body[data-jp-theme-light=false] .course{""" + "".join(f"--{role}:{ROLES[role].dark};" for role in SHOWN) + "}"


def visible(text: str | bytes) -> str:
    """Text with marks in place of spaces, line breaks and what has no shape; `⟨E6⟩` is part of a character.

    >>> print(visible(" a\\n"), visible("日".encode()[:2]), visible("\\u200b"))
    ␣a↵ ⟨E6⟩⟨97⟩ ⟨U+200B⟩
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return "".join(map(visible_character, text))


def visible_character(c: str) -> str:
    """One character as `visible` shows it; a byte outside UTF-8 comes as U+DC80 to U+DCFF."""
    if "\udc80" <= c <= "\udcff":
        return f"⟨{ord(c) - 0xDC00:02X}⟩"
    kind = unicodedata.category(c)
    if kind == "Mn":
        return "◌" + c
    return MARKS.get(c) or (f"⟨U+{ord(c):04X}⟩" if kind[0] in "CZ" else c)


def count(n: int, noun: str) -> str:
    """`1 token`, `4,096 tokens`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(p: float) -> str:
    """A probability with two digits that mean something, and never a false 0 or 100.

    >>> [percent(p) for p in (1, 0.99996, 0.314159, 0.0314159, 3.14e-5, 0)]
    ['100 %', '>99.9 %', '31.4 %', '3.1 %', '<0.01 %', '0 %']
    """
    if p in (0, 1):
        return f"{p:.0%}".replace("%", " %")
    if p > 0.9995:
        return ">99.9 %"
    return "<0.01 %" if p < 1e-4 else f"{100 * p:.{1 if p >= 0.01 else 2}f} %"
