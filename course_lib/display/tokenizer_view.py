"""The pieces of a text that a tokenizer makes, as data, as HTML and as a still picture.

Pure functions, as in `course_lib.display.views`: the same arguments give the same text, and every text is escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from matplotlib.figure import Figure

from course_lib.display import plots
from course_lib.display.views import THEME, count, visible
from course_lib.tokenizer import Tokenizer

TOKENS = """\
.course-tokens ol{display:flex;flex-wrap:wrap;gap:6px;list-style:none;margin:6px 0;padding:2px;\
max-height:400px;overflow-y:auto}
.course-tokens li{--c:#0072b2;border:1px solid var(--c);border-top-width:4px;border-radius:3px;\
padding:3px 7px 4px;min-width:34px;text-align:center;font-family:var(--mono);\
background:color-mix(in srgb,var(--c) 12%,transparent)}
.course-tokens li:nth-child(4n+2){--c:#d55e00}.course-tokens li:nth-child(4n+3){--c:#009e73}
.course-tokens li:nth-child(4n){--c:#cc79a7}
.course-tokens li.special{border-style:double;border-width:4px 3px 3px}
.course-tokens bdi{display:block;font-size:15px;white-space:pre-wrap;overflow-wrap:anywhere;max-width:24ch}
.course-tokens .id{display:block;font-size:13px}
.course-tokens .bytes{display:block;font-size:11px;line-height:1.3;color:var(--faint);width:min-content;\
min-width:100%;max-width:24ch}
.course-tokens .bytes span{white-space:nowrap}.course-tokens i{font-style:normal;color:var(--faint)}"""


@dataclass(frozen=True)
class TokenView:
    """One token of a text.

    `text` is None if the bytes alone are no UTF-8: the token holds a part of a character.
    """

    id: int
    text: str | None
    bytes: bytes
    special: bool


def token_table(tokenizer: Any, text: str, *,
                allowed_special: Literal["all"] | Collection[str] = ()) -> list[TokenView]:
    """The tokens of `text`, one after the other.

    Args:
        tokenizer: a `course_lib.tokenizer.Tokenizer` or a `tiktoken.Encoding`.
        allowed_special: special tokens whose text is read as control; by default it is data.
    """
    allowed = allowed_special if allowed_special == "all" else set(allowed_special)
    ids = tokenizer.encode(text, allowed_special=allowed, disallowed_special=())
    special = special_ids(tokenizer)
    pieces = [tokenizer.decode_single_token_bytes(id) for id in ids]
    return [TokenView(id, text_of(piece), piece, id in special) for id, piece in zip(ids, pieces)]


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the control tokens."""
    encoding = tokenizer.encoding if isinstance(tokenizer, Tokenizer) else tokenizer
    return frozenset(map(encoding.encode_single_token, encoding.special_tokens_set))


def text_of(piece: bytes) -> str | None:
    """The bytes as text, or None."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def token_summary(tokens: Sequence[TokenView]) -> str:
    """How many tokens and bytes, and bytes per token, in words."""
    n, n_bytes = len(tokens), sum(len(token.bytes) for token in tokens)
    ratio = f", {n_bytes / n:.2f} bytes per token" if n else ""
    return f"{count(n, 'token')}, {count(n_bytes, 'byte')}{ratio}"


def tokens_html(tokens: Sequence[TokenView], *, limit: int = 300, notice: str = "") -> str:
    """Tokens as numbered boxes: the piece, its id, its bytes in hex; above them the summary of all.

    Args:
        limit: boxes drawn at most; a line says how many tokens have none.
        notice: a further remark for the reader.
    """
    remarks = [notice] * bool(notice)
    if len(tokens) > limit:
        remarks.append(f"The first {limit:,} of {len(tokens):,} tokens are drawn.")
    items = "".join(map(token_item, tokens[:limit]))
    return (f'<div class="course course-tokens" data-tokens="{len(tokens)}" '
            f'data-bytes="{sum(len(token.bytes) for token in tokens)}"><style>{THEME}{TOKENS}</style>'
            f'<p class="summary" role="status"><b>{token_summary(tokens)}</b></p>'
            + "".join(f'<p class="notice">{escape(remark)}</p>' for remark in remarks)
            + f'<ol tabindex="0" aria-label="tokens: piece, id, bytes in hexadecimal">{items}</ol></div>')


def token_item(token: TokenView) -> str:
    """One box. A special token says so in words, too."""
    pairs = token.bytes.hex(" ").upper().split()
    hexes = " ".join(f"<span>{' '.join(pairs[i:i + 4])}</span>" for i in range(0, len(pairs), 4))
    shown = "".join(f"<i>{escape(c)}</i>" if c in "␣↵⇥⟨⟩" else escape(c) for c in visible(token.bytes))
    kind = ' class="special"' if token.special else ' class="part"' if token.text is None else ""
    return (f'<li{kind} data-id="{token.id}"><bdi>{shown}</bdi><span class="id">{token.id}</span>'
            f'<span class="bytes">{"special token" if token.special else hexes}</span></li>')


def tokens_figure(tokens: Sequence[TokenView], limit: int = 60) -> Figure:
    """The still picture of `tokenizer_widget`: the first tokens in boxes, their ids beneath."""
    shown = tokens[:limit]
    more = len(tokens) - len(shown)
    return plots.boxes([visible(token.bytes) for token in shown] + [f"{more:,} more"] * (more > 0),
                       [str(token.id) for token in shown] + [""] * (more > 0))
