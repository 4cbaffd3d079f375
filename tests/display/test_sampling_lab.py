"""The sampling laboratory: each step against torch, and a widget that runs the model only when asked."""

import html
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import ModelConfig, SamplingParams
from course_lib.display.sampling_lab_view import (
    chain_html,
    chain_summary,
    chain_svg,
    chain_view,
    share,
    step_sentences,
    texts_html,
)
from course_lib.display.sampling_lab_widget import KNOBS, sampling_lab
from course_lib.display.widgets import continuation, last_logits
from course_lib.generate import generate
from course_lib.model import CausalLM
from course_lib.sampling import filter_logits
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

RANKS = train_bpe(["The cat sat on the mat because it was tired. What is gravity?"] * 2, 280)
N = len(RANKS)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {"<|endoftext|>": N})
EVERY = SamplingParams(repetition_penalty=1.5, temperature=0.7, top_k=30, top_p=0.9, min_p=0.2)
A, B = SamplingParams(temperature=0.5), SamplingParams(temperature=1.5, top_k=400)


@pytest.fixture(scope="module")
def lm():
    config = ModelConfig(vocab_size=N + 1, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    model = CausalLM(config).eval()
    model.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.norm.weight.mul_(20)
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=config, eos_token_ids=frozenset({N}))


def lab_of(lm, prompt="The cat", settings=None, **kwargs):
    return sampling_lab(lm, prompt, settings or {"A": A, "B": B}, **{"n": 2, "max_tokens": 4, **kwargs})


def logits_of(*weights):
    return torch.tensor([weights], dtype=torch.float64).log()


def letters(*ids):
    """A tokenizer whose token i is the i-th letter."""
    return SimpleNamespace(decode_single_token_bytes=lambda id: bytes([97 + id]))


def texts_of(markup):
    """The continuations of each column, as plain text."""
    found = re.findall(r'<section class="(\w+)" data-column="(\w+)".*?<ol>(.*?)</ol>', markup, re.S)
    texts = {name: re.findall(r"</span> (.*?)<span", part, re.S) for _, name, part in found}
    return {name: kind for kind, name, _ in found}, {name: list(map(html.unescape, texts[name])) for name in texts}


# Steps


def test_each_stage_is_the_chain_up_to_there():
    logits = torch.randn(1, 90, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    view = chain_view(logits, EVERY, prompt_ids=[3, 4], output_ids=[5])
    assert [stage.name for stage in view.stages] == ["model", "penalties", "temperature", "top-k", "top-p", "min-p"]
    so_far, before = {}, view.stages[0]
    for stage, name in zip(view.stages[1:], ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")):
        so_far[name] = getattr(EVERY, name)
        expected = filter_logits(logits, SamplingParams(**so_far), [[3, 4]], [[5]])[0, view.ids]
        torch.testing.assert_close(stage.probs, expected.softmax(-1), rtol=0, atol=1e-12)
        assert stage.kept.tolist() == expected.isfinite().tolist() and stage.setting == f"{name}={so_far[name]:g}"
        assert stage.removed.tolist() == (before.kept & ~stage.kept).tolist()
        assert stage.removed_mass == pytest.approx(float(before.probs[stage.removed].sum()), abs=1e-12)
        before = stage
    assert view.last.n_kept < view.stages[3].n_kept < 90 and view.last.n_removed > 0
    assert view.distribution.kept.equal(view.last.kept)
    assert view.distribution.shaped.equal(view.stages[2].probs)


def test_a_step_that_is_off_is_not_shown():
    assert [s.name for s in chain_view(logits_of(5, 3, 2), SamplingParams()).stages] == ["model"]
    assert [s.name for s in chain_view(logits_of(5, 3, 2), SamplingParams(min_p=0.5)).stages] == ["model", "min-p"]


def test_sentences_say_what_was_removed_and_how_much_it_was():
    view = chain_view(logits_of(50, 30, 15, 4, 1), SamplingParams(temperature=0.5, top_k=4, top_p=0.9))
    first, second, third = step_sentences(view, letters())
    assert first == "temperature=0.5 removed nothing and moved 18.6 % of the probability to other tokens."
    assert second == ("top_k=4 removed 1 token, 0.03 % of what came in; the likeliest of them: e (0.03 %). "
                      "4 tokens left.")
    assert third == ("top_p=0.9 removed 2 tokens, 6.6 % of what came in; the likeliest of them: c (6.2 %), d (0.44 %). "
                     "2 tokens left.")
    assert chain_summary(view) == ("2 of 5 tokens can be drawn; the model gave them 80.0 %, and 20.0 % to the 3 "
                                   "removed.")
    assert chain_summary(chain_view(logits_of(1, 1), SamplingParams())) == "All 2 tokens can be drawn."
    [greedy] = step_sentences(chain_view(logits_of(6, 3, 1), SamplingParams(temperature=0)), letters())
    assert greedy.startswith("temperature=0 removed 2 tokens, 40.0 % of what came in")
    [nothing] = step_sentences(chain_view(logits_of(6, 3, 1), SamplingParams(presence_penalty=1)), letters())
    assert nothing == "presence_penalty=1 changed nothing here."


def test_what_was_removed_says_so_and_what_is_left_is_never_zero():
    assert [share(p, True) for p in (0.0, 1e-30, 0.00005, 0.5)] == ["<0.01 %"] * 3 + ["50.0 %"]
    assert share(0.3, False) == "removed"
    view = chain_view(logits_of(1, 1e-300, 0.5), SamplingParams(temperature=0.5, min_p=0.1))
    cells = [element.text for element in ElementTree.fromstring(chain_svg(view, letters())).iter() if element.text]
    assert cells.count("removed") == 1 and "0 %" not in cells and "0.0 %" not in cells
    hot = chain_view(torch.tensor([[0.0, -1e4, -1.0]]), SamplingParams(temperature=0.5))
    assert hot.last.probs.min() == 0 and hot.last.n_kept == 3, "a probability that rounds to 0 is not removed"
    assert "removed" not in re.sub("aria-label.*?data", "", chain_svg(hot, letters()))


def test_svg_has_a_bar_for_every_token_in_every_stage():
    view = chain_view(logits_of(50, 30, 15, 4, 1), SamplingParams(top_k=2))
    root = ElementTree.fromstring(chain_svg(view, letters(), top=3))
    kinds = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert kinds == ["after"] * 4 + ["after", "after", "cut", "cut"], "the fourth row is all others together"
    assert root.get("data-kept") == "5 2" and root.get("data-stages") == "model top-k"
    written = [element.text for element in root.iter() if element.text]
    assert {"a", "b", "c", "other 2", "top_k=2", "model", "62.5 %", "5.0 %"} <= set(written)
    assert "2 tokens left after top-k" in root.get("aria-label")


@pytest.mark.parametrize("V", [1, 2, 12, 13, 5000])
@given(st.sampled_from([SamplingParams(), SamplingParams(temperature=0), EVERY, SamplingParams(presence_penalty=2.0)]))
def test_markup_of_any_size_is_sound_and_stays_inside(V, params):
    logits = 30 * torch.randn(1, V, generator=torch.Generator().manual_seed(V))
    tokenizer = SimpleNamespace(decode_single_token_bytes=lambda id: b"<&\xff long name %d" % id)
    view = chain_view(logits, params, prompt_ids=[0], output_ids=[0])
    markup = chain_html(view, params, tokenizer, name="<A>")
    root = ElementTree.fromstring(re.sub(r"<br>", "<br/>", markup))
    svg = next(element for element in root.iter() if element.get("data-kept"))
    right = float(svg.get("viewBox").split()[2])
    for rect in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(rect.get("x")) + float(rect.get("width")) < right
    assert "nan" not in markup and "<A>" not in markup and len(markup) < 40_000
    line = html.unescape(re.search('<code class="params">(.*?)</code>', markup)[1])
    assert eval(line, {"SamplingParams": SamplingParams}) == params


def test_logits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"logits\.shape = \(2, 3\)"):
        chain_view(torch.zeros(2, 3), SamplingParams())


# The widget


def test_the_picture_follows_every_knob_without_the_model(lm):
    lab = lab_of(lm)
    lab.lm = SimpleNamespace(tokenizer=TOKENIZER)
    values = {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -0.5, "temperature": 0.9,
              "top_k": 20, "top_p": 0.85, "min_p": 0.05}
    assert list(values) == list(KNOBS) == list(lab.knobs)
    for name, value in values.items():
        before = lab.picture.value
        lab.knobs[name].value = value
        assert lab.picture.value != before and getattr(lab.params, name) == value
    assert f"A: <code class=\"params\">{html.escape(repr(lab.params))}" in lab.picture.value
    view = chain_view(lab.logits, lab.params, prompt_ids=TOKENIZER.encode("The cat"))
    assert chain_svg(view, TOKENIZER) in lab.picture.value
    assert lab.message.value == ""


def test_knobs_belong_to_one_setting_at_a_time(lm):
    lab = lab_of(lm)
    lab.knobs["top_p"].value = 0.5
    lab.choice.value = "B"
    assert lab.params == replace(B, seed=0, max_tokens=4)
    assert {name: knob.value for name, knob in lab.knobs.items()} == {name: getattr(B, name) for name in KNOBS}
    assert "B: <code" in lab.picture.value and "top_k=400" in lab.picture.value
    lab.knobs["min_p"].value = 0.2
    lab.choice.value = "A"
    assert lab.knobs["top_p"].value == 0.5 and lab.knobs["min_p"].value == 0
    assert lab.settings["B"].min_p == 0.2 and lab.settings["B"].top_k == 400
    lab.seed.value = 7
    assert {params.seed for params in lab.settings.values()} == {7}


def test_the_button_writes_what_generate_writes_and_nothing_else_does(lm):
    lab = lab_of(lm, n=3)
    assert 'data-texts' not in lab.writing.value
    lab.button.click()
    kinds, texts = texts_of(lab.writing.value)
    for name, params in (("A", A), ("B", B)):
        assert texts[name] == [generate(lm, "The cat", replace(params, seed=i, max_tokens=4)).text for i in range(3)]
    assert kinds == {"A": "fresh", "B": "fresh"}
    lab.knobs["temperature"].value = 1.1
    assert texts_of(lab.writing.value) == ({"A": "stale", "B": "fresh"}, texts)
    lab.seed.value = 5
    assert texts_of(lab.writing.value) == ({"A": "stale", "B": "stale"}, texts)
    lab.count.value = 1
    lab.button.click()
    kinds, texts = texts_of(lab.writing.value)
    assert kinds == {"A": "fresh", "B": "fresh"}
    assert texts["A"] == [generate(lm, "The cat", SamplingParams(temperature=1.1, seed=5, max_tokens=4)).text]
    lab.prompt.value = "What is"
    assert texts_of(lab.writing.value) == ({"A": "stale", "B": "stale"}, texts)


def test_a_key_held_down_on_the_button_writes_once(lm):
    lab = lab_of(lm)
    passes = []
    with lm.model.register_forward_pre_hook(lambda *_: passes.append(1)):
        for _ in range(30):
            lab.button.click()
        assert len(passes) == 2 * 2 * 4, "two settings, two texts, four tokens"
        lab.seed.value = 1
        lab.button.click()
    assert len(passes) == 2 * 16


def test_knobs_never_run_the_model_and_a_prompt_runs_it_once(lm):
    lab = lab_of(lm)
    passes = []
    with lm.model.register_forward_pre_hook(lambda *_: passes.append(1)):
        for value in range(60):  # as an arrow key that is held down
            lab.knobs["top_k"].value = value + 1
        assert passes == []
        lab.prompt.value = "The mat"
        lab.written.value = " sat"
    assert passes == [1, 1]


def test_what_is_written_so_far_counts_as_output(lm):
    penalised = SamplingParams(presence_penalty=2.0, seed=0)
    lab = lab_of(lm, settings={"A": penalised}, written=" sat", n=1)
    prompt, written = TOKENIZER.encode("The cat"), TOKENIZER.encode(" sat")
    assert torch.equal(lab.logits, last_logits(lm, prompt + written))
    view = chain_view(lab.logits, penalised, prompt_ids=prompt, output_ids=written)
    assert view.last.moved > 0 and chain_svg(view, TOKENIZER) in lab.picture.value
    lab.button.click()
    ids, output = [*prompt, *written], [*written]
    for _ in range(4):
        logits = filter_logits(last_logits(lm, ids), penalised, [prompt], [output])
        ids, output = [*ids, logits.argmax().item()], [*output, logits.argmax().item()]
    greedy = replace(penalised, temperature=0.0, max_tokens=4)
    assert list(continuation(lm, prompt + written, greedy, written=len(written)).token_ids) == output[len(written):]
    assert texts_of(lab.writing.value)[1]["A"] == [
        continuation(lm, prompt + written, replace(penalised, max_tokens=4), written=len(written)).text]


def test_a_readers_filter_decides_picture_and_texts(lm):
    def only_token_98(logits, params, *ids):
        return torch.where(torch.arange(logits.shape[1]) == 98, 0.0, -torch.inf)[None]

    lab = lab_of(lm, filter=only_token_98)
    lab.button.click()
    assert texts_of(lab.writing.value)[1] == {"A": ["bbbb"] * 2, "B": ["bbbb"] * 2}
    assert f'data-kept="{N + 1} 1"' in lab.picture.value


def test_mistakes_are_answered_and_the_widget_goes_on(lm):
    lab = lab_of(lm)
    before = lab.picture.value
    lab.prompt.value = ""
    assert 'role="alert"' in lab.message.value and lab.picture.value == before
    lab.prompt.value = "cat"
    assert lab.message.value == "" and lab.picture.value != before
    for wrong, words in (({"settings": {}}, "settings"), ({"n": 0}, "n = 0"), ({"prompt": [1, 2]}, "chat messages")):
        with pytest.raises(ValueError, match=words):
            sampling_lab(lm, **{"prompt": "The", "settings": {"A": A}, **wrong})


def test_saved_form_and_labels(lm):
    lab = lab_of(lm, settings={"A": SamplingParams(top_k=5)})
    data, metadata = lab._repr_mimebundle_()
    assert metadata == {"image/png": {"alt": data["text/plain"]}} and "image/png" in data
    assert "top_k=5" in data["text/plain"] and f"5 of {N + 1} tokens can be drawn" in data["text/plain"]
    controls = [lab.prompt, lab.written, lab.choice, lab.seed, lab.count, lab.button, *lab.knobs.values()]
    assert all(control.description for control in controls)
    assert all(knob.continuous_update for knob in lab.knobs.values())
    assert not lab.prompt.continuous_update and not lab.written.continuous_update
    assert "course-lab" in lab._dom_classes


def test_texts_are_escaped():
    output = SimpleNamespace(text="<script>", finish_reason="stop")
    markup = texts_html({"<A>": (SamplingParams(seed=1), (output,))}, stale={"<A>": True})
    assert "<script>" not in markup and "<A>" not in markup and "seed 1" in markup
