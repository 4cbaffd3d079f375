"""A picture in a notebook: the image with its alt text, and the caption beneath, in one `<figure>`.

JupyterLab and nbconvert's default template drop the `alt` of an `image/png` output. An `<img>` in an HTML output
keeps it, on both and wherever HTML outputs are shown.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from html import escape
from typing import Protocol

from IPython.display import publish_display_data
from matplotlib import style
from matplotlib.figure import Figure
from PIL import Image

from course_lib.config import require
from course_lib.display.plots import DPI, LOOK

SHARP = 2  # pixels of the file to one of the page, for screens that have them
COLOURS = 128  # of a figure's palette; a PNG with one takes a third of the bytes


class Drawn(Protocol):
    """A drawing of `course_lib.display.diagrams`."""

    title: str
    description: str

    def svg(self) -> str:
        """The text of an SVG file."""


def show(picture: Figure | Drawn, caption: str, *, alt: str | None = None) -> None:
    """Display a figure or a drawing with its caption.

    Args:
        caption: one or two sentences that state the finding with its number; `code` and *emphasis* as in Markdown.
        alt: what is to be seen, for a reader who cannot; else the picture's own description, which says axes, first
            and last values. The surprising point is the caption's to say.

    Raises:
        ValueError: there is no caption, or no description.
    """
    require(bool(caption.strip()), "caption", caption, "a sentence")
    publish_display_data(bundle(picture, caption, alt))


def bundle(picture: Figure | Drawn, caption: str, alt: str | None = None) -> dict[str, str]:
    """The picture as a Jupyter MIME bundle: HTML, and as plain text its description and caption."""
    alt = description(picture) if alt is None else alt
    require(bool(alt.strip()), "alt", alt, "a description of the picture")
    if isinstance(picture, Figure):
        width, data = round(picture.get_figwidth() * DPI), f"image/png;base64,{b64encode(png(picture)).decode()}"
    else:
        width, data = 720, f"image/svg+xml;base64,{b64encode(picture.svg().encode()).decode()}"
    html = (f'<figure style="margin:0;break-inside:avoid"><img alt="{escape(alt)}" width="{width}" '
            f'style="max-width:100%;height:auto" src="data:{data}">'
            f"<figcaption>{inline(caption)}</figcaption></figure>")
    return {"text/html": html, "text/plain": f"{alt}\n{caption}"}


def description(picture: Figure | Drawn) -> str:
    """What a picture says of itself: the label that `plots` gives a figure, or a drawing's description."""
    return picture.get_label() if isinstance(picture, Figure) else picture.description


def png(figure: Figure) -> bytes:
    """The figure as a PNG file, the same bytes whenever the same figure is drawn."""
    drawn, file = io.BytesIO(), io.BytesIO()
    with style.context(LOOK):
        figure.savefig(drawn, format="png", dpi=SHARP * DPI, metadata={"Software": None})
    image = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(file, format="png", optimize=True)
    return file.getvalue()


def inline(text: str) -> str:
    """A caption as HTML.

    >>> inline("`top_p` keeps *two* of <three>")
    '<code>top_p</code> keeps <em>two</em> of &lt;three&gt;'
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*([^*\s](?:[^*]*[^*\s])?)\*", r"<em>\1</em>", text)
