"""What the attention widget shows, against the trace of the model; and that it stays usable."""

import html
import math
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from saved_form import picture_of, still_of

from course_lib.analysis.heads import projections
from course_lib.analysis.trace import trace
from course_lib.config import ModelConfig
from course_lib.display.attention_view import (
    attention_html,
    attention_view,
    cell_summary,
    parts_svg,
    row_figure,
    row_summary,
)
from course_lib.display.attention_widget import attention_widget
from course_lib.layers import attention_weights, repeat_kv
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

RANKS = train_bpe(["The dog did not cross the street because it was too tired."] * 2, 300)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {"<|endoftext|>": len(RANKS)})
TEXT = "The dog did not cross <b> 日 it"


def make_lm(**shape):
    config = ModelConfig(**{"vocab_size": len(RANKS) + 1, "hidden_size": 20, "intermediate_size": 24,
                            "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4,
                            "max_position_embeddings": 64} | shape)
    model, generator = CausalLM(config).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=config, eos_token_ids=frozenset())


@pytest.fixture(scope="module")
def lm():
    return make_lm()


def weights_shown(markup):
    return [float(w) for w in re.findall(r'data-weight="([\d.]+)"', markup)]


def shown(panel, name):
    return re.search(f'data-{name}="([^"]*)"', panel.picture.value)[1]


def view_of(T=5, Dh=6, query=3, seed=0, **options):
    q, k = torch.randn(2, T, Dh, generator=torch.Generator().manual_seed(seed))
    return q, k, attention_view(q, k, [b"<%d&" % i for i in range(T)], query, **options)


def test_the_row_is_the_definition_and_the_parts_make_its_score():
    q, k, view = view_of()
    scores = [sum(a * b for a, b in zip(q[3].tolist(), k[s].tolist())) / math.sqrt(6) for s in range(4)]
    expected = [math.exp(s) / sum(map(math.exp, scores)) for s in scores] + [0.0]
    assert view.weights.tolist() == pytest.approx(expected, abs=1e-6)
    assert view.seen.tolist() == [True] * 4 + [False]
    assert view.key == max(range(5), key=expected.__getitem__)
    assert view.score == pytest.approx(scores[view.key], abs=1e-6) and len(view.parts) == 6
    _, _, chosen = view_of(key=2)
    assert chosen.key == 2 and chosen.score == pytest.approx(scores[2], abs=1e-6)


def test_a_window_hides_what_is_too_far_back():
    _, _, view = view_of(window=2)
    assert view.seen.tolist() == [False, False, True, True, False]
    assert (view.weights[~view.seen] == 0).all() and view.weights.sum() == pytest.approx(1)


def test_words_say_what_the_row_and_the_cell_hold():
    _, _, view = view_of(query=2, key=1)
    best = int(view.weights.argmax())
    words = row_summary(view, 7, 4)
    assert words.startswith("Layer 7, head 4: <2& (2) takes ") and f"from <{best}& ({best})" in words
    assert "3 weights" in words and words.endswith("sum to 100 %.")
    assert f"score {view.score:+.2f}" in cell_summary(view) and "6 products" in cell_summary(view)
    assert "masked" in cell_summary(view_of(query=2, key=4)[2])


@pytest.mark.parametrize("options, words", [
    ({"query": 5}, r"query = 5 .* \[0, 4\]"), ({"query": -1}, "query = -1"), ({"key": 5}, "key = 5"),
    ({"weigh": lambda q, k, mask: q}, r"\(1, 1, 5, 5\)"),
    ({"weigh": lambda q, k, mask: attention_weights(q, k, mask) * torch.nan}, "finite")])
def test_what_makes_no_row_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        view_of(**options)
    with pytest.raises(ValueError, match="len"):
        attention_view(torch.zeros(3, 2), torch.zeros(3, 2), [b"a"], 0)


def test_markup_shows_every_token_once_escaped_and_what_it_is():
    _, _, view = view_of(T=40, query=20, key=2)
    markup = attention_html(view, 1, 2)
    items = re.findall(r'<li class="([^"]*)".*?<bdi>(.*?)</bdi>.*?class="tag">(.*?)</span>', markup)
    assert [html.unescape(text) for _, text, _ in items] == [f"<{i}&" for i in range(40)]
    assert [kind for kind, _, _ in items] == ["key" if i == 2 else "query" if i == 20 else "later" if i > 20 else ""
                                             for i in range(40)]
    assert all(kind == tag for kind, _, tag in items), "said in words, too"
    assert weights_shown(markup) == pytest.approx(view.weights.tolist(), abs=1e-6)
    assert 'data-query="20"' in markup and 'data-key="2"' in markup and 'data-layer="1"' in markup


@pytest.mark.parametrize("Dh", [1, 6, 128])
def test_bars_stand_for_the_parts(Dh):
    _, _, view = view_of(Dh=Dh)
    root = ElementTree.fromstring(parts_svg(view).replace('xmlns="http://www.w3.org/2000/svg" ', ""))
    bars = [(r.get("class"), float(r.get("height"))) for r in root.iter("rect")]
    largest = view.parts.abs().max()
    assert [kind for kind, _ in bars] == ["plus" if part >= 0 else "minus" for part in view.parts]
    assert [height for _, height in bars] == pytest.approx((view.parts.abs() / largest * 56).tolist(), abs=0.06)
    right, bottom = map(float, root.get("viewBox").split()[2:])
    for r in root.iter("rect"):
        assert 0 <= float(r.get("x")) <= float(r.get("x")) + float(r.get("width")) <= right
        assert 0 <= float(r.get("y")) <= float(r.get("y")) + float(r.get("height")) <= bottom
    assert root.get("role") == "img" and root.get("aria-label") == cell_summary(view)


def test_parts_that_are_all_zero_are_drawn():
    view = attention_view(torch.zeros(2, 3), torch.zeros(2, 3), [b"a", b"b"], 1)
    assert "nan" not in attention_html(view, 0, 0) and view.weights.tolist() == [0.5, 0.5]


# The widget


@pytest.mark.parametrize("shape", [{}, {"sliding_window": 3}, {"num_key_value_heads": 6, "positions": "learned"}],
                         ids=["grouped", "window", "gpt2"])
def test_every_row_is_that_of_the_trace(shape):
    lm = make_lm(**shape)
    panel = attention_widget(lm, TEXT, layer=1, head=4)
    ids = TOKENIZER.encode(TEXT)
    attentions = trace(lm.model, torch.tensor([ids])).attentions[:, 0]
    assert shown(panel, "query") == str(len(ids) - 1)
    for knob, values in ((panel.layer, [0, 2]), (panel.head, [0, 5]), (panel.query, [0, 3])):
        for value in values:
            setattr(knob, "index" if knob is panel.query else "value", value)
            row = attentions[panel.layer.value, panel.head.value, panel.query.index]
            assert weights_shown(panel.picture.value) == pytest.approx(row.tolist(), abs=2e-6)
            assert int(shown(panel, "key")) == panel.key.index == int(row.argmax())
            assert panel.tokens.index == panel.query.index == int(shown(panel, "query"))


def test_a_click_moves_the_query_and_the_key_slider_opens_another_cell(lm):
    panel = attention_widget(lm, TEXT, layer=2, head=5, query=6)
    q, k, _ = projections(lm.model, torch.tensor([TOKENIZER.encode(TEXT)]))
    panel.tokens.index = 4
    assert panel.query.index == 4 and shown(panel, "query") == "4"
    panel.key.index = 1
    assert shown(panel, "key") == "1" and shown(panel, "query") == "4"
    score = float(q[2, 0, 5, 4] @ repeat_kv(k[2], 3)[0, 5, 1]) / 2
    assert float(shown(panel, "score")) == pytest.approx(score, abs=1e-4)
    panel.key.index = 7
    assert "masked" in panel.picture.value


def test_another_text(lm):
    panel = attention_widget(lm, TEXT, query=0)
    panel.prompt.value = "The street the street it"
    pieces = [TOKENIZER.decode_single_token_bytes(i).decode() for i in TOKENIZER.encode(panel.prompt.value)]
    texts = re.findall("<bdi>(.*?)</bdi>", panel.picture.value)
    assert [text.replace("␣", " ") for text in texts] == pieces
    assert panel.tokens.options == panel.query.options == panel.key.options
    assert len({label for label, _ in panel.tokens.options}) == len(pieces), "buttons of one label are one to a browser"
    assert panel.query.index == len(pieces) - 1
    panel.prompt.value = "<|endoftext|>"
    assert len(panel.query.options) > 1, "the text of a special token is data"


@pytest.mark.parametrize("text, words", [("", "at least one token"), ("dog " * 99, "max_position_embeddings = 64")])
def test_a_bad_text_is_answered_and_the_widget_goes_on(text, words, lm):
    panel = attention_widget(lm, TEXT)
    picture = panel.picture.value
    panel.prompt.value = text
    assert words in panel.message.value and 'role="alert"' in panel.message.value and panel.picture.value == picture
    panel.layer.value = 2
    assert shown(panel, "layer") == "2" and panel.message.value == ""
    with pytest.raises(ValueError, match=words):
        attention_widget(lm, text)


def test_where_to_begin_is_checked(lm):
    for start, words in (({"layer": 3}, "layer = 3"), ({"head": -1}, "head = -1"), ({"query": 99}, "query = 99")):
        with pytest.raises(ValueError, match=words):
            attention_widget(lm, TEXT, **start)


def test_it_runs_on_the_readers_functions(lm):
    def even(q, k, mask):
        return mask / mask.sum(-1, keepdim=True).float() * torch.ones(1, 1, 1, 1)

    def first_for_all(x, groups):
        return x[:, :1].expand(-1, x.shape[1] * groups, -1, -1)

    panel = attention_widget(lm, TEXT, query=3, weigh=even)
    assert weights_shown(panel.picture.value)[:5] == [0.25] * 4 + [0.0]
    wrong = attention_widget(lm, TEXT, head=5, repeat=first_for_all)
    assert weights_shown(wrong.picture.value) != weights_shown(attention_widget(lm, TEXT, head=5).picture.value)


def test_the_model_runs_once_for_a_text(lm):
    panel = attention_widget(lm, TEXT)
    panel.lm = SimpleNamespace(**{**vars(lm), "model": None})
    panel.layer.value, panel.head.value, panel.query.index = 1, 3, 2
    assert shown(panel, "head") == "3" and panel.message.value == ""


def test_saved_form_is_a_picture_of_the_first_setting(lm):
    panel = attention_widget(lm, TEXT, layer=1, head=2)
    first = picture_of(panel)
    assert "Layer 1, head 2" in still_of(panel)
    panel.head.value = 0
    assert picture_of(panel) == first
    assert "course-attention" in panel._dom_classes
    assert all(knob.description for knob in (panel.prompt, panel.layer, panel.head, panel.query, panel.key,
                                             panel.tokens))


def test_the_still_picture_shades_by_weight():
    _, _, view = view_of()
    boxes = row_figure(view).axes[0].patches
    assert [box.get_facecolor()[3] for box in boxes] == pytest.approx((0.65 * view.weights).tolist())
    notes = [text.get_text() for text in row_figure(view).axes[0].texts]
    assert sum("query" in note for note in notes) == 1 and notes.count("later") == 1
