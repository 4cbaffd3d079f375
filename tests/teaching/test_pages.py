"""The pages for whoever teaches: every notebook has one, in one form, and what it says agrees with the notebook."""

import re
from collections import Counter
from pathlib import Path

import prose
import pytest

from course_lib.classroom import quiz_questions as quiz
from course_lib.classroom.checks import exercises_of
from course_lib.classroom.course_map import CHAPTERS
from course_lib.classroom.teaching.command import COMMANDS
from notebooks import read_as_is

ROOT = Path(__file__).parents[2]
TEACHING = ROOT / "teaching"
HEADINGS = ["1. At the door", "2. Minute plan, 90 minutes", "3. Before the lesson", "4. Board plan",
            "5. Slides and live demos", "6. Polls", "7. Known wrong answers to expect", "8. Questions they will ask",
            "9. Sheets and solutions", "10. Variants", "11. Grading", "12. Room"]
WORDS = (1_200, 2_600)
LONGEST = 36  # words of a sentence: a row of a table has fewer full stops than a paragraph
numbered = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)


def page(chapter):
    return (TEACHING / f"{chapter.file}.md").read_text()


def notebook(chapter):
    return read_as_is(ROOT / "notebooks" / f"{chapter.file}.ipynb")


def part(text, number):
    """What stands under one of the headings."""
    [found] = re.findall(rf"^## {re.escape(HEADINGS[number - 1])}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found


def rows(text):
    """The rows of the first table of a text, without its head."""
    table = re.search(r"(?:^\|.*\n)+", text, re.M)[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]]


def said_values(book, number):
    """Numbers that the notebook prints, states or computes beside itself."""
    computed, known = prose.facts(number)
    values = list(computed.values())
    values += [n.value * s for text in known for n in prose.numbers_in(text) for s in (1, prose.SCALES.get(n.unit, 1))]
    for cell in book.cells:
        if cell.cell_type == "code":
            values += prose.values_of(cell)
        else:
            values += [n.value * s for n in prose.numbers_in(cell.source) for s in (1, prose.SCALES.get(n.unit, 1))]
            values += [n.value / 100 for n in prose.numbers_in(cell.source) if n.unit == "%"]
    return values


def unbacked(text, values):
    """Numbers of some size or precision that the notebook does not know; what a poll offers may be wrong."""
    text = re.sub(r"\]\([^)]*\)|`[^`]*`|\b\d+[-–]\d+\b|\b\d+ min(ute)?s?\b", " ", prose.plain(text))
    found = [n for n in prose.numbers_in(text) if n.decimals or n.value >= 200 or n.unit == "%"]
    return [n.text for n in found if not prose.is_free(n, text) and not prose.backed(n, values)]


@numbered
def test_a_page_has_its_twelve_parts(chapter):
    text = page(chapter)
    assert text.startswith(f"# Teaching {chapter.number} · {chapter.title}\n")
    assert re.findall(r"^## (.+)$", text, re.M) == HEADINGS
    assert WORDS[0] <= len(text.split()) <= WORDS[1]


@numbered
def test_the_plan_has_no_gap_and_ends_on_time(chapter):
    plan = rows(part(page(chapter), 2))
    spans = [tuple(map(int, row[0].split("–"))) for row in plan]
    assert spans[0][0] == 0 and spans[-1][1] == 90
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    assert all(start < end for start, end in spans)
    assert all(len(row) == 4 and row[2] and row[3] for row in plan), "what happens, and what they produce"
    assert "**Cut lines" in part(page(chapter), 2) and "Never cut" in part(page(chapter), 2)
    variants = part(page(chapter), 10)
    assert all(f"**{minutes} minutes.**" in variants for minutes in (45, 180)) and "**Remote.**" in variants
    for minutes in (45, 180):
        line = variants.split(f"**{minutes} minutes.**")[1].split("\n- ")[0]
        ends = [int(end) for _, end in re.findall(r"\b(\d+)–(\d+)\b", line)]
        assert ends and ends[-1] == minutes, f"the plan of {minutes} minutes ends at {ends[-1:]}"


@numbered
def test_the_links_of_a_page_lead_somewhere(chapter):
    text = page(chapter)
    ids = {cell.id for cell in notebook(chapter).cells}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if target.startswith("http"):
            continue
        assert not path or (TEACHING / path).exists(), target
        if anchor.startswith("cell-id="):
            assert path == f"../notebooks/{chapter.file}.ipynb" and anchor.removeprefix("cell-id=") in ids, target
    assert len(set(re.findall(r"#cell-id=([\w-]+)", part(text, 2)))) >= 6, "the plan names the cells that it uses"


@numbered
def test_every_prediction_is_a_poll(chapter):
    asked = {cell.id for cell in notebook(chapter).cells
             if cell.cell_type == "markdown" and "> **Predict" in cell.source}
    polled = rows(part(page(chapter), 6))
    assert asked <= set(re.findall(r"#cell-id=([\w-]+)", part(page(chapter), 6)))
    assert all(len(row) == 5 and all(row) for row in polled), "prompt, choices, expected votes, truth, use"


@numbered
def test_what_they_see_is_what_the_checks_say(chapter):
    known = " ".join((TEACHING / "wrong_answers" / f"{chapter.number}.md").read_text().split())
    expected = rows(part(page(chapter), 7))
    assert len(expected) >= 3
    for wrote, seen, say in expected:
        quoted = re.findall(r"[\"“]([^\"”]+)[\"”]", seen)
        assert wrote and say and quoted and all(" ".join(words.split()) in known for words in quoted), seen


@numbered
def test_a_page_speaks_of_every_exercise(chapter):
    text = page(chapter)
    for exercise in exercises_of(chapter.number):
        short = exercise.heading.split()[1]
        assert re.search(rf"\b{re.escape(short)}\b", text), f"Exercise {short} is not on the page"
    used = set(re.findall(r"course_lib class (\w+)", text))
    assert {"slides", "handout", "solutions", "grade", "reset"} <= used <= set(COMMANDS)


@numbered
def test_numbers_of_a_page_are_those_of_the_notebook(chapter):
    text = page(chapter)
    polls = part(text, 6)
    facts = "\n".join(f"{prompt} {truth}\n{use}" for prompt, _, _, truth, use in rows(polls))
    assert unbacked(text.replace(polls, facts), said_values(notebook(chapter), chapter.number)) == []


@numbered
def test_a_page_is_plain_english(chapter):
    text = prose.plain(page(chapter))
    assert [word for word in prose.FLAGGED if re.search(word, text)] == []
    paragraphs = [line for line in text.splitlines() if not line.startswith(("|", "#", "│", "┌", "├", "└"))]
    sentences = [s for line in paragraphs for s in re.split(r"(?<=[.!?:;])\s+", line)]
    assert [s for s in sentences if len(s.split()) > LONGEST] == []


# Quizzes


@numbered
def test_a_quiz_has_five_questions_and_a_reason_for_every_option(chapter):
    asked = quiz.questions(chapter.number)
    assert len(asked) == quiz.QUESTIONS
    texts = [text for question in asked for option in question.options for text in (option.text, option.why)]
    texts += [question.text for question in asked]
    assert all(len(text.split()) <= 60 for text in texts)
    assert [text for text in texts if set(text) & set("\n\r\t")] == [], "a page shows them as spaces"
    assert [text for text in texts for word in prose.FLAGGED if re.search(word, text)] == []
    for question in asked:
        assert len({option.text for option in question.options}) == len(question.options)


@numbered
def test_what_a_quiz_calls_right_agrees_with_the_notebook(chapter):
    values = said_values(notebook(chapter), chapter.number)
    for question in quiz.questions(chapter.number):
        [right] = [option for option in question.options if option.right]
        assert unbacked(f"{right.text}\n{right.why}", values) == [], question.text


def test_the_right_option_is_not_to_be_guessed_from_its_place_or_length():
    asked = [question for chapter in CHAPTERS for question in quiz.questions(chapter.number)]
    places = Counter([option.right for option in question.options].index(True) for question in asked)
    assert max(places.values()) <= 0.45 * len(asked)
    longest = sum(max(question.options, key=lambda option: len(option.text)).right for question in asked)
    assert longest <= 0.5 * len(asked)


@numbered
def test_the_notebook_shows_its_quiz_as_it_is_written(chapter):
    [cell] = [cell for cell in notebook(chapter).cells if cell.source == f'quiz("{chapter.number}")']
    [output] = cell.outputs
    assert "".join(output.data["text/html"]) == quiz.as_html(chapter.number)


@pytest.mark.parametrize("spoil, words", [
    (lambda text: text.replace("right = true, ", "", 1), "right options"),
    (lambda text: text[: text.rindex("[[questions]]")], "questions")])
def test_a_broken_quiz_is_refused(spoil, words, tmp_path, monkeypatch):
    (tmp_path / "nb03.toml").write_text(spoil((quiz.FOLDER / "nb03.toml").read_text()))
    monkeypatch.setattr(quiz, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=words):
        quiz.questions("03")


def test_an_unknown_notebook_has_no_quiz():
    with pytest.raises(ValueError, match="18"):
        quiz.questions("18")
