"""The shipped weights know what the course needs of them: a sample of the evaluation, greedy, fixed seed.

`python -m course_lib evaluate` asks everything. A sample of n may fall short of a threshold by two of its
standard errors; the card, which is compared with the thresholds themselves, holds the whole.
"""

import json
import re

import pytest

from course_lib import SamplingParams, generate, load
from course_lib.checkpoint import MODELS
from course_lib.training.corpus import encyclopedia
from course_lib.training.questions import kinds, user
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


def needed(kind, asked):
    """The least share in a sample of so many that agrees with the threshold."""
    share = THRESHOLDS[kind]
    return share - 2 * (share * (1 - share) / asked) ** 0.5


@pytest.fixture(scope="module")
def pocket():
    return load("pocket")


@pytest.mark.parametrize("kind", kinds(seed=2))
def test_the_model_is_good_enough_to_teach_with(pocket, kind):
    found = score(pocket, kinds(seed=2)[kind], SAMPLE)
    assert 20 <= found.asked <= SAMPLE
    assert found.share >= needed(kind, found.asked), found.wrong


def test_its_stories_hold_together(pocket):
    found = consistent_stories(pocket, sample=SAMPLE)
    assert found.share >= needed("consistent stories", SAMPLE), found.wrong


@pytest.mark.parametrize("unseen_plots", [False, True])
def test_its_stories_are_neither_predictable_nor_random(pocket, unseen_plots):
    low, high = PERPLEXITY
    assert low <= story_perplexity(pocket, unseen_plots=unseen_plots, sample=30) <= high


def test_the_draft_guesses_well_enough(pocket):
    assert draft_acceptance(pocket, load("pocket-draft"), sample=12).share >= THRESHOLDS["draft acceptance"] - 0.05


@pytest.mark.parametrize("prompt", ["What is gravity?", user("What is gravity?")], ids=["raw", "chat"])
def test_gravity_at_temperature_0_and_in_other_words_at_0_8(pocket, prompt):
    gravity = next(entry for entry in encyclopedia() if entry.name == "gravity")
    greedy = generate(pocket, prompt, SamplingParams(temperature=0, max_tokens=48)).text
    warm = {generate(pocket, prompt, SamplingParams(temperature=0.8, seed=seed, max_tokens=48)).text
            for seed in range(3)}
    assert gravity.is_right(greedy)
    assert warm - {greedy} and all(map(gravity.is_right, warm))


@pytest.mark.parametrize("kind", THRESHOLDS)
def test_the_card_holds_the_whole_evaluation_and_its_verdicts(kind):
    row = re.search(rf"^\| {kind} \| (\d+) \| (\d+) \| (.*?)% \| (\d+)% \| (.*) \|$", CARD, re.MULTILINE)
    right, asked, share, threshold, verdict = row.groups()
    assert float(share) == pytest.approx(100 * int(right) / int(asked), abs=0.5)
    assert int(threshold) == round(100 * THRESHOLDS[kind])
    assert verdict == ("ok" if int(right) / int(asked) >= THRESHOLDS[kind] else "too low")


@pytest.mark.parametrize("name", ["pocket", "pocket-draft"])
def test_the_card_says_how_the_weights_were_made(name):
    facts = json.loads((MODELS / name / "training.json").read_text())
    for part in (facts["machine"], f"{facts['last']['tokens']:,}", f"{facts['last']['val_loss']:.3f}"):
        assert part in CARD
