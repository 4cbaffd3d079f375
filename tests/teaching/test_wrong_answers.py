"""The lists of known wrong answers hold every one that the tests know, and something to say to it."""

import pytest
import wrong_answers

from course_lib.classroom.checks import notebooks

EACH = pytest.mark.parametrize("notebook", notebooks())


@EACH
def test_something_is_said_to_every_mistake_and_to_nothing_else(notebook):
    assert wrong_answers.missing(notebook) == []
    assert wrong_answers.left_over(notebook) == []


@EACH
def test_what_is_said_is_short_and_asks_more_than_it_tells(notebook):
    texts = [one.say for one in wrong_answers.said(notebook).values()]
    assert all(4 <= len(text.split()) <= 60 for text in texts)
    assert sum("?" in text for text in texts) >= 0.5 * len(texts)
    often = [one for one in wrong_answers.said(notebook).values() if one.expect == "often"]
    assert 1 <= len(often) <= 0.4 * len(texts)


@EACH
def test_the_page_is_what_the_tool_writes_but_for_the_messages(notebook, monkeypatch):
    """The messages are compared in tests/classroom/test_mutants.py, where they come up anyway."""
    stored = (wrong_answers.PAGES / f"{notebook}.md").read_text()
    monkeypatch.setattr(wrong_answers, "message", lambda answer: ["(a message)"])
    again = wrong_answers.page(notebook)
    assert without_messages(stored) == without_messages(again), "run tests/tools/wrong_answers.py"


def without_messages(page):
    first, *others = page.split("```text\n")
    return [first, *(part.partition("```\n")[2] for part in others)]


def test_two_answers_to_one_mistake_are_refused(tmp_path, monkeypatch):
    entry = '[["03.1"]]\nwords = "w"\nexpect = "often"\nsay = "What?"\n'
    monkeypatch.setattr(wrong_answers, "SAY", tmp_path)
    for text in (2 * entry, entry.replace("often", "always")):
        (tmp_path / "03.toml").write_text(text)
        with pytest.raises(ValueError, match=r"03.toml"):
            wrong_answers.said("03")
