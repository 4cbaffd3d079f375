"""The plans of a term, six weeks and a day teach nothing before what it needs; links of the teaching pages hold."""

import re
from pathlib import Path

import pytest
from drawings import markdown

from course_lib.classroom.course_map import CHAPTERS

TEACHING = Path(__file__).parents[2] / "teaching"
TERM = (TEACHING / "a_term.md").read_text()
NEEDS = {chapter.number: set(chapter.needs) for chapter in CHAPTERS}
OTHERS = sorted(path for path in TEACHING.glob("*.md") if not re.match(r"\d\d_", path.name))


def section(title):
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TERM, re.M | re.S)
    return text


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")][2:]


def numbers(cell):
    return re.findall(r"(?<![:\d_])\b(0\d|1[0-7])\b(?!_|:|\.md)", cell)


def missing(lessons):
    """What is taught before something that it needs, in lessons of (taught, told)."""
    known, early = set(), []
    for taught, told in lessons:
        for number in told:
            known |= {number}
        for number in taught:
            early += [(number, need) for need in sorted(NEEDS[number] - known)]
            known |= {number}
    return early


@pytest.mark.parametrize("column", [1, 2])
def test_eighteen_weeks_teach_everything_in_an_order_that_works(column):
    lessons = [(numbers(row[column].split("]")[0].replace("[", "")), []) for row in rows(section("Eighteen weeks"))]
    assert len(lessons) == 18 and sorted(n for taught, _ in lessons for n in taught) == sorted(NEEDS)
    assert missing(lessons) == []


def test_six_weeks_tell_what_they_leave_out():
    weeks = rows(section("Six weeks"))
    lessons = [(numbers(row[1]) + numbers(row[2]), [m for m in re.findall(r"\b(\d\d):", row[3])]) for row in weeks]
    assert len(weeks) == 6 and missing(lessons) == []


def test_a_day_tells_what_it_leaves_out_and_has_time_for_its_plans():
    day = rows(section("A day"))
    lessons = [(re.findall(r"^\d\d$", row[1]), re.findall(r"\b(\d\d)(?=[:,]| and)", row[2])) for row in day]
    assert sum(len(taught) for taught, _ in lessons) == 6 and missing(lessons) == []
    starts = [60 * int(row[0].split(":")[0]) + int(row[0].split(":")[1]) for row in day]
    for (taught, _), start, end in zip(lessons, starts, starts[1:]):
        assert end - start >= 45 * len(taught) and end > start


def test_the_minutes_are_those_of_the_map():
    core, further = (sum(getattr(chapter, name) for chapter in CHAPTERS) for name in ("core_minutes",
                                                                                       "further_minutes"))
    assert f"take {core:,} minutes" in TERM and f"another {further:,}" in TERM
    assert markdown("dependencies").replace("(images/", "(../notebooks/images/") in TERM


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        file = target.partition("#")[0]
        assert not file or file.startswith("http") or (TEACHING / file).exists(), target


def test_every_notebook_has_its_page_in_the_list():
    listed = re.findall(r"\((\d\d_\w+)\.md\)", (TEACHING / "README.md").read_text())
    assert listed == [chapter.file for chapter in CHAPTERS]
