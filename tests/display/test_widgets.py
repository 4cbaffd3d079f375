"""What the widgets show, against torch and tiktoken; and that they stay usable whatever is typed."""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.config import ModelConfig, SamplingParams
from course_lib.display import views, widgets
from course_lib.display.views import (
    TokenView,
    distribution_html,
    distribution_summary,
    distribution_svg,
    distribution_view,
    token_summary,
    token_table,
    tokens_html,
    visible,
)
from course_lib.display.widgets import sampling_widget, tokenizer_widget
from course_lib.generate import generate
from course_lib.model import CausalLM
from course_lib.sampling import filter_logits
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

RANKS = train_bpe(["The cat sat on the mat because it was tired. What is gravity? The pull of masses."] * 2, 300)
N = len(RANKS)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {"<|endoftext|>": N, "<|im_start|>": N + 1, "<|im_end|>": N + 2},
                      chat_template=POCKET_CHAT_TEMPLATE)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def lm():
    config = ModelConfig(vocab_size=N + 3, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    model = CausalLM(config).eval()
    model.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.norm.weight.mul_(20)  # logits a few units apart, as a trained model's are
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=config, eos_token_ids=frozenset({N}))


def logits_of(V, seed=0):
    return 3 * torch.randn(V, generator=torch.Generator().manual_seed(seed))


def items(markup):
    """(kind, id, piece, bytes) of each box."""
    box = r'<li(?: class="(\w+)")? data-id="(\d+)"><bdi>(.*?)</bdi>.*?<span class="bytes">(.*?)</span></li>'
    found = re.findall(box, markup)
    plain = [[html.unescape(re.sub("<[^>]*>", "", part)) for part in row] for row in found]
    return [(kind, int(id), piece, hexes) for kind, id, piece, hexes in plain]


# The pieces of a text


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.encoding], ids=["ours", "tiktoken"])
@pytest.mark.parametrize("text", ["", "What is gravity?", "日本\n\tx  ", "e\u0301👩‍🚀", "a\ud800b", "<|im_end|>"])
def test_token_table_agrees_with_tiktoken(tokenizer, text):
    tokens = token_table(tokenizer, text)
    assert [token.id for token in tokens] == TOKENIZER.encoding.encode_ordinary(text)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert b"".join(token.bytes for token in tokens) == whole.encode()
    assert not any(token.special for token in tokens), "the text of a special token is data"
    for token in tokens:
        assert token.text is None or token.text.encode() == token.bytes
        assert (token.text is None) == ("\ufffd" in token.bytes.decode(errors="replace")
                                        and b"\xef\xbf\xbd" not in token.bytes)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.encoding], ids=["ours", "tiktoken"])
def test_special_tokens_only_when_allowed(tokenizer):
    text = "a<|im_end|>b<|endoftext|>"
    everything = token_table(tokenizer, text, allowed_special="all")
    assert [(token.id, token.special, token.text) for token in everything] == [
        (97, False, "a"), (N + 2, True, "<|im_end|>"), (98, False, "b"), (N, True, "<|endoftext|>")]
    some = token_table(tokenizer, text, allowed_special=["<|endoftext|>"])
    assert [token.id for token in some if token.special] == [N]
    assert ("special", N + 2, "<|im_end|>", "special token") in items(tokens_html(everything))


def test_visible_leaves_nothing_unseen():
    assert visible(" a\t\r\n") == "␣a⇥⟨U+000D⟩↵"
    assert visible("\u00a0\u200d\u202e\ue000") == "⟨U+00A0⟩⟨U+200D⟩⟨U+202E⟩⟨U+E000⟩"
    assert visible("\u0301") == "◌\u0301"
    assert visible(b" " + "日".encode()[:2]) == "␣⟨E6⟩⟨97⟩"
    assert visible("é日👩".encode()) == "é日👩"


def test_boxes_hold_piece_id_and_bytes():
    tokens = token_table(TOKENIZER, "What is\n日")
    expected = [("" if t.text is not None else "part", t.id, visible(t.bytes), t.bytes.hex(" ").upper())
                for t in tokens]
    markup = tokens_html(tokens)
    assert items(markup) == expected and len(expected) > 4
    assert f'data-tokens="{len(tokens)}" data-bytes="11"' in markup
    long = tokens_html([TokenView(0, "abcdefghi", b"abcdefghi", special=False)])
    assert "<span>61 62 63 64</span> <span>65 66 67 68</span> <span>69</span>" in long


def test_summary_counts():
    assert token_summary([]) == "0 tokens, 0 bytes"
    tokens = token_table(TOKENIZER, "日a")
    assert token_summary(tokens) == "4 tokens, 4 bytes, 1.00 bytes per token"
    assert token_summary(tokens[-1:]) == "1 token, 1 byte, 1.00 bytes per token"


@given(st.text(alphabet=st.sampled_from("<>&\"'/=a scriptonerror\x00\n日"), max_size=30))
def test_whatever_is_typed_stays_text(text):
    markup = tokens_html(token_table(TOKENIZER, text))
    root = ElementTree.fromstring(markup)
    assert {element.tag for element in root.iter()} <= {"div", "style", "p", "b", "ol", "li", "bdi", "i", "span"}
    names = {name for element in root.iter() for name in element.attrib}
    assert names <= {"class", "role", "tabindex", "aria-label", "data-id", "data-tokens", "data-bytes"}


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"' onload='x'",
                                  "&lt;b&gt;"])
def test_markup_in_text_is_escaped_everywhere(text, lm):
    assert "<script" not in tokens_html(token_table(TOKENIZER, text)) and "<img" not in tokens_html([], notice=text)
    output = SimpleNamespace(text=text, token_ids=(1, 2), finish_reason="stop")
    assert html.escape(text) in widgets.completion_html(output)
    message = widgets.Message()
    with message:
        raise ValueError(text)
    assert html.escape(text) in message.value
    shouting = SimpleNamespace(decode_single_token_bytes=lambda id: text.encode())
    ElementTree.fromstring(distribution_svg(distribution_view(logits_of(5), SamplingParams()), shouting))


def test_long_texts_are_cut_and_say_so():
    tokens = token_table(TOKENIZER, "日" * 200)
    markup = tokens_html(tokens, limit=30)
    assert len(items(markup)) == 30 and "The first 30 of 600 tokens are drawn." in markup
    assert 'data-tokens="600"' in markup and "600 tokens" in markup
    live = tokenizer_widget({"tiny": TOKENIZER}, "a")
    most, picture = widgets.MAX_CHARACTERS, live.children[-1]
    live.children[0].value = "b " * most
    assert f"The first {most:,} of {2 * most:,} characters" in picture.value
    assert f'data-bytes="{most}"' in picture.value


# A next-token distribution


@pytest.mark.parametrize("params", [
    SamplingParams(), SamplingParams(temperature=0.5), SamplingParams(temperature=0), SamplingParams(top_k=7),
    SamplingParams(temperature=1.7, top_p=0.8), SamplingParams(min_p=0.1, top_k=20, temperature=0.9)], ids=repr)
def test_distribution_against_torch(params):
    logits = logits_of(97)
    view = distribution_view(logits, params)
    expected = torch.softmax(logits.double(), -1)
    assert view.ids.tolist() == sorted(range(97), key=lambda i: (-expected[i].item(), i))
    torch.testing.assert_close(view.before, expected[view.ids], rtol=0, atol=1e-12)
    filtered = filter_logits(logits[None], params)[0]
    torch.testing.assert_close(view.after, torch.softmax(filtered, -1).double()[view.ids], rtol=0, atol=1e-6)
    assert view.kept.tolist() == filtered.isfinite()[view.ids].tolist()
    assert view.n_kept == filtered.isfinite().sum()
    assert view.kept_mass == pytest.approx(expected[filtered.isfinite()].sum().item(), abs=1e-9)
    assert view.kept_mass + view.cut_mass == pytest.approx(1, abs=1e-12)
    hot = torch.softmax(logits.double() / (params.temperature or 1e-9), -1)
    assert view.shaped_kept_mass == pytest.approx(hot[filtered.isfinite()].sum().item(), abs=1e-6)
    torch.testing.assert_close(view.after * view.shaped_kept_mass, view.shaped * view.kept, rtol=0, atol=1e-6)
    assert view.tail(10) == (pytest.approx(view.before[10:].sum()), pytest.approx(view.after[10:].sum()))


def test_ties_show_the_tokens_that_are_kept_first():
    view = distribution_view(torch.tensor([1.0, 2, 2, 2, 3]), SamplingParams(top_k=3))
    assert view.ids.tolist() == [4, 1, 2, 3, 0] and view.kept.tolist() == [True, True, True, False, False]


def test_penalties_reach_the_filter_with_the_ids():
    params, logits = SamplingParams(repetition_penalty=1.5), logits_of(20)
    view = distribution_view(logits, params, prompt_ids=[3, 4], output_ids=[5])
    expected = filter_logits(logits[None], params, [[3, 4]], [[5]])[0].double().softmax(-1)
    torch.testing.assert_close(view.after, expected[view.ids], rtol=0, atol=1e-7)


def drops_a_token(logits, params):
    return logits[:, 1:]


def removes_all(logits, params):
    return torch.full_like(logits, -torch.inf)


def makes_nan(logits, params):
    return logits * torch.nan


def in_place(logits, params):
    logits[:, 1:] = -torch.inf
    return logits


@pytest.mark.parametrize("filter, words", [(drops_a_token, r"\(1, 19\)"), (removes_all, "one token must survive"),
                                           (makes_nan, "largest of the filter.*nan")])
def test_a_filter_that_returns_no_distribution_is_named(filter, words):
    with pytest.raises(ValueError, match=words):
        distribution_view(logits_of(20), SamplingParams(), filter=filter)


def test_shapes():
    logits = logits_of(20)
    assert distribution_view(logits[None], SamplingParams()).before.equal(
        distribution_view(logits, SamplingParams()).before)
    with pytest.raises(ValueError, match=r"\(2, 10\)"):
        distribution_view(logits.view(2, 10), SamplingParams())


def test_summary_states_kept_and_cut_mass():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    cases = {SamplingParams(): "All 4 tokens can be drawn.",
             SamplingParams(top_k=3): "3 of 4 tokens can be drawn, with 95.0 % of the model's probability. "
                                      "The other 1 token, 5.0 % together, is cut.",
             SamplingParams(top_k=2, temperature=0.5): "2 of 4 tokens can be drawn, with 80.0 % of the model's "
             "probability (93.2 % at temperature 0.5). The other 2 tokens, 20.0 % together, are cut."}
    for params, words in cases.items():
        assert distribution_summary(distribution_view(logits, params), params) == words


def rows_of(svg):
    """Texts and bar widths of the left half, row by row."""
    root = ElementTree.fromstring(svg.replace('xmlns="http://www.w3.org/2000/svg" ', ""))
    texts = [(element.get("class"), float(element.get("y")), element.text) for element in root.iter("text")]
    widths = {name: [float(e.get("width")) for e in root.iter("rect") if name in e.get("class").split()
                     and float(e.get("x")) == views.BAR_START] for name in ("before", "after", "cut")}
    return root, texts, widths


def test_svg_draws_the_numbers():
    logits = torch.full((256,), -8.0)
    logits[[65, 66, 67]] = torch.tensor([0.5, 0.3, 0.1]).log()
    params = SamplingParams(top_k=2)
    view = distribution_view(logits, params)
    root, texts, widths = rows_of(distribution_svg(view, TOKENIZER, top=4))
    written = [text for _, _, text in texts]
    assert {"A", "B", "C", "other 252", "cut", "2 kept, 254 cut", "all 256 tokens, by rank"} <= set(written)
    assert root.get("role") == "img" and "Likeliest: A" in root.get("aria-label")
    assert root.get("data-kept") == "2" and float(root.get("data-kept-mass")) == pytest.approx(view.kept_mass, abs=1e-6)
    before = [*view.before[:4].tolist(), view.tail(4)[0]]
    after = [*view.after[:4].tolist(), view.tail(4)[1]]
    scale = views.BAR_WIDTH / max(before + after)
    assert widths["before"] == pytest.approx([max(p * scale, 0.5) for p in before], abs=0.06)
    assert widths["after"] == pytest.approx([p * scale for p in after], abs=0.06)
    assert len(widths["cut"]) == 3, "C, the fourth, and all others"
    assert written.count("cut") == 3, "said in words, too"


@pytest.mark.parametrize("V", [1, 2, 15, 16, 5000])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_p=0.5)],
                         ids=repr)
def test_svg_of_any_size_stays_inside(V, params):
    logits = logits_of(V)
    logits[V // 2 :] = logits[: V - V // 2] * 30  # down to probabilities that are 0
    tokenizer = SimpleNamespace(decode_single_token_bytes=lambda id: b"<&\xff long name %d" % id)
    svg = distribution_svg(distribution_view(logits, params), tokenizer)
    root, texts, _ = rows_of(svg)
    height = float(root.get("viewBox").split()[3])
    numbers = [float(x) for path in root.iter("path") for x in re.findall(r"-?[\d.]+", path.get("d"))]
    assert "nan" not in svg and numbers and min(numbers) >= 0 and max(numbers) <= 840
    assert all(0 < y < height for _, y, _ in texts)
    assert all(float(r.get("width")) >= 0 for r in root.iter("rect"))
    assert len(svg) < 20_000


def test_the_line_to_copy_is_the_params():
    params = SamplingParams(temperature=0.7, top_k=5, seed=3)
    markup = distribution_html(distribution_view(logits_of(300), params), params, TOKENIZER)
    line = html.unescape(re.search('<code class="params">(.*?)</code>', markup)[1])
    assert eval(line, {"SamplingParams": SamplingParams}) == params


# The widgets


def params_shown(panel):
    return html.unescape(re.search('<code class="params">(.*?)</code>', panel.picture.value)[1])


def text_shown(panel):
    return html.unescape(re.search(r'class="completion".*?>(.*)</p>', panel.text.value, re.S)[1])


def test_tokenizer_widget_follows_text_choice_and_box():
    only_bytes = Tokenizer("b", POCKET_PATTERN, train_bpe([], 256), {})
    live = tokenizer_widget({"ours": TOKENIZER, "bytes": only_bytes}, "The cat")
    box, row, message, picture = live.children
    choice, control = row.children
    assert items(picture.value) == items(tokens_html(token_table(TOKENIZER, "The cat")))
    box.value = "The mat<|im_end|>"
    assert items(picture.value) == items(tokens_html(token_table(TOKENIZER, box.value)))
    control.value = True
    assert items(picture.value)[-1][:2] == ("special", N + 2)
    choice.value = "bytes"
    assert 'data-tokens="17"' in picture.value
    assert box.continuous_update and message.value == ""
    assert all(knob.description for knob in (box, choice, control))


def test_sampling_widget_shows_what_generate_gives(lm):
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


def test_saved_form_is_a_picture_of_the_default_setting(lm):
    panel = sampling_widget(lm, "The cat", params=SamplingParams(top_k=5, seed=0), max_tokens=2)
    live = tokenizer_widget({"tiny": TOKENIZER}, "The cat\n日")
    for widget in (panel, live):
        data, metadata = widget._repr_mimebundle_()
        assert set(data) == {"text/plain", "image/png", WIDGET_VIEW}
        assert metadata == {"image/png": {"alt": data["text/plain"]}}
    first = panel._repr_mimebundle_()[0]
    assert "top_k=5" in first["text/plain"] and f"5 of {N + 3} tokens can be drawn" in first["text/plain"]
    panel.knobs["top_k"].value = 9
    again = panel._repr_mimebundle_()[0]
    assert {**again, WIDGET_VIEW: 0} == {**first, WIDGET_VIEW: 0}
    assert "'The cat\\n日'" in live._repr_mimebundle_()[0]["text/plain"]


def test_hooks_for_styles_and_browser_tests(lm):
    assert "course-sampling" in sampling_widget(lm, "The", max_tokens=1)._dom_classes
    assert "course-tokenizer" in tokenizer_widget({"tiny": TOKENIZER}, "")._dom_classes
    with pytest.raises(ValueError, match="tokenizers"):
        tokenizer_widget({}, "a")
    with pytest.raises(ValueError, match="a string or chat messages"):
        sampling_widget(lm, [1, 2])
