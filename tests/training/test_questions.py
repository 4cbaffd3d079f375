"""The questions of the evaluation: held out, and strict about what a right answer is."""

import itertools
from collections import Counter
from itertools import islice

import pytest

from course_lib.training.corpus import Writer, capitals, data, encyclopedia, held_out_wordings
from course_lib.training.questions import (
    Question,
    capital_questions,
    decline_questions,
    encyclopedia_questions,
    follow_up_questions,
    kinds,
    pronoun_questions,
    small_talk_questions,
    story_questions,
    told,
    tool_questions,
)


def held_out():
    return Writer(5, held_out=True)


def gravity():
    return next(entry for entry in encyclopedia() if entry.name == "gravity")


def text(question: Question) -> str:
    return question.messages[-1]["content"]


def test_the_same_seed_asks_the_same():
    for first, second in zip(kinds(3).values(), kinds(3).values(), strict=True):
        assert [q.messages for q in islice(first, 5)] == [q.messages for q in islice(second, 5)]


def test_every_entry_and_every_country_is_asked_once_and_the_wordings_take_turns():
    asked = list(encyclopedia_questions(held_out()))
    assert len(asked) == len(encyclopedia())
    uses = Counter(question.family for question in asked)
    assert set(uses) == set(held_out_wordings("encyclopedia")) and max(uses.values()) - min(uses.values()) <= 1
    assert len(list(capital_questions(held_out()))) == len(capitals())


def test_how_things_work_is_asked_of_those_whose_entry_says_it():
    asked = list(encyclopedia_questions(held_out(), wordings="works"))
    assert len(asked) == sum(bool(entry.works) for entry in encyclopedia()) > 50
    assert {question.family for question in asked} <= set(held_out_wordings("encyclopedia", "works"))


def test_a_right_answer_needs_every_key():
    assert gravity().is_right(gravity().say[0])
    assert not gravity().is_right("Gravity is a force.")
    assert not gravity().is_right("")


def test_the_explanations_of_one_thing_are_no_right_answer_about_another():
    mistaken = {(entry.name, other.name) for entry, other in itertools.permutations(encyclopedia(), 2)
                if all(other.is_right(text) for text in entry.say)}
    assert mistaken <= {("oxygen", "lung"), ("magnet", "magnetism")}  # each explains the other


def test_a_capital_is_right_by_its_name_alone():
    question = next(q for q in capital_questions(held_out()) if "France" in text(q))
    assert question.is_right("It is paris.") and not question.is_right("It is Lyon.") and not question.is_right("")


def test_a_follow_up_says_only_what_is_new():
    for question in islice(follow_up_questions(held_out()), 20):
        assert [message["role"] for message in question.messages] == ["user", "assistant", "user"]
        assert not question.is_right(question.messages[1]["content"]), "the first answer again"
        assert not question.is_right("")


@pytest.mark.parametrize("tool, name", [("calculator", "expression"), ("dictionary", "word")])
def test_a_tool_call_must_be_exact(tool, name):
    writer, question = held_out(), next(tool_questions(held_out(), tool))
    call = getattr(writer, f"{tool}_exchange")(("calculator", "dictionary"))[1]["tool_calls"][0]["function"]
    value = call["arguments"][name]
    assert question.is_right(f'{{"name": "{tool}", "arguments": {{"{name}": "{value}"}}}}')
    assert not question.is_right(f'{{"name": "{tool}", "arguments": {{"{name}": "{value}1"}}}}')
    assert not question.is_right(value) and not question.is_right("")


def test_a_pronoun_needs_the_whole_sentence():
    question, item = next(pronoun_questions(held_out())), held_out().pronoun()
    assert text(question) == f"{item.text} {item.ask}"
    assert question.is_right(item.answer) and not question.is_right(item.answer[:-1])


def test_a_story_must_speak_of_what_it_was_asked_for():
    for question in islice(story_questions(held_out()), 10):
        assert question.is_right(f"It was night. {text(question)}"), "the question names the thing"
        assert not question.is_right("Once there was nothing at all.")


@pytest.mark.parametrize("heading", data("questions")["story"]["opening"])
def test_a_heading_is_no_story(heading):
    heading = heading.format(about="an old lamp")
    assert told(f"{heading} It was dark.") == "It was dark." and told(heading) == ""
    assert told("It was dark. A story about a lamp: none.") == "It was dark. A story about a lamp: none."


def test_small_talk_and_what_nobody_knows():
    remarks = {text(question): question for question in small_talk_questions(held_out())}
    assert len(remarks) > 20
    assert not any(question.is_right("Zzz.") for question in remarks.values())
    asked = list(decline_questions(held_out()))
    assert {text(question) for question in asked} == set(held_out_wordings("decline"))
    assert all(q.is_right("I do not know that.") and not q.is_right("It is a Tuesday.") for q in asked)
