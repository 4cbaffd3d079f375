"""Each sick engine has the fault that its diagnosis names, shows it in its chart, and is healthy in everything else."""

import pytest
import torch

from course_lib import SamplingParams, load
from course_lib.analysis.engine_chart import Answer, examine, first_difference
from course_lib.analysis.lever_runs import prompts
from course_lib.batch import generate_batch
from course_lib.classroom.sick_engines import ENGINES, FAULTS, PAGES, SLOTS, Trusting, healthy
from course_lib.engine import Engine

DIAGNOSIS = {"A": "stale pages", "B": "wrong scale", "C": "time stamp"}
PARAMS = SamplingParams(temperature=0, max_tokens=32)


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def asked(lm):
    return prompts(lm, 15)


@pytest.fixture(scope="module")
def control(lm, asked):
    return examine(healthy(lm), asked, PARAMS)


@pytest.fixture(scope="module")
def charts(lm, asked):
    return {letter: examine(make(lm), asked, PARAMS) for letter, make in ENGINES.items()}


def parted(chart, control):
    """Where the answers leave those of the healthy engine, by request."""
    found = {i: first_difference(*pair) for i, pair in enumerate(zip(chart.answers, control.answers))}
    return {i: place for i, place in found.items() if place is not None}


def hit_rate(chart):
    return chart.stats.prefix_hits / chart.stats.prefix_queries


def test_the_healthy_one_is_the_engine_and_loses_pages_too(lm, asked, control):
    alone = generate_batch(lm, asked, PARAMS, max_num_seqs=SLOTS)
    assert [answer.text for answer in control.answers] == [output.text for output in alone]
    assert control.stats.preemptions >= 3 and hit_rate(control) > 0.7
    assert sum(len(answer.preempted_at) for answer in control.answers) == control.stats.preemptions


def test_stale_pages_spoil_exactly_the_answers_that_lost_theirs_from_there_on(charts, control):
    a = charts["A"]
    lost = {i: answer.preempted_at[0] for i, answer in enumerate(a.answers) if answer.preempted_at}
    places = parted(a, control)
    assert places.keys() == lost.keys() and len(lost) >= 3 and all(lost[i] <= places[i] <= lost[i] + 3 for i in lost)
    assert abs(hit_rate(a) - hit_rate(control)) < 0.05 and a.stats.preemptions <= control.stats.preemptions + 1


def test_a_wrong_scale_spoils_everybody_from_the_first_words_on(charts, control):
    b = charts["B"]
    places = parted(b, control)
    assert len(places) >= 12 and sorted(places.values())[len(places) // 2] <= 2
    assert b.signs()["surprise, nats a token"] > 4 * control.signs()["surprise, nats a token"]
    assert abs(hit_rate(b) - hit_rate(control)) < 0.05
    assert any(not answer.preempted_at for i, answer in enumerate(b.answers) if i in places)


def test_a_time_stamp_shows_in_the_counters_and_in_no_text(charts, control):
    c = charts["C"]
    assert parted(c, control) == {} and c.stats.prefix_hits == 0
    assert c.signs()["tokens computed for each new one"] > 2 * control.signs()["tokens computed for each new one"]


def test_every_run_is_the_same(lm, asked, charts):
    for letter, make in ENGINES.items():
        again = examine(make(lm), asked, PARAMS)
        assert [answer.token_ids for answer in again.answers] == [answer.token_ids for answer in charts[letter].answers]
        assert again.stats == charts[letter].stats


def test_with_enough_pages_stale_ones_do_no_harm(lm, asked):
    """So the fault is in what comes after a preemption, and nowhere else."""
    engine = Engine(lm, max_num_seqs=SLOTS, num_blocks=5 * PAGES)
    engine.scheduler = Trusting(engine.blocks, max_num_seqs=SLOTS, max_num_batched_tokens=512)
    answers = examine(engine, asked, PARAMS).answers
    alone = generate_batch(lm, asked, PARAMS, max_num_seqs=SLOTS)
    assert [answer.text for answer in answers] == [output.text for output in alone]


def test_the_model_itself_stays_as_it_was(lm, asked, charts, control):
    assert [a.token_ids for a in examine(healthy(lm), asked, PARAMS).answers] == [a.token_ids for a in control.answers]


def test_every_engine_has_another_of_the_listed_faults():
    assert DIAGNOSIS.keys() == ENGINES.keys() and set(DIAGNOSIS.values()) < set(FAULTS) and len(FAULTS) == 7


# The chart


def test_a_chart_counts_what_happened(lm, asked):
    engine = Engine(lm, max_num_seqs=2, enable_prefix_caching=False)
    chart = examine(engine, asked[:3], SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))
    assert chart.written == 15 and [answer.finish_reason for answer in chart.answers] == ["length"] * 3
    assert chart.prompt_tokens == sum(map(len, asked[:3])) and chart.computed == chart.prompt_tokens + 3 * 4
    assert chart.stats.running == chart.stats.waiting == 0 and 0 < chart.peak_blocks <= 2 * 14
    firsts = [answer.ttft_s for answer in chart.answers]
    assert 0 < firsts[0] <= firsts[1] < firsts[2] < chart.seconds
    signs = chart.signs()
    assert signs["answers cut at max_tokens"] == 3 and signs["new tokens"] == 15 and signs["preemptions"] == 0
    assert signs["surprise, nats a token"] == pytest.approx(sum(a.surprise for a in chart.answers) / 3)


def test_requests_draw_with_seeds_of_their_own(lm, asked):
    params = SamplingParams(temperature=1.5, seed=3, max_tokens=8)
    one = examine(Engine(lm), [asked[0], asked[0]], params)
    assert one.answers[0].token_ids != one.answers[1].token_ids
    again = examine(Engine(lm), [asked[0]], params)
    assert again.answers[0].token_ids == one.answers[0].token_ids


def test_a_chart_needs_requests_and_an_idle_engine(lm, asked):
    engine = Engine(lm)
    with pytest.raises(ValueError, match="prompts = 0"):
        examine(engine, [], PARAMS)
    engine.add_request("x", asked[0], PARAMS)
    with pytest.raises(ValueError, match="idle"):
        examine(engine, asked[:1], PARAMS)


@pytest.mark.parametrize("one, other, place", [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1),
                                               ((1, 2), (1,), 1), ((), (), None), ((5,), (6,), 0)])
def test_where_two_answers_part(one, other, place):
    assert first_difference(*(Answer("", ids, "stop", 0.0, 0.0, ()) for ids in (one, other))) == place
