"""The measures of the evaluation, on answers made by hand."""

from types import SimpleNamespace

import pytest

from course_lib import load
from course_lib.training import scores
from course_lib.training.corpus import TOOLS, Writer, people
from course_lib.training.questions import SEED, Question, kinds, user
from course_lib.training.scores import (
    Score,
    ask,
    consistent_stories,
    draft_acceptance,
    newcomers,
    report,
    report_families,
    score,
)


@pytest.fixture(scope="module")
def pocket():
    return load("pocket")


def test_right_and_wrong_answers_are_counted_by_wording(monkeypatch):
    answers = iter(["yes", "no", "yes"])
    monkeypatch.setattr(scores, "ask", lambda lm, question: next(answers))
    asked = [Question(user(f"{family}?"), None, "yes".__eq__, family=family) for family in ("a", "b", "a", "c")]
    counted = score(None, iter(asked), 3)
    assert counted == Score(2, 3, (("b?", "no"),), (("a", 2, 2), ("b", 0, 1)))
    assert counted.share == pytest.approx(2 / 3)


def test_the_control_tokens_of_an_answer_count_where_tools_are_on_offer(pocket, monkeypatch):
    ids = pocket.tokenizer.encode("<tool_call>\n{}\n</tool_call>", allowed_special="all")
    monkeypatch.setattr(scores, "generate", lambda *args: SimpleNamespace(text="\n{}\n", token_ids=tuple(ids)))
    assert ask(pocket, Question(user("?"), list(TOOLS.values()), bool)) == "<tool_call>\n{}\n</tool_call>"
    assert ask(pocket, Question(user("?"), None, bool)) == "\n{}\n"


def test_a_call_ends_the_answer_and_its_last_tag_is_part_of_it(pocket):
    question = next(kinds(SEED)["calculator"])
    answer = ask(pocket, question)
    assert answer.count("</tool_call>") == 1 and answer.endswith("</tool_call>")


def test_an_empty_story_is_not_consistent(pocket, monkeypatch):
    girls = people()["girls"]
    told = iter(["", " \n", "It was dark. It was very dark.", f"It was dark. It was late. {girls[0]} came."])
    monkeypatch.setattr(scores, "generate", lambda *args: SimpleNamespace(text=next(told)))
    found = consistent_stories(pocket, sample=4)
    assert (found.right, found.asked) == (1, 4) and [text for _, text in found.wrong][:2] == ["", " \n"]


def test_the_report_says_what_is_too_low():
    table = report({"pronouns": Score(right=1, asked=2), "capitals": Score(right=2, asked=2)})
    assert "| pronouns | 1 | 2 | 50.0% | 90% | too low |" in table
    assert "| capitals | 2 | 2 | 100.0% | 95% | ok |" in table


def test_the_worst_wordings_come_first():
    rows = report_families({"capitals": Score(3, 4, families=(("easy", 2, 2), ("hard", 1, 2)))}).splitlines()
    assert rows[2:] == ["| hard | capitals | 1 | 2 |", "| easy | capitals | 2 | 2 |"]


def test_a_name_that_only_the_last_third_has_is_a_newcomer():
    first, second = people()["girls"][:2]
    assert newcomers(f"{first} had a ball. It was red. {first} lost it. Then {second} found it.") == {second}
    assert newcomers(f"{first} and {second} had a ball. It was red. They lost it. Then {second} found it.") == set()
    assert newcomers("") == set()


def test_the_stories_that_training_tells_have_few_newcomers():
    writer = Writer(8)
    told = [writer.story()[0] for _ in range(200)]
    assert sum(not newcomers(text) for text in told) > 0.85 * len(told)


def test_acceptance_of_the_target_as_its_own_draft_is_one(pocket):
    assert draft_acceptance(pocket, pocket, sample=1).share == pytest.approx(1, abs=1e-5)
