"""A picture in a notebook: the file, its alt text and its caption, where every viewer looks for them."""

import re
from base64 import b64decode
from io import BytesIO

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image
from test_plots import some_bars

from course_lib.display import plots
from course_lib.display.diagrams.drawing import Drawing
from course_lib.display.show import bundle, png, show


@pytest.fixture
def capture_displays(monkeypatch):
    """A function that returns what has been displayed since."""
    shell = InteractiveShell.instance()
    publisher = CapturingDisplayPublisher(shell=shell)
    monkeypatch.setattr(shell, "display_pub", publisher)
    yield lambda: publisher.outputs
    InteractiveShell.clear_instance()


def image_of(html):
    """The one `<img>` of some HTML: its alt text and the bytes of its file."""
    [tag] = re.findall("<img[^>]*>", html)
    return re.search('alt="([^"]*)"', tag)[1], b64decode(re.search("base64,([^\"]*)", tag)[1])


def test_a_figure_carries_its_alt_text_and_its_caption(capture_displays):
    show(some_bars(), "The `mat` wins with *60 %*.", alt='bars; "mat" > rest')
    [output] = capture_displays()
    assert image_of(output["data"]["text/html"]) == ("bars; &quot;mat&quot; &gt; rest", png(some_bars()))
    assert "<figcaption>The <code>mat</code> wins with <em>60 %</em>.</figcaption>" in output["data"]["text/html"]
    assert output["data"]["text/plain"] == 'bars; "mat" > rest\nThe `mat` wins with *60 %*.'


def test_without_alt_a_figure_describes_itself():
    assert image_of(bundle(some_bars(), "c")["text/html"])[0] == some_bars().get_label() != ""


def test_a_drawing_is_shown_as_its_svg_with_its_description():
    drawing = Drawing("A box", "A box with the number 7", height=50)
    alt, file = image_of(bundle(drawing, "You are here.")["text/html"])
    assert alt == drawing.description and file.decode() == drawing.svg()


def test_the_file_is_sharp_and_small():
    image = Image.open(BytesIO(png(some_bars())))
    assert image.mode == "P" and image.size[0] == 2 * round(plots.WIDTH * plots.DPI)


@pytest.mark.parametrize("template", ["lab", "classic", "basic"])
def test_every_export_has_the_alt_text(template, capture_displays):
    show(some_bars(), "The mat wins.", alt="bars <mat> is longest")
    outputs = [new_output("display_data", output["data"]) for output in capture_displays()]
    html, _ = HTMLExporter(template_name=template).from_notebook_node(
        new_notebook(cells=[new_code_cell(outputs=outputs)]))
    [tag] = [tag for tag in re.findall("<img[^>]*>", html) if "base64" in tag]
    assert "bars &lt;mat&gt; is longest" in tag and "The mat wins." in html


@pytest.mark.parametrize("caption, alt, words", [(" ", "a", "caption"), ("c", "", "alt")])
def test_refusals(caption, alt, words):
    with pytest.raises(ValueError, match=words):
        show(some_bars(), caption, alt=alt)
