"""A next-token distribution before and after the filters, against torch; and how it is drawn."""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from tiny_lm import TOKENIZER

from course_lib.config import SamplingParams
from course_lib.display import sampling_view
from course_lib.display.sampling_view import (
    distribution_html,
    distribution_summary,
    distribution_svg,
    distribution_view,
)
from course_lib.sampling import filter_logits


def logits_of(V, seed=0):
    return 3 * torch.randn(V, generator=torch.Generator().manual_seed(seed))


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
                     and float(e.get("x")) == sampling_view.BAR_START] for name in ("before", "after", "cut")}
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
    scale = sampling_view.BAR_WIDTH / max(before + after)
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
