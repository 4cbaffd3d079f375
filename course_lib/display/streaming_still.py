"""The still of the streaming widget: the last rows of its table, as a drawing."""

from __future__ import annotations

from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.streaming_view import COLUMNS, ROWS, StreamingView, streaming_summary
from course_lib.display.views import visible

LINE, PLACES = 38, (22, 182, 272, 396, 500, 606)  # how far the rows are apart, and where the columns begin


def streaming_drawing(view: StreamingView) -> Drawing:
    """The still picture: the last rows of the table."""
    ticks = view.ticks[-ROWS:]
    drawing = Drawing("A stream, token by token", streaming_summary(view, len(view.ticks)),
                      height=82 + LINE * len(ticks))
    for x, name in zip(PLACES, COLUMNS):
        for i, line in enumerate(name.removesuffix(" away").rsplit(" ", 1)):
            drawing.text(x, 30 + 22 * i, line, size=SMALL, role="faint", anchor="start")
    for i, tick in enumerate(ticks):
        y = 66 + LINE * i
        head = "the end" if tick.piece is None else tick.piece.hex(" ").upper()
        drawing.text(PLACES[0], y + 24, short(head, 14), size=SMALL, anchor="start", mono=True)
        last = (visible(tick.thrown), "plain") if tick.stop is not None else (visible(tick.held), "cache")
        cells = ((visible(tick.alone), None), (visible(tick.text), None), (tick.held_bytes.hex(" ").upper(), "cache"),
                 (visible(tick.shown), "mark"), last)
        for x, (text, fill) in zip(PLACES[1:], cells):
            if text:
                written(drawing, Area(x - 6, y, x + 90, y + LINE - 5), short(text, 8), fill)
    return drawing


def written(drawing: Drawing, area: Area, text: str, fill: str | None) -> None:
    """An entry of the table: what the client gets is solid, what is held dashed, what is thrown away hatched."""
    x, y = area.left + 6, area.top + 24
    if fill:
        drawing.rect(area, fill=fill, tint=0.35 if fill == "cache" else 1, stroke="ink" if fill == "mark" else "faint",
                     thick=1.4, dashed=fill == "cache", hatched=fill == "plain")
    if fill == "plain":  # a plate, so that the text can be read on the hatching
        drawing.rect(Area(x - 2, y - 17, x + text_width(text, SMALL, mono=True) + 2, y + 5), fill="paper", radius=3)
    drawing.text(x, y, text, size=SMALL, anchor="start", mono=True)


def short(text: str, most: int) -> str:
    """The beginning of a text.

    >>> short("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
