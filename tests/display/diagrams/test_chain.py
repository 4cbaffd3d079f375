"""The line of a sampler: what each station leaves, and the token that is hit; its numbers are those of the sampler."""

import pytest
import torch
from well_drawn import check, hatched, rects, words

from course_lib import SamplingParams, load
from course_lib.display.diagrams import pocket
from course_lib.display.diagrams.chain import Station, sampler_chain
from course_lib.sampling import draw, filter_logits

COLUMNS, IDS = ["one", "two", "ten", "others"], [30, 10, 20]
STATIONS = [Station("the model", "", [0.5, 0.2, 0.1, 0.2]), Station("top-k 3", "three stay", [0.625, 0.25, 0.125, 0]),
            Station("top-p 0.8", "two reach it", [0.7142, 0.2858, 0, 0])]


def test_a_station_hatches_what_it_removes_and_no_later_one_shows_it():
    drawing = check(lambda: sampler_chain("a text", COLUMNS, IDS, STATIONS, 0.5))
    assert len(rects(drawing, "weights")) == 4 + 3 + 2
    third, fourth = sorted({left for left, *_ in rects(drawing, "weights")})[2:]
    assert [left for left, *_ in hatched(drawing)] == [fourth, third]
    assert [text for text in words(drawing) if text.endswith("%")] == [
        "50 %", "20 %", "10 %", "20 %", "62 %", "25 %", "12 %", "71 %", "29 %"]
    first, second, *_ = rects(drawing, "weights")
    assert first[3] / second[3] == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("u, chosen", [(0.0, "two"), (0.28, "two"), (0.29, "one"), (0.999, "one")])
def test_the_draw_is_in_the_order_of_the_ids(u, chosen):
    drawing = sampler_chain("a text", COLUMNS, IDS, STATIONS, u)
    (left, _, width, _), = rects(drawing, "mark")
    [(other, *_)] = [one for one in rects(drawing, "plain") if one[3] == 38]
    assert (other < left) == (chosen == "one")
    assert width == pytest.approx(430 * (0.7142 if chosen == "one" else 0.2858), abs=1)
    assert f"u = {u:.3g} picks {chosen}." in drawing.description


@pytest.mark.parametrize("changes", [
    {"columns": COLUMNS[:3]}, {"u": 1.0}, {"stations": STATIONS[:1]}, {"stations": [*STATIONS, STATIONS[1]]},
    {"stations": [STATIONS[0]._replace(shares=[0.5, 0.2, 0.1, 0.1]), *STATIONS[1:]]}])
def test_rows_that_are_none_are_refused(changes):
    with pytest.raises(ValueError, match="must be"):
        sampler_chain(**{"text": "a text", "columns": COLUMNS, "ids": IDS, "stations": STATIONS, "u": 0.5, **changes})


def test_the_stored_row_is_what_the_sampler_makes_of_it():
    lm = load("pocket", device="cpu", dtype=torch.float32)
    prompt, ids = lm.tokenizer.encode_prompt(pocket.CHAIN_TEXT), [id for _, id in pocket.CHAIN_TOKENS]
    assert [lm.tokenizer.decode([id]) for id in ids] == [text for text, _ in pocket.CHAIN_TOKENS]
    with torch.inference_mode():
        logits = lm.model(torch.tensor([prompt]))[:, -1].double()
    assert logits.topk(len(ids)).indices[0].tolist() == ids
    names = [*pocket.CHAIN_SETTINGS]
    for n, shares in enumerate(pocket.CHAIN_SHARES):
        params = SamplingParams(**{name: pocket.CHAIN_SETTINGS[name] for name in names[:n]})
        probs = filter_logits(logits, params, [prompt], [[]]).softmax(-1)
        here = probs[0, ids].tolist()
        assert [*here, 1 - sum(here)] == pytest.approx(shares, abs=0.00006)
        assert [q == 0 for q in here] == [q == 0 for q in shares[:-1]]
    assert lm.tokenizer.decode(draw(probs, torch.tensor([0.642], dtype=torch.float64)).tolist()) == " cou"
