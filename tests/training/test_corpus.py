"""The training text: same seed, same bytes; facts that are sound; wordings that stay out of training."""

import hashlib
import importlib.resources
import itertools
import os
import re
import subprocess
import sys
from random import Random

import pytest

from course_lib.training.corpus import (
    END_OF_TEXT,
    PRETRAINING,
    TOOLS,
    TUNING,
    Writer,
    capitals,
    continents,
    data,
    documents,
    encyclopedia,
    held_out_wordings,
    is_held_out,
    main,
    people,
    prose,
    stories,
    training_documents,
)
from course_lib.training.corpus.asking import BLANK, UNHEARD, as_typed, choose_wording, form, forms, with_slip
from course_lib.training.corpus.facts import stories_about_anything, texts
from course_lib.training.corpus.grammar import SLOT, Choice, expand, parse, with_articles
from course_lib.training.corpus.writer import left_out_wordings
from course_lib.training.questions import names

FILES = ("encyclopedia_nature", "encyclopedia_life", "encyclopedia_computing", "encyclopedia_models", "aliases",
         "capitals", "questions", "held_out", "tools", "words", "stories", "stories_home", "stories_town",
         "stories_wild", "stories_tales", "stories_any", "dialogues", "small_talk", "pronouns", "everyday",
         "everyday_long", "further")
FREE_TEXT = ("dialogues", "everyday_long", "small_talk", "questions", "further")  # with several lines, or with parts to be joined
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
        for value in table.values() if isinstance(table, dict) else table if isinstance(table, (list, tuple)) else ():
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
        assert not re.search(r"<\||[<>]\w", text), text
        assert text == text.strip() or name in FREE_TEXT, text


def test_all_files_are_looked_at():
    folder = importlib.resources.files("course_lib.training.corpus") / "data"
    assert {path.name for path in folder.iterdir()} == {f"{name}.toml" for name in FILES}


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("aliases", "held_out")
                                  and not name.startswith("encyclopedia")])
def test_every_template_can_be_parsed(name):
    for text in strings(data(name)):
        parse(text)


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


def test_the_size_of_the_corpus():
    assert len(stories()) >= 400 and len({plan.title for plan in stories()}) == len(stories())
    assert len(data("dialogues")["dialogue"]) >= 150
    assert len(data("everyday_long")["text"]) >= 50
    assert len(data("small_talk")["talk"]) >= 60


def test_every_country_has_a_continent():
    assert continents().keys() == capitals().keys()
    assert {continents()[country] for country in ("Kenya", "Peru", "the Netherlands")} == {
        "Africa", "South America", "Europe"}


def test_another_name_means_one_thing():
    names = [name for entry in encyclopedia() for name in {name.lower() for name in (entry.name, *entry.also)}]
    assert len(names) == len(set(names))
    known = {entry.name for entry in encyclopedia()}
    assert data("aliases")["also"].keys() <= known
    assert {*data("aliases")["how"]["works"], *data("aliases")["how"]["for"]} <= known


def test_every_held_out_wording_has_its_slots():
    slots = {"encyclopedia": {"ask", "name"}, "capital": {"country"}, "dictionary": {"word"}, "repeat": {"text"}}
    for topic, known in slots.items():
        for wordings in data("held_out")[topic].values():
            for wording in wordings:
                assert len(SLOT.findall(wording)) == 1 and SLOT.search(wording)[2] in known, wording


def heard(wording):
    """The form of a wording of the data files."""
    return form(SLOT.sub(lambda slot: BLANK.format(slot[2]), wording))


def readings(template, rules, *, longest=10_000):
    """A pattern for every form that a template can take, and for more where a slot's list is longer than `longest`."""
    def one(part):
        if isinstance(part, str):
            return re.escape(UNHEARD.sub("", part.lower())).replace(r"\-", "-?")
        if isinstance(part, Choice):
            return f"(?:{'|'.join(''.join(map(one, parts)) for parts in part.alternatives)})"
        options = rules.get(part.rule)
        if options is None:  # a variable: of a question, or a character's name
            return r"\w+" if rules else "\x00"
        if len(options) > longest:
            return r"\w+"
        return f"(?:{'|'.join(''.join(map(one, parse(text))) for text in options)})"

    return re.compile("".join(map(one, parse(template))))


def without_affixes(text):
    """A form, and what is left of it without an opener that people type before a wording, a word after it, or both."""
    before, after = (["", *map(form, data("questions")["register"][part])] for part in ("before", "after"))
    return {text[len(first):len(text) - len(last)] for first in before for last in after
            if text.startswith(first) and text.endswith(last) and len(text) > len(first) + len(last)}


def in_training(wording, templates, held_out=()):
    """The templates that become this wording, with what people type around it, and no held-out one by themselves."""
    left = without_affixes(heard(wording)) - forms(tuple(held_out))
    return [template for template, pattern in templates.items() if any(map(pattern.fullmatch, left))]


def lists(topic):
    """The templates of a topic by the name of their list."""
    if topic in data("tools"):
        return {topic: texts("tools", topic, "train", further=True)}
    answers = ("reply", "prose", "opening")
    return {name: texts("questions", topic, name, further=True) for name in data("questions")[topic]
            if name not in answers}


HELD_OUT = [(topic, name) for topic in ("encyclopedia", "capital", "story", "repeat", "dictionary")
            for name in data("held_out")[topic]]


@pytest.mark.parametrize("topic, name", HELD_OUT)
def test_held_out_wordings_do_not_occur_in_training_whatever_is_typed_around_them(topic, name):
    for other, wordings in lists(topic).items():
        templates = {text: readings(text, {}) for text in wordings}
        blanks = {slot: BLANK.format(slot) for text in wordings for _, slot, _ in SLOT.findall(text)}
        for text, pattern in templates.items():
            assert pattern.fullmatch(form(expand(text, blanks, Random(0)))), text
        held_out = left_out_wordings(topic, {"dictionary": "wordings"}.get(other, other))
        for wording in data("held_out")[topic][name]:
            assert not in_training(wording, templates, held_out), wording


@pytest.mark.parametrize("operation", data("held_out")["calculator"])
def test_held_out_sums_do_not_occur_in_training_whatever_is_typed_around_them(operation):
    for other in data("held_out")["calculator"]:
        wordings = texts("tools", "calculator", other, "train", further=True)
        templates = {text: readings(text, {}) for text in wordings}
        for wording in held_out_wordings("calculator", operation):
            assert not in_training(wording, templates, held_out_wordings("calculator", other)), wording


def remarks():
    """What the evaluation says as small talk, and what it asks that nobody can know."""
    return [*(item["say"] for item in data("held_out")["small_talk"]["items"]), *held_out_wordings("decline")]


def test_no_template_can_become_a_remark_of_the_evaluation():
    everyday = data("everyday")
    said = [say for topic in texts("small_talk", "talk", further=True) for say in topic["say"]]
    for wordings, rules in ((said, data("words")["rules"] | data("small_talk")["rules"]),
                            (everyday["decline"]["say"], everyday["rules"])):
        templates = {text: readings(text, rules, longest=20) for text in wordings}
        for remark in remarks():
            likely = {text: readings(text, rules) for text in in_training(remark, templates)}  # few are left to look at
            assert not in_training(remark, likely), remark


def test_no_remark_of_the_evaluation_occurs_in_training(training_text):
    said = {form(turn) for turn in re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", training_text, re.DOTALL)}
    assert len(said) > 10_000
    assert not said & set(map(form, remarks()))


def test_a_wording_that_is_held_out_is_drawn_again():
    wordings, held_out = ["What is {name}?", "so, what is [it|this]: {name}"], ["what is {ask}", "So what is it {x}"]
    drawn = {choose_wording(Random(seed), wordings, held_out, name="rain") for seed in range(40)}
    assert drawn == {"so, what is this: rain"}


def test_the_way_people_type_leaves_what_was_asked_for():
    typed = {as_typed("What is the capital of Kenya?", Random(seed), keep="Kenya") for seed in range(500)}
    assert len(typed) > 60 and all("kenya" in text.lower() for text in typed)
    assert {"what is the capital of kenya", "What is the capital of Kenya?"} <= typed
    assert as_typed("What is DNA?", Random(0), habits=0) == "What is DNA?"


def test_a_slip_changes_one_word_a_little():
    for seed in range(200):
        slipped = with_slip("Please explain the kitchen clock", Random(seed), keep="kitchen")
        changed = [(a, b) for a, b in zip("Please explain the kitchen clock".split(), slipped.split()) if a != b]
        assert len(changed) <= 1 and all(abs(len(a) - len(b)) <= 1 and a[0] == b[0] for a, b in changed)
        assert "kitchen" in slipped and "the" in slipped
    assert with_slip("a b c", Random(0)) == "a b c"


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
    table = people()
    names = [*table["girls"], *table["boys"], *table["women"], *table["men"], *(a["name"] for a in table["animals"])]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("cast, kinds", [("child", {"girl", "boy"}), ("adult", {"woman", "man"}), ("animal", None)])
def test_the_characters_are_three_and_their_pronouns_agree(cast, kinds):
    forms = {("he", "him", "his", "himself"), ("she", "her", "her", "herself"), ("it", "it", "its", "itself")}
    writer = Writer(0)
    for _ in range(100):
        who = writer.characters(cast)
        assert len({who["hero"], who["friend"], who["other"]}) == 3
        for role in ("hero", "friend", "other"):
            assert tuple(who[f"{role}.{part}"] for part in ("he", "him", "his", "self")) in forms
            assert kinds is None or who[f"{role}.kind"] in kinds


@pytest.mark.parametrize("file", ["stories_home", "stories_town", "stories_wild", "stories_tales", "stories_any"])
def test_every_story_can_be_written_and_leaves_no_slot(file):
    writer, titles = Writer(5), {story["title"] for story in data(file)["story"]}
    for plan in stories():
        if plan.title in titles:
            text, about = writer.story(plan)
            assert about and len(text.split()) > 20 and not re.search(r"[{}\[\]|]", text + about), plan.title


def test_stories_about_anything_speak_of_what_they_were_asked_for():
    writer = Writer(6)
    for plan in stories_about_anything():
        text, about = writer.story(plan, plan.about[0])
        assert about.startswith(("a ", "an ")) and names(about.split()[-1])(text), plan.title


def test_plans_that_are_held_out_are_told_only_by_a_writer_that_is_to_tell_them(monkeypatch):
    assert sum(is_held_out(plan.title) for plan in stories()) >= 30
    seen, unseen = (next(plan for plan in stories() if is_held_out(plan.title) == which) for which in (False, True))
    monkeypatch.setattr(prose, "stories", lambda: (seen._replace(text="Seen."), unseen._replace(text="Unseen.")))
    for held_out, text in ((False, "Seen."), (True, "Unseen.")):
        writer = Writer(3, held_out=held_out)
        assert {writer.story()[0] for _ in range(30)} == {text}


def test_a_dialogue_remembers():
    writer = Writer(4)
    town = next(turns for turns in (writer.dialogue() for _ in range(5_000)) if "You live in" in turns[-1])
    place = re.search(r"You live in ([\w' -]+?)[,.]", town[-1])[1]
    assert place.lower() in town[0].lower()


def test_every_dialogue_has_its_turns():
    writer = Writer(6)
    for table in data("dialogues")["dialogue"]:
        assert len(table["turns"]) % 2 == 0, table["title"]
    for _ in range(300):
        turns = writer.dialogue()
        assert len(turns) % 2 == 0 and all(turns) and not [t for t in turns if re.search(r"[{}|\x1e]", t)]


def test_only_tuning_asks_with_the_further_wordings():
    lists = [(file, *keys) for file, table in data("further").items() for keys in paths(table)]
    assert len(lists) >= 10
    for keys in lists:
        plain, both = texts(*keys), texts(*keys, further=True)
        assert both[:len(plain)] == plain and len(both) > len(plain), keys
        assert Writer(0).texts(*keys) == plain and Writer(0, mix=TUNING).texts(*keys) == both
        assert not [text for text in both[len(plain):] if text in plain], "said twice"
    with pytest.raises(KeyError):
        texts("questions", "nothing of the kind", further=True)


def paths(table):
    """The keys that lead to each list of a parsed data file."""
    for key, value in table.items():
        yield from [(key,)] if isinstance(value, list) else [(key, *rest) for rest in paths(value)]


@pytest.mark.parametrize("mix", [PRETRAINING, TUNING], ids=["pretraining", "tuning"])
@pytest.mark.parametrize("held_out", [False, True])
def test_every_kind_of_text_can_be_written_and_leaves_no_slot(held_out, mix):
    writer = Writer(1, held_out=held_out, mix=mix)
    for _ in range(40):
        texts = [getattr(writer, f"{kind}_document")() for kind in mix.documents]
        for kind in mix.exchanges:
            for tools in ((), tuple(TOOLS)):
                messages = getattr(writer, f"{kind}_exchange")(tools)
                assert messages[0]["role"] == "user" and messages[-1]["role"] == "assistant"
                texts += [message["content"] for message in messages]
        assert not [text for text in texts if SLOT.search(text)]
        assert all(texts[: len(mix.documents)])


def test_tuning_answers_small_talk_in_its_usual_words_more_often():
    assert PRETRAINING.usual == 0 and TUNING.usual == 0.6
    writers = Writer(9), Writer(9, mix=PRETRAINING._replace(usual=1.0))
    topics = {reply: topic["reply"].index(reply) for topic in data("small_talk")["talk"] for reply in topic["reply"]
              if not re.search(r"[{\[]", reply)}
    places = [[topics[reply] for _ in range(900) if (reply := writer.small_talk_exchange(())[1]["content"]) in topics]
              for writer in writers]
    assert max(places[0]) > 4 and max(places[1]) <= 1


def test_a_missing_tool_is_not_called():
    writer = Writer(2)
    for kind in ("calculator", "dictionary"):
        assert all("tool_calls" not in m for _ in range(50) for m in getattr(writer, f"{kind}_exchange")(()))


def test_a_slot_with_a_number_repeats_and_another_number_differs():
    rules = {"pet": ["cat", "dog", "hen"]}
    for seed in range(50):
        first, again, other = expand("{pet:1} {pet:1} {pet:2}", rules, Random(seed)).split()
        assert first == again != other


def test_no_alternative_is_drawn_again_before_all_have_been_drawn():
    rules = {"say": ["{number} cats", "[no|some] dogs", "hens"], "number": ["two", "ten"]}
    for seed in range(50):
        said = expand("; ".join(["{say}"] * 7), rules, Random(seed)).split("; ")
        for three in (said[:3], said[3:6]):
            assert {text.split()[-1] for text in three} == {"cats", "dogs", "hens"}
        assert len({text for text in said[:6] if "cats" in text}) == 2


def test_an_unknown_rule_is_an_error():
    with pytest.raises(KeyError, match="nobody"):
        expand("{nobody}", {}, Random(0))


def test_the_command_prints_documents(capsys):
    assert main(["--documents", "2", "--seed", "5"]) == 0
    assert capsys.readouterr().out == "\n".join(itertools.islice(documents(5), 2)) + "\n"


ROOTS = {"stories": ("skeletons", "child_skeletons"), "pronouns": ("it", "she_he"), "everyday": ("decline",),
         "dialogues": ("dialogue",), "small_talk": ("talk",), "everyday_long": ("text",)}
ROOTS |= {f"stories_{name}": ("story",) for name in ("home", "town", "wild", "tales", "any")}


@pytest.mark.parametrize("name, roots", ROOTS.items())
def test_every_rule_is_reached_and_every_slot_has_one(name, roots):
    table = data(name)
    own, reached = table.get("rules", {}), set()
    rules = own if name in ("stories", "pronouns", "everyday") else data("words")["rules"] | own
    todo = [text for source in (table, data("further").get(name, {})) for root in roots
            for text in strings(source.get(root, ()))]
    while todo:
        for rule in {rule for _, rule, _ in SLOT.findall(todo.pop())} - reached:
            reached.add(rule)
            todo += rules.get(rule, ())
    variables = set(Writer(0).characters())
    assert own.keys() - reached == set(), "rules that nothing uses"
    assert reached - rules.keys() - variables == set(), "slots without a rule"


def test_every_eighth_training_document_is_a_drill_and_the_others_are_the_text():
    mixed = list(itertools.islice(training_documents(3), 48))
    assert [text for number, text in enumerate(mixed, 1) if number % 8] == list(itertools.islice(documents(3), 42))
    writer = Writer(3)
    drills = [writer.drill_document() + END_OF_TEXT for _ in range(6)]
    assert mixed[7::8] == drills
    assert list(itertools.islice(training_documents(3, PRETRAINING._replace(drill_every=2)), 1, 12, 2)) == drills


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


def test_choices_may_be_nested_and_hold_slots():
    drawn = {expand("[the {pet:1} and {pet:1}|a [red|blue] hen]", {"pet": ["cat", "dog"]}, Random(seed))
             for seed in range(60)}
    assert drawn == {"the cat and cat", "the dog and dog", "a red hen", "a blue hen"}


@pytest.mark.parametrize("template", ["[a|b", "a]", "[a|[b]", "a]b["])
def test_brackets_that_do_not_match_are_an_error(template):
    with pytest.raises(ValueError, match="bracket"):
        expand(template, {}, Random(0))


@pytest.mark.parametrize("text, right", [
    ("a owl", "an owl"), ("an cat", "a cat"), ("A old man", "An old man"), ("a hour", "an hour"),
    ("a unicorn", "a unicorn"),     ("an one-way ticket", "a one-way ticket"), ("a European", "a European"),
    ("a unusual day", "an unusual day"),
    ("the letter a is", "the letter a is"), ("a useful umbrella", "a useful umbrella"),
    ("Banana apple", "Banana apple"),
])
def test_articles_follow_the_sound(text, right):
    assert with_articles(text) == right
