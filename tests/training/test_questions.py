"""The questions of the evaluation: held out, and strict about what a right answer is."""

import itertools
from collections import Counter
from itertools import islice
from random import Random

import pytest

from course_lib.training.corpus import Writer, capitals, data, encyclopedia, held_out_wordings
from course_lib.training.corpus.grammar import expand
from course_lib.training.questions import (
    DECLINE,
    Question,
    capital_questions,
    decline_questions,
    encyclopedia_questions,
    follow_up_questions,
    kinds,
    names,
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


def test_a_follow_up_is_about_another_country_than_the_one_that_was_just_answered():
    for question in islice(follow_up_questions(held_out()), 0, 200, 2):
        _, answer, follow_up = (message["content"] for message in question.messages)
        assert any(names(capital)(answer) for capital in capitals().values())
        assert not question.is_right(answer), (answer, follow_up)


@pytest.mark.parametrize("tool, name", [("calculator", "expression"), ("dictionary", "word")])
def test_a_tool_call_must_be_exact(tool, name):
    writer, question = held_out(), next(tool_questions(held_out(), tool))
    call = getattr(writer, f"{tool}_exchange")(("calculator", "dictionary"))[1]["tool_calls"][0]["function"]
    value = call["arguments"][name]
    right = f'{{"name": "{tool}", "arguments": {{"{name}": "{value}"}}}}'
    assert question.is_right(f"<tool_call>\n{right}\n</tool_call>")
    altered = right.replace(value, f"{value}1")
    for wrong in ("", value, right, f"{right}\n</tool_call>", f"<tool_call>\n{right}",
                  f"<tool_call>{right}</tool_call>", f" <tool_call>\n{right}\n</tool_call>",
                  f"<tool_call>\n{altered}\n</tool_call>"):
        assert not question.is_right(wrong), wrong


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


def test_a_name_is_a_whole_word_or_its_plural():
    assert names("hat")("A HAT!") and names("hat")("his hats") and names("box")("two boxes")
    assert names("Washington, D.C.")("It is Washington, D.C.")
    assert not names("hat")("That was then.") and not names("hen")("then") and not names("hat")("hatter")


DECLINED = ("weather declined", "news declined", "time declined", "date declined", "prices declined",
            "opening hours declined", "private facts declined", "private facts of others declined", "future declined")


def declines():
    """What training answers to questions that nobody could answer."""
    table, rng = data("small_talk"), Random(0)
    rules = data("words")["rules"] | table["rules"] | Writer(0).characters()
    replies = [reply for topic in table["talk"] if topic["topic"] in DECLINED for reply in topic["reply"]]
    return {*data("everyday")["decline"]["reply"], *(expand(reply, rules, rng) for reply in replies for _ in range(40))}


def test_what_training_declines_with_counts_as_declining():
    said = declines()
    assert len(said) > 100
    assert not [reply for reply in said if not DECLINE.search(reply)]


@pytest.mark.parametrize("answer", ["It is a Tuesday.", "Yes, you will pass it.", "Anna is your mother.", "",
                                    "I know it.", "The shop is open.", "You ate bread and now you are full."])
def test_an_answer_that_pretends_to_know_is_no_declining(answer):
    assert not DECLINE.search(answer)


def test_small_talk_and_what_nobody_knows():
    remarks = {text(question): question for question in small_talk_questions(held_out())}
    assert len(remarks) > 20
    assert not any(question.is_right("Zzz.") for question in remarks.values())
    asked = list(decline_questions(held_out()))
    assert {text(question) for question in asked} == set(held_out_wordings("decline"))
    assert all(q.is_right("I do not know that.") and not q.is_right("It is a Tuesday.") for q in asked)
