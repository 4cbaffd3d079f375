"""The model card is filled from the recipes, the logs and an evaluation; and who may write it."""

import json
from types import SimpleNamespace

import pytest

from course_lib.costs import parameter_count
from course_lib.training import card as card_module
from course_lib.training import evaluate
from course_lib.training.card import card
from course_lib.training.corpus import is_held_out, stories
from course_lib.training.scores import Score
from course_lib.training.train import POCKET, POCKET_DRAFT


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A card of models that were never trained."""
    for name, loss in (("pocket", 0.71249), ("pocket-draft", 0.9)):
        (tmp_path / name).mkdir()
        facts = {"config": {"guided": (60, 900), "seed": 4}, "last": {"step": 6000, "tokens": 1234567, "seconds": 70.2},
                 "val_loss": loss, "machine": "a slow one", "command": "make it", "note": "In one go."}
        (tmp_path / name / "training.json").write_text(json.dumps(facts))
    monkeypatch.setattr(card_module, "MODELS", tmp_path)
    lm, draft = SimpleNamespace(config=POCKET), SimpleNamespace(config=POCKET_DRAFT)
    return card(lm, draft, {"capitals": Score(9, 10)}, perplexity="- high", samples="- It pulls.")


def test_the_card_holds_what_it_was_given_and_no_slot(written):
    assert "| capitals | 9 | 10 | 90.0% | 95% | too low |" in written
    assert "- high" in written and "- It pulls." in written and "{" not in written
    assert f"{parameter_count(POCKET).total:,} parameters, 10 layers of width 256" in written
    assert "| loss on all held-back text | 0.712 | 0.900 |" in written
    assert "| guided steps | 60 to 900 |" in written and "| tokens read | 1,234,567 |" in written


def test_the_help_in_copying_is_counted(written):
    text = " ".join(written.split())
    assert "One training document in 8 is" in text and "tells 5 attention heads" in text


def test_the_stories_are_those_that_training_tells(written):
    plans = sum(not is_held_out(plan.title) for plan in stories())
    assert f"stories of {plans} plans" in " ".join(written.split()) and 400 <= plans < len(stories())


@pytest.mark.parametrize("card, code", [([], 1), (["--card"], 0)])
def test_a_share_that_is_too_low_is_an_error_unless_the_card_tells_it(card, code, tmp_path, monkeypatch):
    (tmp_path / "pocket").mkdir()
    for name, value in {"load": None, "require_tools": None, "evaluate": {}, "report_perplexity": "", "samples": "",
                        "draft_acceptance": Score(0, 10), "card": "low", "report_families": ""}.items():
        monkeypatch.setattr(evaluate, name, lambda *args, value=value, **kw: value)
    monkeypatch.setattr(evaluate, "MODELS", tmp_path)
    monkeypatch.setattr(evaluate, "THRESHOLDS", {"draft acceptance": 0.65})
    assert evaluate.main(card) == code
    assert [path.read_text() for path in tmp_path.glob("pocket/*")] == ["low"] * len(card)


@pytest.mark.parametrize("option", [("--model", "pocket-draft"), ("--draft", "pocket"), ("--sample", "20")])
def test_the_card_is_written_of_the_whole_evaluation_of_the_shipped_models_alone(option, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "load", pytest.fail)
    with pytest.raises(SystemExit) as stop:
        evaluate.main(["--card", *option])
    assert stop.value.code == 2
    assert f"{option[0]} does not go with --card" in capsys.readouterr().err
