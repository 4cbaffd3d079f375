"""A stream token by token: what a decoder and a stop matcher show and hold, as data, in words and as HTML.

Pure functions; the decoder and the matcher are given, and may be a reader's. Every text is escaped before it becomes
markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.config import require
from course_lib.display.views import THEME, count, visible

# (held, new) to (text, held); (held, new, stops) to (show, hold, stop)
IncrementalDecoder = Callable[[bytes, bytes], tuple[str, bytes]]
StopMatcher = Callable[[str, str, Sequence[str]], tuple[str, str, str | None]]
ROWS = 13  # of the table, the last one for the token that was read last
COLUMNS = ("token", "on its own", "decoder releases", "decoder holds", "client gets", "held or thrown away")
NOTHING = '<span class="faint">nothing</span>'
NEW = ' class="new" aria-current="step"'
STYLE = """\
.course-stream table{border-collapse:collapse;margin:6px 0}.course-stream .scroll{overflow-x:auto}
.course-stream th,.course-stream td{text-align:left;padding:3px 10px;border-bottom:1px solid var(--line);\
white-space:nowrap;vertical-align:top}.course-stream thead th{font-size:13px;color:var(--faint);font-weight:400}
.course-stream bdi{font-family:var(--mono);font-size:15px;white-space:pre}
.course-stream th small{margin-left:8px;font-size:12px;font-weight:400;color:var(--faint)}
.course-stream .new{outline:2px solid var(--ink);outline-offset:-2px}
.course-stream .got{background:color-mix(in srgb,var(--kept) 22%,transparent);border:1px solid var(--kept);\
border-radius:3px;padding:0 3px}
.course-stream .held{border:1px dashed var(--ink);border-radius:3px;padding:0 3px;\
background:color-mix(in srgb,var(--cache) 30%,transparent)}
.course-stream .thrown{border:1px solid var(--line);padding:0 3px;text-decoration:line-through;\
background:repeating-linear-gradient(45deg,transparent 0 6px,var(--line) 6px 8px)}
.course-stream .broken{border:2px solid var(--ink);border-radius:3px}
.course-stream .line bdi{white-space:pre-wrap;overflow-wrap:anywhere}"""


@dataclass(frozen=True)
class Tick:
    """What one token did.

    Attributes:
        piece: its bytes; None at the end, when what is held is released.
        text: what the decoder released.
        held_bytes: what it holds since then.
        shown: what the matcher lets the client have.
        held: what it holds since then.
        stop: the stop string that is complete, or None.
        thrown: from the stop string on.
    """

    piece: bytes | None
    text: str
    held_bytes: bytes
    shown: str
    held: str
    stop: str | None
    thrown: str = ""

    @property
    def alone(self) -> str:
        """The token decoded on its own."""
        return "" if self.piece is None else self.piece.decode("utf-8", "replace")


@dataclass(frozen=True)
class StreamingView:
    """A stream from its first token to its end.

    Attributes:
        ticks: one for each token that was read, and one for the end, unless a stop string was found.
        unread: tokens after the stop string.
    """

    ticks: tuple[Tick, ...]
    unread: int

    def text(self, n: int) -> str:
        """What the client has after `n` ticks."""
        return "".join(tick.shown for tick in self.ticks[:n])

    def naive(self, n: int) -> str:
        """The same tokens, each decoded on its own."""
        return "".join(tick.alone for tick in self.ticks[:n])


def streaming_view(pieces: Sequence[bytes], stops: Sequence[str], decoder: IncrementalDecoder,
                   matcher: StopMatcher) -> StreamingView:
    """Read tokens until a stop string is complete or none is left.

    Args:
        pieces: bytes of the tokens.
        stops: strings that end the text.
        decoder, matcher: what decides.

    Raises:
        ValueError: one of them returns something of another form.
    """
    ticks, data, held = [], b"", ""
    for i, piece in enumerate(pieces, 1):
        text, data = decoded(decoder(data, piece))
        ticks.append(matched(piece, text, data, held, matcher(held, text, stops)))
        held = ticks[-1].held
        if ticks[-1].stop is not None:
            return StreamingView(tuple(ticks), len(pieces) - i)
    text = data.decode("utf-8", "replace")
    last = matched(None, text, b"", held, matcher(held, text, stops))
    if last.stop is None:  # nothing can follow, so nothing has to wait
        last = Tick(None, text, b"", last.shown + last.held, "", None)
    return StreamingView((*ticks, last), 0)


def decoded(result: Any) -> tuple[str, bytes]:
    """What a decoder returned, if it has the right form."""
    fine = isinstance(result, tuple | list) and [*map(type, result)] == [str, bytes]
    require(fine, "incremental_decoder(…)", result, "(text, held), a str and bytes")
    return tuple(result)


def matched(piece: bytes | None, text: str, data: bytes, held: str, result: Any) -> Tick:
    """The tick of a token, if what the matcher returned has the right form."""
    fine = (isinstance(result, tuple | list) and len(result) == 3 and all(type(part) is str for part in result[:2])
            and (result[2] is None or type(result[2]) is str))
    require(fine, "stop_matcher(…)", result, "(show, hold, stop), two str, and a str or None")
    shown, rest, stop = result
    if stop is None:
        return Tick(piece, text, data, shown, rest, None)
    return Tick(piece, text, data, shown, rest, stop, (held + text)[len(shown):])


# Words


def streaming_summary(view: StreamingView, n: int) -> str:
    """What has happened after `n` ticks, in words."""
    tick, broken = view.ticks[n - 1], view.naive(n).count("\ufffd")
    read = sum(one.piece is not None for one in view.ticks[:n])
    said = [f"{count(read, 'token')} read. The client has {quoted(view.text(n))}."]
    if tick.stop is not None:
        said.append(f"The stop string {quoted(tick.stop)} is complete: {quoted(tick.thrown)} is thrown away, and "
                    f"{count(view.unread, 'token')} {'is' if view.unread == 1 else 'are'} never read.")
    elif tick.piece is None:
        said.append("No more tokens: nothing is held any more.")
    else:
        said.append(f"Held: {count(len(tick.held_bytes), 'byte')} and {quoted(tick.held)}.")
    said.append(f"Each token on its own: U+FFFD {broken} times." if broken != 1 else
                "Each token on its own: U+FFFD once.")
    return " ".join(said)


def quoted(text: str) -> str:
    """A text in quotation marks, or the word for none."""
    return f"“{visible(text)}”" if text else "no text"


# Pictures


def streaming_html(view: StreamingView, n: int, *, notice: str = "") -> str:
    """The text that the client has after `n` ticks, the last rows of the table, and token-by-token decoding beneath.

    Args:
        notice: a further remark for the reader.

    Raises:
        ValueError: there are not that many ticks.
    """
    require(1 <= n <= len(view.ticks), "n", n, f"in [1, {len(view.ticks)}]")
    tick, first = view.ticks[n - 1], max(0, n - ROWS)
    rows = "".join(row(i, one, last=i == n) for i, one in enumerate(view.ticks[first:n], first + 1))
    heads = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    tail = mark("held", tick.held) + "".join(mark("held", byte) for byte in each_byte(tick.held_bytes))
    remark = f'<p class="notice">{escape(notice)}</p>' * bool(notice)
    return (f'<div class="course course-stream" data-tick="{n}" data-ticks="{len(view.ticks)}" '
            f'data-broken="{view.naive(n).count(chr(0xFFFD))}" data-stop="{escape(visible(tick.stop or ""))}">'
            f"<style>{THEME}{STYLE}</style>{remark}"
            f'<p class="line">The client has {mark("got", view.text(n)) or "nothing"}'
            f'{" and waits for " + tail if tail else ""}</p>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="the last tokens">'
            f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
            f'<p class="line naive">Each token on its own: {naive_html(view.naive(n)) or "nothing"}</p>'
            f'<p class="summary" role="status">{escape(streaming_summary(view, n))}</p></div>')


def row(number: int, tick: Tick, *, last: bool) -> str:
    """A tick in the table."""
    if tick.piece is None:
        head = "the end"
    else:
        head = f"{number} <bdi>{escape(visible(tick.piece))}</bdi><small>{tick.piece.hex(' ').upper()}</small>"
    cells = (naive_html(tick.alone), mark("", tick.text),
             "".join(mark("held", byte) for byte in each_byte(tick.held_bytes)), mark("got", tick.shown),
             mark("thrown", tick.thrown) if tick.stop is not None else mark("held", tick.held))
    return (f'<tr{NEW if last else ""}><th scope="row">{head}</th>'
            + "".join(f'<td>{cell or NOTHING}</td>' for cell in cells) + "</tr>")


def each_byte(data: bytes) -> list[str]:
    """The bytes in hexadecimal."""
    return data.hex(" ").upper().split()


def mark(kind: str, text: str) -> str:
    """A text with the mark of what happened to it; nothing for an empty one."""
    return f'<bdi class="{kind}">{escape(visible(text))}</bdi>' if text else ""


def naive_html(text: str) -> str:
    """A text in which every U+FFFD is framed."""
    return "".join(f'<bdi class="broken">{c}</bdi>' if c == "\ufffd" else f"<bdi>{escape(visible(c))}</bdi>"
                   for c in text)
