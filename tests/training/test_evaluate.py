"""The shipped weights know what the course needs of them, and what their card says.

`python -m course_lib evaluate` asks everything and writes the card, which is compared with the thresholds. Here a
sample is asked, greedy, with a fixed seed; it may fall short of the card by three standard errors.
"""

import json
import re

import pytest

from course_lib import SamplingParams, generate, load
from course_lib.checkpoint import MODELS
from course_lib.training.corpus import encyclopedia
from course_lib.training.questions import SEED, kinds, user
from course_lib.training.scores import (
    PERPLEXITY,
    THRESHOLDS,
    consistent_stories,
    draft_acceptance,
    score,
    story_perplexity,
)

SAMPLE = 30
CARD = (MODELS / "pocket" / "README.md").read_text()
# The kinds whose threshold these weights miss, as the card says.
SHORT = {"calculator", "dictionary", "pronouns", "stories asked for", "small talk"}


def row(kind):
    """Right, asked, share in percent, needed in percent and verdict, as the card has them."""
    return re.search(rf"^\| {kind} \| (\d+) \| (\d+) \| (.*?)% \| (\d+)% \| (.*) \|$", CARD, re.MULTILINE).groups()


def in_card(kind):
    """The share of right answers in the whole evaluation."""
    right, asked, *_ = row(kind)
    return int(right) / int(asked)


def least(kind, asked):
    """The smallest share in a sample of this size that agrees with the card: three standard errors below it, or
    two wrong answers. With 30 questions, a model as good as its card fails this for one seed in 200 on average,
    and for one in 40 at worst, where the share is 98 %.
    """
    share = in_card(kind)
    return min(share - 3 * (share * (1 - share) / asked) ** 0.5, (asked - 2) / asked)


@pytest.fixture(scope="module")
def pocket():
    return load("pocket")


def strictly(kind):
    """The kind as a parameter; one of `SHORT` must fail, so that better weights ask for its entry to go."""
    return pytest.param(kind, marks=pytest.mark.xfail(kind in SHORT, reason="below the threshold", strict=True))


@pytest.mark.parametrize("kind", [strictly(kind) for kind in THRESHOLDS])
def test_the_model_is_good_enough_to_teach_with(kind):
    assert in_card(kind) >= THRESHOLDS[kind]


@pytest.mark.parametrize("kind", kinds(SEED))
def test_a_sample_agrees_with_the_card(pocket, kind):
    found = score(pocket, kinds(SEED)[kind], SAMPLE)
    assert 20 <= found.asked <= SAMPLE
    assert found.share >= least(kind, found.asked), found.wrong


def test_its_stories_hold_together(pocket):
    found = consistent_stories(pocket, sample=SAMPLE)
    assert found.share >= least("consistent stories", SAMPLE), found.wrong


def test_its_stories_are_neither_predictable_nor_random(pocket):
    low, high = PERPLEXITY
    known, unseen = (story_perplexity(pocket, unseen_plans=which, sample=30) for which in (False, True))
    assert low <= known <= high < unseen


def test_the_draft_guesses_well_enough(pocket):
    assert draft_acceptance(pocket, load("pocket-draft")).share == pytest.approx(in_card("draft acceptance"), abs=0.03)


RAW, CHAT = "What is gravity?", user("What is gravity?")


def on_gravity(pocket, prompt, temperature, seed=0):
    """An answer, and whether it is right."""
    gravity = next(entry for entry in encyclopedia() if entry.name == "gravity")
    text = generate(pocket, prompt, SamplingParams(temperature=temperature, seed=seed, max_tokens=48)).text
    return text, gravity.is_right(text)


@pytest.mark.parametrize("prompt", [RAW, CHAT], ids=["raw", "chat"])
def test_gravity_at_temperature_0(pocket, prompt):
    assert on_gravity(pocket, prompt, 0)[1]


@pytest.mark.parametrize("prompt", [
    pytest.param(RAW, id="raw", marks=pytest.mark.xfail(
        reason="without the chat template, at 0.8 about every second answer strays to another thing", strict=True)),
    pytest.param(CHAT, id="chat")])
def test_gravity_in_other_words_at_0_8(pocket, prompt):
    greedy, _ = on_gravity(pocket, prompt, 0)
    warm = [on_gravity(pocket, prompt, 0.8, seed) for seed in range(3)]
    assert {text for text, _ in warm} - {greedy} and all(right for _, right in warm)


@pytest.mark.parametrize("kind", THRESHOLDS)
def test_the_card_holds_the_whole_evaluation_and_its_verdicts(kind):
    _, _, share, threshold, verdict = row(kind)
    assert float(share) == pytest.approx(100 * in_card(kind), abs=0.1)
    assert int(threshold) == round(100 * THRESHOLDS[kind])
    assert verdict == ("ok" if in_card(kind) >= THRESHOLDS[kind] else "too low")


@pytest.mark.parametrize("name", ["pocket", "pocket-draft"])
def test_the_card_says_how_the_weights_were_made(name):
    facts = json.loads((MODELS / name / "training.json").read_text())
    for part in (facts["machine"], f"{facts['last']['tokens']:,}", f"{facts['val_loss']:.3f}"):
        assert part in CARD
