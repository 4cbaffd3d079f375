"""What every drawing keeps to, and how tests read an SVG."""

from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def check(draw):
    """A drawing made twice: the same bytes, valid XML, legible type, no text over another or off the paper."""
    drawing, again = draw(), draw()
    assert drawing.svg() == again.svg()
    root = ElementTree.fromstring(drawing.svg())
    assert root.find(f"{SVG}title").text and len(root.find(f"{SVG}desc").text) > 100
    texts = drawing.texts
    assert [(a, b) for i, (a, first) in enumerate(texts) for b, second in texts[i + 1:] if first.overlaps(second)] == []
    assert [text for text, area in texts if area.left < 0 or area.top < 0 or area.right > drawing.width
            or area.bottom > drawing.height] == []
    assert all(float(text.get("font-size")) >= 17 for text in root.iter(f"{SVG}text"))
    assert all(float(rect.get(side)) >= 0 for rect in root.iter(f"{SVG}rect") for side in ("width", "height"))
    return drawing


def words(drawing):
    """All lines of text."""
    return [text for text, _ in drawing.texts]


def rects(drawing, fill, opacity=None):
    """(left, top, width, height) of the rectangles with a class of fill, and an opacity."""
    root = ElementTree.fromstring(drawing.svg())
    return [tuple(float(rect.get(name)) for name in ("x", "y", "width", "height")) for rect in root.iter(f"{SVG}rect")
            if f"f-{fill}" in rect.get("class", "").split() and opacity in (None, rect.get("fill-opacity"))]


def hatched(drawing):
    """(left, top, width, height) of the hatched rectangles."""
    root = ElementTree.fromstring(drawing.svg())
    return [tuple(float(rect.get(name)) for name in ("x", "y", "width", "height")) for rect in root.iter(f"{SVG}rect")
            if "-hatch" in rect.get("fill")]


def paths(drawing, thick):
    """The points of all paths with this thickness, in the order in which they were drawn."""
    root = ElementTree.fromstring(drawing.svg())
    found = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("stroke-width") == str(thick)]
    numbers = [[float(x) for x in d.strip("MZ ").replace("L", " ").replace("C", " ").split()] for d in found]
    return [list(zip(xy[::2], xy[1::2])) for xy in numbers]
