"""Settings of the levers: which there are, what is measured, who is beaten by nobody, what customers say."""

from dataclasses import replace

import pytest
import torch

from course_lib import SamplingParams, load
from course_lib.analysis import lever_runs
from course_lib.analysis.customers import CUSTOMERS, WANTED, Customer, Limit, customers_table, machines, score
from course_lib.analysis.lever_runs import Bench, Timing, copied_bytes, laps, prompts
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.lever_stored import COMPILED
from course_lib.analysis.levers import BETTER, PLAIN, SETTINGS, Row, best, dollars_per_million, measure, pareto
from course_lib.checkpoint import LanguageModel, save
from course_lib.compiled import find_compiler
from course_lib.config import ModelConfig
from course_lib.fast_layer import packed_weights
from course_lib.model import CausalLM
from course_lib.quantize import stored_bytes

DRAWN = SamplingParams(temperature=0.8, seed=0)


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def bench(lm):
    return Bench(lm, questions=6)


def row(name="int8", **changes):
    """A row with easy numbers."""
    setting = {"plain": PLAIN, "counts": Setting(draft="counts")}.get(name) or Setting(name)
    numbers = dict(tokens_per_s=100.0, ttft_s=0.1, gap_s=0.01, weight_bytes=800, cache_bytes=200, perplexity=3.0,
                   capitals=1.0, tool_calls=0.9, dollars_per_million=1.0)
    return Row(setting, **numbers | changes)


# Settings


@pytest.mark.parametrize("options", [
    {"precision": "int2"}, {"kv_cache_dtype": "fp8"}, {"draft": "eagle"}, {"max_num_seqs": 0},
    {"draft": "counts", "max_num_seqs": 8}, {"draft": "counts", "kv_cache_dtype": "int8"},
    {"kv_cache_dtype": "int8", "enable_prefix_caching": True}, {"compiled": True, "precision": "int8"},
    {"compiled": True, "draft": "counts"}, {"kv_cache_dtype": "int8", "params": DRAWN}])
def test_combinations_that_do_not_exist_are_refused(options):
    with pytest.raises(ValueError, match="is not allowed"):
        Setting(**options)


def test_a_setting_says_what_is_pulled():
    assert Setting("int4", max_num_seqs=32, enable_prefix_caching=True).name == "int4 + batch 32 + prefix reuse"
    assert Setting("int8", params=DRAWN).name == "int8 + temperature 0.8"
    assert Setting(compiled=True).name == "compiled"


@pytest.mark.parametrize("knobs, words", [
    ({"temperature": 0.8, "top_p": 0.95}, "temperature 0.8, top_p 0.95"), ({"temperature": 1.0}, "temperature 1"),
    ({"temperature": 1.0, "top_k": 40, "min_p": 0.05}, "temperature 1, top_k 40, min_p 0.05"),
    ({"temperature": 0, "repetition_penalty": 1.2}, "repetition_penalty 1.2"),
    ({"temperature": 0, "presence_penalty": 0.5, "frequency_penalty": 1}, "presence_penalty 0.5, frequency_penalty 1"),
    ({"temperature": 0, "seed": 3, "max_tokens": 5}, "")])
def test_every_knob_of_sampling_that_is_turned_is_in_the_name(knobs, words):
    setting = Setting(params=SamplingParams(**knobs))
    assert setting.sampling == words and setting.name == (words or "plain")


def test_settings_of_sampling_do_not_pass_for_each_other():
    cut = replace(DRAWN, top_p=0.95)
    assert len({Setting(params=params).name for params in (DRAWN, cut, replace(cut, top_k=5))}) == 3


def test_the_list_pulls_each_lever_alone_first():
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names) and names[0] == "plain"
    for lever in ("bfloat16", "int8", "int4", "int8 cache", "draft: counts", "batch 32", "prefix reuse",
                  "temperature 0.8", "temperature 0.8, top_p 0.95"):
        assert lever in names
    assert sum(" + " in name for name in names) >= 6


def test_only_what_changes_the_numbers_counts_as_numerics():
    assert Setting(draft="counts").numerics == Setting(max_num_seqs=8).numerics == PLAIN.numerics
    assert len({one.numerics for one in (PLAIN, Setting("int8"), Setting(kv_cache_dtype="int8"),
                                         Setting(params=DRAWN))}) == 4


# Runs


def test_groups_of_int4_divide_the_inputs_of_every_matrix(lm):
    assert lever_runs.group_size(lm.config) == 32
    odd = replace(lm.config, hidden_size=48, intermediate_size=100, num_attention_heads=6, num_key_value_heads=2,
                  head_dim=8)
    assert lever_runs.group_size(odd) == 4


def test_prompts_share_a_beginning_and_nothing_else(lm):
    asked = prompts(lm, 9)
    shared = next(i for i, column in enumerate(zip(*asked)) if len(set(column)) > 1)
    assert len({tuple(ids) for ids in asked}) == 9 and shared > 100
    assert asked[:4] == prompts(lm, 4), "more questions begin with the same ones"


@pytest.mark.parametrize("setting", [PLAIN, Setting("int8"), Setting(kv_cache_dtype="int8"), Setting(draft="counts"),
                                     Setting(max_num_seqs=8), Setting(enable_prefix_caching=True)],
                         ids=lambda setting: setting.name)
def test_each_kind_of_run_is_timed(bench, monkeypatch, setting):
    monkeypatch.setattr(lever_runs, "COUNTED", 3000)
    monkeypatch.setattr(lever_runs, "ALONE", 2)
    tokens_per_s, ttft_s, gap_s = bench.time(setting)
    assert tokens_per_s > 1 and 0 < ttft_s < 60 and 0 < gap_s < 60


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler uses what PyTorch gives up
def test_a_compiled_step_is_timed(lm, tmp_path, monkeypatch):
    """On one thin layer, since compiling takes nearly all of the time; the texts are the plain model's."""
    config = ModelConfig(vocab_size=lm.config.vocab_size, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
    model = CausalLM(config).eval()
    model.init_weights(torch.Generator().manual_seed(0))
    thin = LanguageModel(model, lm.tokenizer, config, frozenset(), str(tmp_path / "thin"))
    save(thin, tmp_path / "thin")
    monkeypatch.setattr(lever_runs, "ALONE", 2)
    rows = measure(thin, [PLAIN, Setting(compiled=True)], rounds=1, questions=1)
    plain, compiled = rows
    assert compiled.tokens_per_s > 100, "compiling is over when the clock starts"
    assert [getattr(compiled, name) for name in ("nbytes", "perplexity", "capitals")] == \
        [getattr(plain, name) for name in ("nbytes", "perplexity", "capitals")]


def test_every_setting_writes_the_tokens_that_it_should(bench, monkeypatch):
    """What is timed is generation: with a draft or in a batch the tokens are those of the plain engine."""
    monkeypatch.setattr(lever_runs, "COUNTED", 3000)
    params = SamplingParams(temperature=0, max_tokens=12)
    ids = bench.asked(1)[0]
    plain, drafted, rounded = ([step.token_id for step in lever_runs.steps_of(one, bench.drafts)(bench.lm, ids, params)]
                               for one in (PLAIN, Setting(draft="counts"), Setting(kv_cache_dtype="int8")))
    assert plain == drafted == rounded and len(plain) == 12


def test_prefix_reuse_reads_the_shared_beginning_once(bench, monkeypatch):
    engines = []
    make = Bench.engine
    monkeypatch.setattr(Bench, "engine", lambda self, setting: engines.append(make(self, setting)) or engines[-1])
    for reuse in (True, False):
        bench.time(Setting(max_num_seqs=8, enable_prefix_caching=reuse))
    with_reuse, without = (engine.stats() for engine in engines)
    assert with_reuse.prefix_hits > 0.5 * with_reuse.prefix_queries and without.prefix_hits == 0


def test_bytes_are_those_of_the_objects(bench, lm):
    settings = (PLAIN, Setting("int8"), Setting("int8", kv_cache_dtype="int8"))
    plain, int8, both = map(bench.held_bytes, settings)
    assert plain == (stored_bytes(lm.model), 1024 * 5120)
    assert 3.8 < plain[0] / int8[0] < 4 and int8[1] == plain[1] and both[0] == int8[0] and both[1] < 0.3 * int8[1]
    batch = bench.held_bytes(Setting(max_num_seqs=8))
    assert batch[1] == 8 * plain[1] and 1.9 < batch[0] / plain[0] <= 2, "the engine keeps a packed copy of the weights"
    assert copied_bytes(lm.model) == 0
    with packed_weights(lm.model):
        assert copied_bytes(lm.model) > 0.9 * stored_bytes(lm.model)


def test_quality_is_measured_once_for_each_numerics(bench, monkeypatch):
    asked = []
    original = Bench.right
    monkeypatch.setattr(Bench, "right", lambda self, *args: asked.append(args) or original(self, *args))
    first = bench.quality(PLAIN)
    assert bench.quality(Setting(draft="counts")) is first and bench.quality(Setting(max_num_seqs=8)) is first
    assert len(asked) == 2  # capitals and calls
    rounded, drawn = bench.quality(Setting(kv_cache_dtype="int8")), bench.quality(Setting(params=DRAWN))
    assert rounded.perplexity != first.perplexity == drawn.perplexity and len(asked) == 6
    assert abs(rounded.perplexity / first.perplexity - 1) < 0.01


def test_penalties_at_temperature_0_are_not_the_plain_choice(bench, monkeypatch):
    asked = []
    monkeypatch.setattr(lever_runs, "sampled_answers", lambda lm, questions, params: asked.append(params) or [True])
    strict = Setting(params=SamplingParams(temperature=0, repetition_penalty=1.3))
    assert bench.right(bench.lm, strict, []) == [True] and asked == [strict.params]


def test_laps_are_seconds_between_steps(monkeypatch):
    times = iter([1.0, 3.0, 3.5])
    monkeypatch.setattr(lever_runs, "now", lambda: next(times))
    assert laps(iter("ab")) == [2.0, 0.5]


# The table


def test_a_table_is_measured(lm, monkeypatch):
    monkeypatch.setattr(lever_runs, "ALONE", 2)
    settings = [PLAIN, Setting("int8")]
    rows = measure(lm, settings, dollars_per_hour=3.6, rounds=1, questions=2)
    assert [row.setting for row in rows] == settings
    for one in rows:
        assert one.dollars_per_million == pytest.approx(1000 / one.tokens_per_s)
        assert 2 < one.perplexity < 4 and 0 <= one.capitals <= 1 and one.nbytes == one.weight_bytes + one.cache_bytes


def test_the_first_setting_has_two_turns_in_a_round(lm, monkeypatch):
    other, turns = Setting("int8"), []
    monkeypatch.setattr(Bench, "time", lambda _, setting: turns.append(setting) or Timing(len(turns), 1.0, 1.0))
    rows = measure(lm, [PLAIN, other], rounds=2, questions=1)
    assert turns == 2 * [PLAIN, other, PLAIN] and [row.tokens_per_s for row in rows] == [6, 5]


@pytest.mark.parametrize("options", [{"settings": []}, {"settings": [PLAIN, Setting()]}, {"dollars_per_hour": 0},
                                     {"rounds": 0}])
def test_what_cannot_be_measured_is_refused(lm, options):
    with pytest.raises(ValueError, match="is not allowed"):
        measure(lm, **{"settings": [PLAIN]} | options)


def test_the_best_turn_counts_in_each_number():
    assert best([Timing(10, 3, 1), Timing(12, 4, 0.5)]) == (12, 3, 0.5)
    assert dollars_per_million(500, 3.6) == pytest.approx(2)


def test_pareto_keeps_who_is_beaten_by_nobody():
    cheap, fast = row("int8", dollars_per_million=1.0, gap_s=3.0), row("int4", dollars_per_million=3.0, gap_s=1.0)
    beaten = row("bfloat16", dollars_per_million=3.0, gap_s=2.0)
    same = row("counts", dollars_per_million=1.0, gap_s=3.0)
    rows = [beaten, cheap, fast, same]
    assert pareto(rows, {"dollars_per_million": "less", "gap_s": "less"}) == [cheap, fast, same]
    assert pareto(rows, {"gap_s": "less"}) == [fast] and pareto(rows, {"gap_s": "more"}) == [cheap, same]
    assert pareto([], {"nbytes": "less"}) == [] and len(pareto(rows, {"nbytes": "less"})) == 4


@pytest.mark.parametrize("better", [{}, {"speed": "less"}, {"gap_s": "higher"}, {"setting": "less"}])
def test_pareto_refuses_what_it_cannot_compare(better):
    with pytest.raises(ValueError, match="is not allowed"):
        pareto([row()], better)


def test_a_stored_setting_is_a_row_beside_its_own_plain():
    """Computed as well as the plain one, and in the shape that a run of it returns."""
    row, plain = COMPILED.row, COMPILED.plain
    assert row.setting == Setting(compiled=True) and plain.setting == PLAIN and COMPILED.before_s > 10
    assert (row.nbytes, row.perplexity, row.capitals, row.tool_calls) == \
        (plain.nbytes, plain.perplexity, plain.capitals, plain.tool_calls)
    for one in (row, plain):
        assert one.dollars_per_million == pytest.approx(dollars_per_million(one.tokens_per_s, 0.10), rel=0.01)
        assert 1 / one.tokens_per_s > one.gap_s, "the first token is in it, too"


def test_a_stored_setting_has_the_numbers_of_the_shipped_model(bench):
    assert COMPILED.plain.nbytes == sum(bench.held_bytes(PLAIN))
    assert COMPILED.plain.perplexity == pytest.approx(bench.quality(PLAIN).perplexity, abs=2e-4)


# Customers


@pytest.mark.parametrize("limit, value, holds", [
    (Limit("gap_s", 2), 0.02, True), (Limit("gap_s", 2), 0.021, False),
    (Limit("capitals", 0.9), 0.9, True), (Limit("capitals", 0.9), 0.89, False)])
def test_a_limit_is_a_multiple_of_the_plain_engine_s(limit, value, holds):
    assert limit.holds(row(**{limit.column: value}), row("plain")) == holds


def test_a_limit_says_which_side_is_worse():
    assert str(Limit("nbytes", 0.27)) == "memory at most 0.27 times plain's"
    assert str(Limit("tool_calls", 0.9)) == "tool calls at least 0.9 times plain's"
    for arguments in (("weight", 1), ("gap_s", 0)):
        with pytest.raises(ValueError, match="is not allowed"):
            Limit(*arguments)


def test_a_choice_is_scored_against_the_best_that_is_allowed():
    customer = Customer("c", "", (Limit("gap_s", 2),), "dollars_per_million", 250)
    rows = [row("plain"), row("int8", dollars_per_million=0.5), row("int4", dollars_per_million=0.1, gap_s=0.03)]
    plain, int8, int4 = (score(customer, name, rows) for name in ("plain", "int8", "int4"))
    assert plain.allowed and plain.best == "int8" and plain.times_best == 2 and int8.times_best == 1
    assert not int4.allowed and int4.broken == ("gap at most 2 times plain's, is 3.00",)
    assert machines(customer, rows[0]) == 3 and machines(replace(customer, tokens_per_s=None), rows[0]) == 1
    assert score(replace(customer, objective="tokens_per_s"), "plain", [row("plain"), row("int8", tokens_per_s=400.0)]
                 ).times_best == 4


def test_where_nothing_is_allowed_there_is_no_best():
    verdict = score(Customer("c", "", (Limit("gap_s", 0.5),), "gap_s"), "plain", [row("plain")])
    assert verdict.best is None and verdict.times_best == float("inf") and not verdict.allowed


@pytest.mark.parametrize("choice, rows", [("int4", [row("plain")]), ("int8", [row("int8")])])
def test_a_choice_must_have_been_measured_beside_the_plain_engine(choice, rows):
    with pytest.raises(ValueError, match="is not allowed"):
        score(CUSTOMERS["phone"], choice, rows)


def test_bytes_and_perplexity_alone_decide_what_the_phone_and_the_night_allow(bench):
    """Whatever the machine's speed: two levers together fit the phone, and int4 is not good enough for the night."""
    settings = [PLAIN, Setting("int8"), Setting("int4"), Setting("int8", kv_cache_dtype="int8"),
                Setting("int4", kv_cache_dtype="int8")]
    rows = [Row(one, 1, 1, 1, *bench.held_bytes(one), bench.quality(one).perplexity, 1, 1, 1) for one in settings]
    allowed = {name: [one.name for one in rows if score(customer, one.name, rows).allowed]
               for name, customer in CUSTOMERS.items()}
    assert allowed["phone"] == ["int8 + int8 cache", "int4 + int8 cache"]
    assert allowed["nightly"] == ["plain", "int8", "int8 + int8 cache"]


def test_every_customer_wants_something_that_is_measured():
    assert all(customer.objective in BETTER and customer.name == name for name, customer in CUSTOMERS.items())


def test_the_table_of_customers_says_limits_and_wishes():
    assert set(WANTED) == set(BETTER)
    customer = Customer("c", "Who it is.", (Limit("gap_s", 4), Limit("capitals", 0.9)), "nbytes")
    *heads, line = customers_table({"c": customer}).split("\n")
    assert line == "| **c** | Who it is. | gap ≤ 4 · capitals ≥ 0.9 | least memory |"
    assert [head.count("|") for head in heads] == [5, 5] and customers_table().count("\n") == 1 + len(CUSTOMERS)


def test_a_deadline_asks_for_machines():
    """100 million tokens in eight hours: more machines in the same ratio as a row is slower."""
    nightly = CUSTOMERS["nightly"]
    assert nightly.tokens_per_s * 8 * 3600 == pytest.approx(100e6)
    assert [machines(nightly, row(tokens_per_s=n)) for n in (4000, 3472.3, 3472, 1000, 500)] == [1, 1, 2, 4, 7]


def test_no_limit_is_finer_than_the_questions_can_tell():
    """One of 24 answers is 0.042 of them, and chance."""
    for customer in CUSTOMERS.values():
        assert all(limit.times_plain <= 1 - 1 / 24 for limit in customer.limits
                   if limit.column in ("capitals", "tool_calls"))
