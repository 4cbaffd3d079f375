"""README, notebooks and the map in the library say the same."""

import re
from pathlib import Path

import nbformat
import pytest

from course_lib.classroom.checks import notebooks
from course_lib.classroom.course_map import CHAPTERS, course_table

ROOT = Path(__file__).parents[2]
FURTHER = {"08": {"06"}}  # named in the same breath, for one *further* section
WRITTEN = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_chapters_are_numbered_in_order():
    assert [chapter.number for chapter in CHAPTERS] == [f"{i:02}" for i in range(18)]


def test_every_notebook_is_on_the_map():
    assert {path.stem for path in WRITTEN} <= {chapter.file for chapter in CHAPTERS}
    assert WRITTEN


def test_readme_shows_the_map():
    assert course_table(links=True, folder="notebooks/") in (ROOT / "README.md").read_text("utf-8")


def test_a_notebook_that_is_not_written_is_marked_and_has_no_link():
    for chapter, line in zip(CHAPTERS, course_table(links=True).splitlines()[2:], strict=True):
        written = (ROOT / "notebooks" / f"{chapter.file}.ipynb").exists()
        assert ("(coming)" in line) != written
        assert (f"]({chapter.file}.ipynb)" in line) == written


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_titles_agree(path):
    chapter = next(chapter for chapter in CHAPTERS if chapter.file == path.stem)
    first = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
    assert first == f"# {chapter.number} · {chapter.title}"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_the_map_knows_the_minutes_and_the_needs_that_the_notebook_states(chapter):
    first = nbformat.read(ROOT / "notebooks" / f"{chapter.file}.ipynb", as_version=4).cells[0]
    opening = " ".join(first.source.split())
    stated = opening[opening.index("The core path takes"):]
    assert [int(number) for number in re.findall(r"\d+", stated.replace("Exercise 17.3, ", ""))][:2] == [
        chapter.core_minutes, chapter.further_minutes]
    needs = re.search(r"(?:You need|Read|Before this:) notebooks? (?:\d\d(?:, and | and |, )?)+", opening)
    named = set(re.findall(r"\b\d\d\b", needs[0])) if needs else set()
    assert named - set(chapter.needs) <= FURTHER.get(chapter.number, set()) and set(chapter.needs) <= named


def test_every_written_notebook_has_exercises():
    assert {path.stem[:2] for path in WRITTEN} <= set(notebooks())
