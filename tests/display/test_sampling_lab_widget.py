"""The sampling laboratory: a widget whose pictures follow the knobs, and that runs the model only when asked."""

import base64
import html
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from saved_form import picture_of, still_of
from tiny_lm import TOKENIZER, N, confident_lm

from course_lib.config import SamplingParams
from course_lib.display.sampling_lab_view import chain_svg, chain_view
from course_lib.display.sampling_lab_widget import KNOBS, sampling_lab
from course_lib.display.sampling_widget import continuation, last_logits
from course_lib.generate import generate
from course_lib.sampling import filter_logits

A, B = SamplingParams(temperature=0.5), SamplingParams(temperature=1.5, top_k=400)


@pytest.fixture(scope="module")
def lm():
    return confident_lm()


def lab_of(lm, prompt="The cat", settings=None, **kwargs):
    return sampling_lab(lm, prompt, settings or {"A": A, "B": B}, **{"n": 2, "max_tokens": 4, **kwargs})


def texts_of(markup):
    """The continuations of each column, as plain text."""
    found = re.findall(r'<section class="(\w+)" data-column="(\w+)".*?<ol>(.*?)</ol>', markup, re.S)
    texts = {name: re.findall(r"</span> (.*?)<span", part, re.S) for _, name, part in found}
    return {name: kind for kind, name, _ in found}, {name: list(map(html.unescape, texts[name])) for name in texts}


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
    assert f'data-kept="{N + 3} 1"' in lab.picture.value


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
    lab = lab_of(lm, settings={"A": SamplingParams(top_k=5), "B": SamplingParams(temperature=2.0, min_p=0.1)})
    alt = still_of(lab)
    assert "A, top_k=5: " in alt and f"5 of {N + 3} tokens can be drawn" in alt and "B, temperature=2, min_p=0.1" in alt
    [encoded] = re.findall(r"data:image/svg\+xml;base64,([^\"]*)", picture_of(lab))
    svg = ElementTree.fromstring(base64.b64decode(encoded))
    a, b = svg.findall(".//{*}svg")
    assert a.get("data-stages") == "model top-k" and b.get("data-stages") == "model temperature min-p"
    assert float(a.get("y")) + float(a.get("height")) < float(b.get("y"))
    assert float(b.get("y")) + float(b.get("height")) <= float(svg.get("viewBox").split()[3])
    assert [float(part.get("viewBox").split()[3]) for part in (a, b)] == [float(part.get("height")) for part in (a, b)]
    controls = [lab.prompt, lab.written, lab.choice, lab.seed, lab.count, lab.button, *lab.knobs.values()]
    assert all(control.description for control in controls)
    assert all(knob.continuous_update for knob in lab.knobs.values())
    assert not lab.prompt.continuous_update and not lab.written.continuous_update
    assert "course-lab" in lab._dom_classes
