"""Each broken server shows the mistake that its name says, and no other; the right one is the engine."""

import pytest

from course_lib import load
from course_lib.classroom.broken_servers import (
    MISTAKES,
    QUESTIONS,
    SERVERS,
    long_among_short,
    readers_leave,
    replies,
    right,
)
from course_lib.engine import Engine
from course_lib.generate import SamplingParams, generate

LONG = 5  # the request with the long prompt


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu")


@pytest.fixture(scope="module")
def seen(lm):
    """All that can be seen of each server."""
    return {name: (readers_leave(server, lm), long_among_short(server, lm), replies(server, lm))
            for name, server in {"right": right, **SERVERS}.items()}


@pytest.mark.parametrize("name, where", [("A", 1), ("B", 2), ("C", 0)])
def test_each_differs_in_one_test_and_in_no_other(name, where, seen):
    assert [i for i in range(3) if seen[name][i] != seen["right"][i]] == [where]


def test_the_right_one_keeps_nothing_and_gives_each_its_own_text(seen, lm):
    rounds, waited, answers = seen["right"]
    assert set(rounds) == {(12, 0)}
    assert 1 < waited[LONG] < 20 and waited[-1] == 1, "it waits for memory, the others behind it, and then it is over"
    params = SamplingParams(temperature=0, max_tokens=20)
    for answer in answers:
        assert answer.text == generate(lm, [{"role": "user", "content": answer.question}], params).text
    assert [answer.found for answer in answers] == [0, 4, 4, 4], "a page of each beginning that they share"


def test_a_short_one_overtakes_as_long_as_one_comes(seen):
    waited = seen["A"][1]
    assert waited[LONG] > 4 * seen["right"][1][LONG] and all(n == 1 for i, n in enumerate(waited) if i != LONG)


def test_another_readers_page_shines_through(seen):
    first, *others = seen["B"][2]
    assert first == seen["right"][2][0] and first.question == QUESTIONS[0]
    wrong = [answer for answer, own in zip(others, seen["right"][2][1:]) if answer.text != own.text]
    assert len(wrong) == 2 and all(answer.found == 12 for answer in wrong)


def test_pages_of_those_who_left_are_never_free_again(seen):
    rounds = seen["C"][0]
    assert [one.pages for one in rounds] == [8, 16, 24, 32, 40, 48, 56, 64, 64, 64]
    assert [one.tokens for one in rounds] == [12] * 8 + [0, 0], "and then nobody is served"


def test_the_suspects_have_different_mistakes_of_the_list():
    assert len(SERVERS) == 3 < len(MISTAKES) and isinstance(right(load("pocket-draft", device="cpu")), Engine)
