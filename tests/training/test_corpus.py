"""The training text: same seed, same bytes; facts that are sound; wordings that stay out of training."""

import hashlib
import itertools
import os
import re
import subprocess
import sys
from random import Random

import pytest

from course_lib.training.corpus import (
    DOCUMENT_WEIGHTS,
    EXCHANGE_WEIGHTS,
    TOOLS,
    Writer,
    capitals,
    data,
    documents,
    encyclopedia,
    is_held_out,
    main,
    training_documents,
)
from course_lib.training.corpus.grammar import SLOT, expand

FILES = ("encyclopedia_nature", "encyclopedia_life", "encyclopedia_computing", "capitals", "questions", "tools",
         "stories", "pronouns", "everyday")
DIGEST = """
import hashlib, itertools
from course_lib.training.corpus import documents
print(hashlib.sha256("".join(itertools.islice(documents(3), 300)).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def training():
    """The first documents of the training text."""
    return list(itertools.islice(documents(0), 20_000))


@pytest.fixture(scope="module")
def training_text(training):
    return "\n".join(training)


def strings(table):
    """Every string in a parsed data file."""
    if isinstance(table, str):
        yield table
    else:
        for value in table.values() if isinstance(table, dict) else table if isinstance(table, list) else ():
            yield from strings(value)


def test_the_same_seed_gives_the_same_bytes_in_any_process():
    here = hashlib.sha256("".join(itertools.islice(documents(3), 300)).encode()).hexdigest()
    for hash_seed in ("1", "2"):
        there = subprocess.run([sys.executable, "-c", DIGEST], env=os.environ | {"PYTHONHASHSEED": hash_seed},
                               capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here


def test_another_seed_gives_another_text():
    assert next(documents(1)) != next(documents(2))


@pytest.mark.parametrize("name", FILES)
def test_data_files_hold_plain_text(name):
    for text in strings(data(name)):
        assert text.isascii(), text
        assert not re.search(r"[<>|]", SLOT.sub("", text)) or name.startswith("encyclopedia"), text
        assert text == text.strip(), text


def test_the_encyclopedia_is_sound():
    entries = encyclopedia()
    assert len(entries) >= 150
    assert len({entry.name for entry in entries}) == len(entries) == len({entry.ask for entry in entries})
    for entry in entries:
        assert len(set(entry.say)) >= 4, entry.name
        assert all(entry.is_right(text) for text in entry.say), entry.name


def test_the_capitals():
    assert len(capitals()) >= 150
    assert capitals()["India"] == "New Delhi"
    assert capitals()["Australia"] == "Canberra"


@pytest.mark.parametrize("topic", ["encyclopedia", "capital", "story", "repeat"])
def test_held_out_wordings_are_others(topic):
    table = data("questions")[topic]
    assert table["held_out"] and not {w.lower() for w in table["train"]} & {w.lower() for w in table["held_out"]}


def test_held_out_wordings_do_not_occur_in_training(training_text):
    questions, tools = data("questions"), data("tools")
    wordings = [w for table in questions.values() for w in table["held_out"]]
    wordings += [w for table in tools["calculator"].values() if isinstance(table, dict) for w in table["held_out"]]
    wordings += tools["dictionary"]["held_out"] + data("everyday")["decline"]["held_out_say"]
    for wording in wordings:
        pattern = "user\n" + re.sub(r"\\\{[^}]*\\\}", "[^\n]+", re.escape(wording)) + re.escape("<|im_end|>")
        assert not re.search(pattern, training_text), wording


def test_held_out_operands_and_words_do_not_occur_in_calls(training_text):
    calls = re.findall(r'"expression": "(\d+) . (\d+)"', training_text)
    assert len(calls) > 1_000
    assert not [pair for pair in calls if is_held_out(str(tuple(map(int, pair))))]
    words = re.findall(r'"word": "(\w+)"', training_text)
    assert len(words) > 500
    assert not [word for word in words if is_held_out(word)]


def test_held_out_pronoun_sentences_do_not_occur(training_text):
    writer = Writer(7, held_out=True)
    for _ in range(200):
        item = writer.pronoun()
        assert is_held_out(item.text)
        assert item.text not in training_text


def test_results_of_the_calculator_are_right(training_text):
    found = re.findall(r'"expression": "(\d+) (.) (\d+)"}}\n</tool_call><\|im_end\|>\n<\|im_start\|>tool\n'
                       r"<tool_response>(-?\d+)</tool_response>", training_text)
    assert {operator for _, operator, _, _ in found} == set("+-*/")
    for a, operator, b, result in found:
        a, b, result = int(a), int(b), int(result)
        assert result == {"+": a + b, "-": a - b, "*": a * b}.get(operator, result)
        assert operator != "/" or a == b * result


def test_no_name_has_two_genders():
    table = data("stories")["characters"]
    animals = [animal["name"] for animal in table["animals"]]
    assert len({*table["girls"], *table["boys"], *animals}) == len(table["girls"]) + len(table["boys"]) + len(animals)


def test_pronouns_of_the_variables_agree():
    forms = {("he", "him", "his"), ("she", "her", "her"), ("it", "it", "its")}
    writer = Writer(0)
    for _ in range(200):
        who = writer.characters()
        assert who["hero"] != who["friend"]
        assert {tuple(who[f"{role}.{form}"] for form in ("he", "him", "his")) for role in ("hero", "friend")} <= forms


@pytest.mark.parametrize("held_out", [False, True])
def test_every_kind_of_text_can_be_written_and_leaves_no_slot(held_out):
    writer = Writer(1, held_out=held_out)
    for _ in range(40):
        texts = [getattr(writer, f"{kind}_document")() for kind in DOCUMENT_WEIGHTS]
        for kind in EXCHANGE_WEIGHTS:
            for tools in ((), tuple(TOOLS)):
                messages = getattr(writer, f"{kind}_exchange")(tools)
                assert messages[0]["role"] == "user" and messages[-1]["role"] == "assistant"
                texts += [message["content"] for message in messages]
        assert not [text for text in texts if SLOT.search(text)]


def test_a_missing_tool_is_not_called():
    writer = Writer(2)
    for kind in ("calculator", "dictionary"):
        assert all("tool_calls" not in m for _ in range(50) for m in getattr(writer, f"{kind}_exchange")(()))


def test_a_slot_with_a_number_repeats_and_another_number_differs():
    rules = {"pet": ["cat", "dog", "hen"]}
    for seed in range(50):
        first, again, other = expand("{pet:1} {pet:1} {pet:2}", rules, Random(seed)).split()
        assert first == again != other


def test_an_unknown_rule_is_an_error():
    with pytest.raises(KeyError, match="nobody"):
        expand("{nobody}", {}, Random(0))


def test_the_command_prints_documents(capsys):
    assert main(["--documents", "2", "--seed", "5"]) == 0
    assert capsys.readouterr().out == "\n".join(itertools.islice(documents(5), 2)) + "\n"


@pytest.mark.parametrize("name, roots", [("stories", ("skeletons", "child_skeletons")), ("pronouns", ("it", "she_he")),
                                         ("everyday", ("decline",))])
def test_every_rule_is_reached_and_every_slot_has_one(name, roots):
    table = data(name)
    rules, reached = table["rules"], set()
    todo = [text for root in roots for text in strings(table[root])]
    while todo:
        for rule in {rule for _, rule, _ in SLOT.findall(todo.pop())} - reached:
            reached.add(rule)
            todo += rules.get(rule, ())
    variables = set(Writer(0).characters())
    assert rules.keys() - reached == set(), "rules that nothing uses"
    assert reached - rules.keys() - variables == set(), "slots without a rule"


def test_every_fourth_training_document_is_a_drill_and_the_others_are_the_text():
    mixed = list(itertools.islice(training_documents(3), 52))
    assert [text for number, text in enumerate(mixed, 1) if number % 4] == list(itertools.islice(documents(3), 39))


def test_a_drill_repeats_its_row():
    writer = Writer(3)
    drills = [writer.drill_document() for _ in range(300)]
    spelt = [re.findall(r'(\w+) "(\w+)"', drill) for drill in drills]
    spelt = [pairs for drill, pairs in zip(drills, spelt) if drill == " ".join(f'{a} "{b}"' for a, b in pairs)]
    assert 110 < len(spelt) < 190 and all(a == b for pairs in spelt for a, b in pairs)
    for drill in drills:
        words = re.findall(r"\w+", drill)
        said = [words[: len(words) // n] * n for n in range(2, 6) if len(words) // n <= 8]
        assert words in said or words == [word for word in words[::2] for _ in "ab"], drill
    assert any('"' in drill and ", " in drill for drill in drills)  # set in different ways
