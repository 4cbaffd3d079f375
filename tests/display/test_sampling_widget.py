"""The sampling widget: its knobs against `generate`; and that it stays usable whatever is typed."""

import html
import re
from types import SimpleNamespace

import pytest
import torch
from saved_form import picture_of, still_of
from tiny_lm import TOKENIZER, N, confident_lm

from course_lib.config import SamplingParams
from course_lib.display.sampling_view import distribution_svg, distribution_view
from course_lib.display.sampling_widget import sampling_widget
from course_lib.generate import generate


@pytest.fixture(scope="module")
def lm():
    return confident_lm()


def params_shown(panel):
    return html.unescape(re.search('<code class="params">(.*?)</code>', panel.picture.value)[1])


def text_shown(panel):
    return html.unescape(re.search(r'class="completion".*?>(.*)</p>', panel.text.value, re.S)[1])


def test_the_widget_shows_what_generate_gives(lm):
    prompt = "The cat sat"
    params = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, seed=3, repetition_penalty=1.2,
                            presence_penalty=1.5)
    panel = sampling_widget(lm, prompt, params=params, max_tokens=9)
    for name, value in [("temperature", 1.3), ("top_k", 9), ("top_p", 0.5), ("seed", 11), ("temperature", 0.0)]:
        panel.knobs[name].value = value
        assert getattr(panel.params, name) == value and panel.params.repetition_penalty == 1.2
        expected = generate(lm, prompt, panel.params)
        assert len(expected.token_ids) == 9 and text_shown(panel) == expected.text
        assert params_shown(panel) == repr(panel.params)
        logits = lm.model(torch.tensor([TOKENIZER.encode(prompt)]), logits_to_keep=1)[:, -1]
        view = distribution_view(logits, panel.params, prompt_ids=TOKENIZER.encode(prompt))
        assert distribution_svg(view, TOKENIZER) in panel.picture.value
    panel.prompt.value = "What is"
    assert text_shown(panel) == generate(lm, "What is", panel.params).text


def test_the_model_runs_over_a_prompt_once(lm):
    panel = sampling_widget(lm, "The cat", max_tokens=1)
    panel.lm = SimpleNamespace(**{**vars(lm), "model": None})
    widgets_text = panel.text.value
    with pytest.raises(AttributeError):
        panel.knobs["top_k"].value = 3
    assert 'data-kept="3"' in panel.picture.value, "the picture needs no model and does not wait for the text"
    assert panel.text.value == widgets_text


def test_messages_go_through_the_template(lm):
    messages = [{"role": "user", "content": "The cat"}]
    params = SamplingParams(seed=1, max_tokens=4)
    panel = sampling_widget(lm, messages, params=params, max_tokens=4)
    assert panel.prompt.value == "The cat" and text_shown(panel) == generate(lm, messages, params).text
    panel.prompt.value = "What<|im_end|>"
    assert panel.prompt_ids == TOKENIZER.apply_chat_template([{"role": "user", "content": "What<|im_end|>"}],
                                                             add_generation_prompt=True)
    assert messages == [{"role": "user", "content": "The cat"}]


def in_place(logits, params):
    logits[:, 1:] = -torch.inf
    return logits


def test_a_readers_filter_decides_picture_and_text(lm):
    def only_token_98(logits, params):
        return torch.where(torch.arange(logits.shape[1]) == 98, 0.0, -torch.inf)[None]

    panel = sampling_widget(lm, "The cat", max_tokens=5, filter=only_token_98)
    assert text_shown(panel) == "bbbbb" and 'data-kept="1"' in panel.picture.value
    before = sampling_widget(lm, "The cat", max_tokens=5, filter=in_place)
    cached = before.logits.clone()
    before.knobs["seed"].value = 4
    assert before.logits.equal(cached), "a filter that works in place must not reach the cached logits"


@pytest.mark.parametrize("prompt, words", [("", "at least one token"), ("cat " * 200, "max_position_embeddings = 64")])
def test_a_bad_prompt_is_answered_and_the_widget_goes_on(prompt, words, lm):
    panel = sampling_widget(lm, "The cat", max_tokens=3)
    picture = panel.picture.value
    panel.prompt.value = prompt
    assert words in panel.message.value and 'role="alert"' in panel.message.value and "\n" not in panel.message.value
    assert panel.picture.value == picture
    panel.knobs["top_k"].value = 2
    assert 'data-kept="2"' in panel.picture.value, "the last good prompt is still there"
    panel.prompt.value = "What is"
    assert panel.message.value == ""
    with pytest.raises(ValueError, match=words):
        sampling_widget(lm, prompt)


def test_any_other_error_is_shown_and_not_swallowed(lm):
    def broken(logits, params):
        if params.top_k:
            raise IndexError("index 7 is\nout of range")
        return logits

    panel = sampling_widget(lm, "The cat", max_tokens=3, filter=broken)
    with pytest.raises(IndexError):
        panel.knobs["top_k"].value = 7
    assert "IndexError: index 7 is out of range" in panel.message.value
    panel.knobs["top_k"].value = 0
    assert panel.message.value == ""


def test_sliders_stretch_to_the_setting_and_are_labelled(lm):
    params = SamplingParams(temperature=3.0, top_k=400, top_p=0.01)
    panel = sampling_widget(lm, "The cat", params=params, max_tokens=2)
    assert panel.params == SamplingParams(temperature=3.0, top_k=400, top_p=0.01, seed=0, max_tokens=2)
    for knob in panel.knobs.values():
        assert knob.description and not getattr(knob, "continuous_update", False)
    assert not panel.prompt.continuous_update
    panel.knobs["temperature"].value = 0.1 + 0.2
    assert params_shown(panel).startswith("SamplingParams(temperature=0.3,")


def test_the_caption_of_the_saved_form_says_the_setting_and_what_was_written(lm):
    params = SamplingParams(temperature=0.8, top_k=5, seed=3, max_tokens=4)
    panel = sampling_widget(lm, "The cat", params=params, max_tokens=4)
    panel.knobs["temperature"].value = 0.3
    written = generate(lm, "The cat", params).text.strip()
    told = f"At temperature 0.8, top-p 1, top-k 5 and seed 3 the model writes: {written!r}. A still of the widget."
    [caption] = re.findall("<figcaption>(.*)</figcaption>", panel._repr_mimebundle_()[0]["text/html"], re.S)
    assert html.unescape(caption).startswith(told)


def test_saved_form_is_a_picture_of_the_default_setting(lm):
    panel = sampling_widget(lm, "The cat", params=SamplingParams(top_k=5, seed=0), max_tokens=2)
    first, alt = picture_of(panel), still_of(panel)
    assert "top_k=5" in alt and f"5 of {N + 3} tokens can be drawn" in alt
    panel.knobs["top_k"].value = 9
    assert picture_of(panel) == first


def test_hooks_for_styles_and_browser_tests(lm):
    assert "course-sampling" in sampling_widget(lm, "The", max_tokens=1)._dom_classes
    with pytest.raises(ValueError, match="a string or chat messages"):
        sampling_widget(lm, [1, 2])
