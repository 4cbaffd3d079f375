"""Drawings, figures and stills in a real JupyterLab: all there, each with words for those who cannot see it."""

import pytest

PICTURES = """() => [...document.querySelectorAll('.jp-Notebook img')].map(image =>
    ({alt: image.alt, width: image.naturalWidth, source: image.src.slice(0, 60)}))"""
FOLDED = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(cell =>
    cell.model.getMetadata('tags')?.includes('hide-cell')).map(cell => cell.inputHidden)"""


@pytest.fixture
def opened(root, notebook):
    """Notebook 00, all cells run."""
    [path] = root.glob("00_*.ipynb")
    notebook.open(path.name)
    notebook.run_all()
    yield notebook
    assert notebook.errors == [] and notebook.strangers == []


def test_every_picture_is_there_with_its_words_and_checks_are_folded(opened):
    opened.until("() => [...document.querySelectorAll('.jp-Notebook img')].every(image => image.complete)")
    pictures = opened.page.evaluate(PICTURES)
    assert len(pictures) >= 6, "the strip, the map, the timeline and three figures"
    for picture in pictures:
        assert len(picture["alt"]) > 40 and picture["width"] > 100, picture
    folded = opened.page.evaluate(FOLDED)
    assert folded and all(folded)
