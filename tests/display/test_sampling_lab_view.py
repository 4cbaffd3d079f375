"""What the sampling lab shows: each step of the chain against torch, and its words and markup."""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import SamplingParams
from course_lib.display.sampling_lab_view import (
    chain_html,
    chain_summary,
    chain_svg,
    chain_view,
    share,
    step_sentences,
    texts_html,
)
from course_lib.sampling import filter_logits

EVERY = SamplingParams(repetition_penalty=1.5, temperature=0.7, top_k=30, top_p=0.9, min_p=0.2)


def logits_of(*weights):
    return torch.tensor([weights], dtype=torch.float64).log()


def letters(*ids):
    """A tokenizer whose token i is the i-th letter."""
    return SimpleNamespace(decode_single_token_bytes=lambda id: bytes([97 + id]))


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


def test_texts_are_escaped():
    output = SimpleNamespace(text="<script>", finish_reason="stop")
    markup = texts_html({"<A>": (SamplingParams(seed=1), (output,))}, stale={"<A>": True})
    assert "<script>" not in markup and "<A>" not in markup and "seed 1" in markup
