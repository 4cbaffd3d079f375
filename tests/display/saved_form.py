"""What a widget leaves in a saved notebook."""

import re
from html import unescape

from course_lib.classroom.teaching.answered import WIDGET_VIEW


def still_of(panel):
    """The alt text of the picture that is saved, which is in HTML, says that it is a still and what to turn."""
    data, metadata = panel._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", WIDGET_VIEW} and metadata == {}
    alt = unescape(re.search('<img alt="([^"]*)"', data["text/html"])[1])
    assert "A still of the widget. Run the cell, and change " in data["text/html"]
    assert data["text/plain"].startswith(alt) and re.search("base64,(iVBOR|PHN2Zy)", data["text/html"])
    return alt


def picture_of(panel):
    """The HTML that is saved."""
    return panel._repr_mimebundle_()[0]["text/html"]
