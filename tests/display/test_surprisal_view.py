"""What the surprisal widget shows: numbers in words and markup, escaped; a text box and a slider that drive it."""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from saved_form import still_of
from tiny_lm import scrambled_lm

from course_lib.analysis.calibration import Bin
from course_lib.analysis.surprisal import TokenScore, score_text
from course_lib.display.show import png
from course_lib.display.surprisal_view import (
    bits_figure,
    bits_text,
    candidates_html,
    reliability_figure,
    scores_figure,
    summary,
    surprisal_html,
    token_words,
)
from course_lib.display.surprisal_widget import MAX_CHARACTERS, most_surprising, surprisal_widget

TEXT = "The cat was <b> 日 tired."
SCORES = [TokenScore(3, b"The"), TokenScore(5, b" <b>", 3.0, 4, 1.5, ((b" dog", 0.5), (b"\n", 0.25), (b"x", 0.2))),
          TokenScore(6, b" dog", 1.0, 1, 1.25, ((b" dog", 0.5), (b"\xe6", 0.25)))]


@pytest.fixture(scope="module")
def lm():
    return scrambled_lm()


def parsed(markup):
    style = re.compile(r"<style>.*?</style>", re.S)
    return ElementTree.fromstring(style.sub("", markup).replace("class=itself", 'class="itself"'))


def shown(panel, name):
    return re.search(f'data-{name}="([^"]*)"', panel.picture.value)[1]


def test_a_token_is_told_in_words():
    assert token_words(SCORES[0]) == "The: the first token, not predicted"
    assert token_words(SCORES[1]) == "␣<b>: 3.0 bits, probability 12.5 %, rank 4; likeliest was ␣dog, 50.0 %"
    assert summary(SCORES) == "2 tokens predicted, 2.0 bits each on average: perplexity 4.0, 0.50 bits per byte."
    assert "nothing to predict" in summary(SCORES[:1])
    assert bits_text(float("inf")) == "∞" and "perplexity infinite" in summary(
        [TokenScore(1, b"a", float("inf"), 9, 1.0, ((b"b", 1.0),))])


def test_every_token_carries_its_number_bar_and_words():
    tree = parsed(surprisal_html(SCORES, 1))
    items = tree.findall(".//li")
    assert [item.find("span[@class='bits']").text for item in items] == ["–", "3.0", "1.0"]
    assert [float(re.search(r"--part:([\d.]+)", item.get("style"))[1]) for item in items] == [0, 0.188, 0.062]
    assert [item.get("title") for item in items] == [token_words(score) for score in SCORES]
    assert [item.get("aria-current") for item in items] == [None, "true", None]
    assert tree.find(".//ol").get("tabindex") == "0" and tree.find(".//b").text == summary(SCORES)
    assert "<b>\n" not in surprisal_html(SCORES, 1) and "␣&lt;b&gt;" in surprisal_html(SCORES, 1)
    with pytest.raises(ValueError, match="chosen"):
        surprisal_html(SCORES, 3)


def test_the_table_holds_the_token_itself_at_its_rank():
    rows = parsed(f"<div>{candidates_html(SCORES[1])}</div>").findall(".//tr")[1:]
    assert [row.find("th").text for row in rows] == ["1", "2", "3", "4"]
    assert [row.get("class") for row in rows] == [None, None, None, "itself"]
    assert [row.findall("td")[1].text for row in rows] == ["50.0 %", "25.0 %", "20.0 %", "12.5 %"]
    first = parsed(f"<div>{candidates_html(SCORES[2])}</div>").findall(".//tr")[1:]
    assert [row.get("class") for row in first] == ["itself", None], "once, where it is one of the candidates"
    assert "not predicted" in candidates_html(SCORES[0])


def test_the_widget_follows_text_and_slider(lm):
    panel = surprisal_widget(lm, TEXT)
    scores = score_text(lm, TEXT)
    assert shown(panel, "chosen") == str(most_surprising(scores)) == str(panel.place.value)
    assert shown(panel, "tokens") == str(len(scores)) and panel.place.max == len(scores) - 1
    panel.place.value = 0
    assert shown(panel, "chosen") == "0" and "not predicted" in panel.picture.value
    panel.box.value = "The dog"
    n = len(score_text(lm, "The dog"))
    assert shown(panel, "tokens") == str(n) and panel.place.max == n - 1
    before = panel.picture.value
    panel.box.value = ""
    assert "Not updated." in panel.message.value and panel.picture.value == before
    panel.box.value = TEXT
    assert panel.message.value == "" and shown(panel, "tokens") == str(len(scores))


def test_the_widget_runs_the_model_only_for_a_new_text(lm):
    calls = []
    counting = SimpleNamespace(**vars(lm) | {"model": Counting(lm.model, calls)})
    panel = surprisal_widget(counting, "The dog was")
    panel.place.value = 0
    panel.place.value = 1
    assert len(calls) == 1
    panel.box.value = "The dog"
    assert len(calls) == 2


class Counting:
    def __init__(self, model, calls):
        self.model, self.calls = model, calls

    def parameters(self):
        return self.model.parameters()

    def __call__(self, ids):
        self.calls.append(ids)
        return self.model(ids)


def test_a_long_text_is_cut_and_says_so(lm):
    lm = SimpleNamespace(**vars(lm) | {"config": SimpleNamespace(max_position_embeddings=10_000),
                                       "model": Wide(lm.model)})
    panel = surprisal_widget(lm, "The dog " * 200)
    assert f"first {MAX_CHARACTERS:,} of 1,600" in panel.picture.value


class Wide(Counting):
    def __init__(self, model):
        super().__init__(model, [])

    def __call__(self, ids):
        return torch.zeros(1, ids.shape[1], self.model.config.vocab_size)


def test_a_saved_notebook_has_a_picture_and_words(lm):
    alt = still_of(surprisal_widget(lm, TEXT))
    assert "perplexity" in alt and TEXT in alt and html.escape(TEXT) not in alt


def test_figures_draw():
    bins = [Bin(0, 0.5, 12, 0.3, 0.25, 0.05), Bin(0.5, 1, 1200, 0.9, 1.0, float("inf"))]
    figure = reliability_figure(bins)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["dashed line: calibrated", "12", "1,200"]
    assert png(figure) == png(reliability_figure(bins))
    assert "0.25 at 0.30, 1.00 at 0.90" in figure.get_label()
    assert [t.get_text() for t in scores_figure(SCORES).axes[0].texts] == ["␣<b>", "3.0", "␣dog", "1.0"]


def test_a_token_that_cannot_happen_is_coloured_as_strongly_as_any():
    boxes = bits_figure([b"a", "b"], [float("inf"), 16.0]).axes[0].patches
    assert boxes[0].get_facecolor() == boxes[1].get_facecolor()
    with pytest.raises(ValueError, match="at least one predicted token"):
        scores_figure(SCORES[:1])
