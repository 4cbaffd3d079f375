"""Watching speculative decoding: each proposal is shown with its fate, and the panel runs on what it is given."""

import re
from collections import namedtuple
from types import SimpleNamespace

import pytest
from display.diagrams.well_drawn import check, hatched, rects, words
from display.saved_form import picture_of, still_of

from course_lib import DraftModel, SamplingParams, load, stream
from course_lib.display.speculation_view import fates, own_kind, passes_drawing, passes_html, summary, told
from course_lib.display.speculation_widget import speculation_widget
from course_lib.speculative import passes

Round = namedtuple("Round", "proposal p q tokens")
NAMES = [b" When", b"<b>", b" you", b" ca", b"\xc3", b"."]
TOKENIZER = SimpleNamespace(
    decode_single_token_bytes=lambda token: NAMES[token],
    decode=lambda ids: b"".join(NAMES[token] for token in ids).decode("utf-8", "replace"))
ROUNDS = [Round([0, 1, 2], [0.5, 0.031, 0.4], [0.25, 0.86, 0.9], [0, 3]),
          Round([2, 5], [1.0, 0.5], [0.5, 0.25], [2, 5, 1]), Round([], [], [], [5])]


def test_a_proposal_is_kept_rejected_or_not_looked_at():
    assert [fates(one) for one in ROUNDS] == [["accepted", "rejected", "unseen"], ["accepted", "accepted"], []]
    assert [own_kind(one) for one in ROUNDS] == ["replacement", "bonus", "bonus"]


def test_the_summary_counts():
    assert summary(ROUNDS) == ("3 passes of the target wrote 6 tokens, 2.0 a pass. "
                               "Of 4 proposals looked at, 3 were accepted.")
    assert summary(ROUNDS[:1]).startswith("1 pass of the target wrote 2 tokens")
    ended = [*ROUNDS, Round([2, 5, 1], [1.0] * 3, [1.0] * 3, [2, 5])]  # 5 ends the text
    assert summary(ended).endswith("5 were accepted. The last pass adds none of its own: the text ended before.")


def test_the_markup_shows_p_and_q_and_says_every_fate_in_words():
    html = passes_html(ROUNDS, TOKENIZER, 3)
    boxes = re.findall(r'<span class="token (\w+)"><bdi>(.*?)</bdi>(.*?)</span>', html)
    assert [kind for kind, *_ in boxes] == ["accepted", "rejected", "unseen", "own", "accepted", "accepted", "own",
                                            "own"]
    assert boxes[1] == ("rejected", "&lt;b&gt;", "<small>rejected</small><small>p 0.03</small><small>q 0.86</small>")
    assert "<small>kept</small>" in boxes[0][2] and "<small>not looked at</small>" in boxes[2][2]
    assert "<small>replacement</small>" in boxes[3][2] and "<small>bonus</small>" in boxes[6][2]
    assert 'data-passes="3" data-accepted="3" data-tokens="6"' in html and "<b>" not in html
    assert 'data-passes="1" data-accepted="1" data-tokens="2"' in passes_html(ROUNDS, TOKENIZER, 1)
    assert '<p class="written"> When ca<span class="new"> you.&lt;b&gt;</span></p>' in passes_html(ROUNDS, TOKENIZER, 2)
    for shown in (0, 4):
        with pytest.raises(ValueError, match="shown"):
            passes_html(ROUNDS, TOKENIZER, shown)


def test_a_text_may_end_with_a_proposal():
    """The bonus after an end token belongs to no text."""
    ended = Round([2, 5], [1.0, 0.5], [0.5, 0.25], [2, 5])
    assert fates(ended) == ["accepted", "accepted"]
    html = passes_html([ended], TOKENIZER, 1)
    assert 'class="token own"' not in html and 'data-accepted="2" data-tokens="2"' in html
    assert rects(passes_drawing([ended], TOKENIZER), "mark") == [] and told([ended], TOKENIZER).endswith("kept you..")


def test_the_still_shows_the_first_passes():
    drawing = check(lambda: passes_drawing(ROUNDS, TOKENIZER))
    assert len(rects(drawing, "latency")) == 3 and len(hatched(drawing)) == 1 and len(rects(drawing, "mark")) == 3
    assert {"p 0.03", "q 0.86", "replacement", "bonus", "pass 3"} <= set(words(drawing))
    assert drawing.description == told(ROUNDS, TOKENIZER)
    assert "pass 1: kept When, rejected <b> (p 0.03, q 0.86), replacement ␣ca" in drawing.description
    many = [Round(list(range(6)), [1.0] * 6, [1.0] * 6, [0, 1, 2, 3, 4, 5, 2])] * 9
    assert len(rects(check(lambda: passes_drawing(many, TOKENIZER)), "mark")) == 4


@pytest.fixture
def asked():
    return []


@pytest.fixture
def panel(asked):
    def write(text, params, k):
        asked.append((text, params.temperature, k, params.seed))
        return ROUNDS if k else ROUNDS[2:]
    return speculation_widget(write, TOKENIZER, "Why?", temperature=0.5, k=3, seed=4)


def test_the_panel_runs_on_the_function_that_it_gets(panel, asked):
    assert asked == [("Why?", 0.5, 3, 4)] and 'data-passes="3"' in panel.picture.value
    panel.shown.value = 1
    assert len(asked) == 1 and 'data-passes="1"' in panel.picture.value, "stepping writes nothing new"
    panel.k.value = 0
    assert asked[-1] == ("Why?", 0.5, 0, 4) and 'data-passes="1"' in panel.picture.value and panel.shown.max == 1
    panel.k.value, panel.temperature.value, panel.seed.value, panel.text.value = 2, 1.0, 9, "Who?"
    assert asked[-1] == ("Who?", 1.0, 2, 9) and panel.shown.value == panel.shown.max == 3
    assert all(knob.description for knob in (panel.text, panel.temperature, panel.k, panel.seed, panel.shown))


def test_the_panel_says_what_is_wrong_and_goes_on(panel):
    before = panel.picture.value
    panel.text.value = "  "
    assert "Not updated." in panel.message.value and panel.picture.value == before
    panel.text.value = "What?"
    assert panel.message.value == ""


def test_what_is_saved_is_a_picture_of_the_first_setting(panel):
    first = picture_of(panel)
    assert "kept When" in still_of(panel) and "k = 3, seed 4" in first and "course-speculation" in panel._dom_classes
    panel.seed.value = 1
    assert picture_of(panel) == first


@pytest.mark.parametrize("k", [-1, 9])
def test_a_panel_that_cannot_be_is_refused(k):
    with pytest.raises(ValueError, match="k ="):
        speculation_widget(lambda *_: ROUNDS, TOKENIZER, "Why?", k=k)


@pytest.mark.parametrize("temperature", [0, 0.8, 1.5])
def test_passes_of_the_library_are_shown(temperature):
    lm, draft = load("pocket"), DraftModel(load("pocket-draft"), 4)
    running = stream(lm, [{"role": "user", "content": "What is gravity?"}],
                     SamplingParams(temperature=temperature, seed=0, max_tokens=24), draft=draft)
    list(running)
    rounds = passes(running.steps)
    check(lambda: passes_drawing(rounds, lm.tokenizer))
    html = passes_html(rounds, lm.tokenizer, len(rounds))
    assert html.count('class="token accepted"') == sum(one.accepted for one in rounds)
    assert html.count('class="token own"') == len(rounds)
