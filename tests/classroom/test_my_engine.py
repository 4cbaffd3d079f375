"""The engine of the reader's answers: typed in a kernel, kept, loaded in another process, and the same engine still."""

import ast
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import openai
import pytest
import torch
from reader_kernel import NOTEBOOKS, solve_everything, type_cells

from course_lib import DraftModel, SamplingParams, StaticCache, __main__, generate, load, stream
from course_lib.batch import generate_batch
from course_lib.checkpoint import LanguageModel, find_folder
from course_lib.classroom import engine_proof, my_engine_command
from course_lib.classroom.answer_source import Written
from course_lib.classroom.answers import answer
from course_lib.classroom.checks import find
from course_lib.classroom.engine_export import export_text, rename, write_file
from course_lib.classroom.engine_proof import PROOFS, difference
from course_lib.classroom.engine_slots import (
    NO_PLACE,
    PLAIN_ANSWER,
    RUNS,
    SLOTS,
    PartFailedError,
    Parts,
    all_ids,
    no_place,
)
from course_lib.classroom.kept_answers import KeptAnswer, read_answers
from course_lib.classroom.my_engine import assemble, load_answers
from course_lib.classroom.own_model import TILE
from course_lib.classroom.own_sampling import rounded_weights
from course_lib.command_line import UsageError
from course_lib.config import ModelConfig
from course_lib.model import CausalLM
from course_lib.quantize import quantize
from course_lib.rounding import round_weights
from course_lib.server import serve_in_background

ANSWERS = {slot.exercise_id: answer(slot.exercise_id) for slot in SLOTS}
IDS = list(ANSWERS)
GREEDY = SamplingParams(temperature=0, max_tokens=24)
COMMAND = [sys.executable, "-m", "course_lib", "my-engine"]


@pytest.fixture(scope="module")
def progress(tmp_path_factory):
    """The progress file of a reader who has solved everything, in a kernel that is gone."""
    path = tmp_path_factory.mktemp("reader") / "progress.json"
    path.with_name("printed.txt").write_text("\n".join(solve_everything(path)))
    return path


@pytest.fixture
def solved(progress, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(progress))
    return progress


def small_lm(**changes):
    """Pocket's tokenizer on a model of two layers, random and sure of itself, that is computed in no time."""
    pocket = load("pocket")
    config = ModelConfig(**{"vocab_size": pocket.config.vocab_size, "hidden_size": 48, "intermediate_size": 64,
                            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
                            "max_position_embeddings": 256, "tie_word_embeddings": True, **changes})
    model, generator = CausalLM(config).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (parameter.dim() == 1))
    return LanguageModel(model, pocket.tokenizer, config, pocket.eos_token_ids, "small")


@pytest.fixture(scope="module")
def lm():
    return small_lm()


def whose(engine):
    return {row.exercise: row.whose for row in engine.parts()}


# Everything solved


@pytest.fixture(scope="module")
def functions(progress):
    """The kept answers, loaded in this process; what they are is what the first test looks at."""
    return load_answers(read_answers(progress.with_name("progress.answers.json")))


def test_every_answer_is_kept_and_can_be_loaded(solved, functions):
    printed = solved.with_name("printed.txt").read_text()
    typed = sorted(re.findall(r"Exercise (\S+) is right", printed))
    assert typed == sorted(key for key in all_ids() if list(NOTEBOOKS.glob(f"{find(key).notebook}_*.ipynb")))
    kept = read_answers()
    assert sorted(kept) == typed and [answer.problem for answer in kept.values() if answer.problem] == []
    functions, problems = functions
    assert sorted(functions) == sorted(IDS) and problems == {}
    assert {f.__module__ for f in functions.values()} == {f"your answer to {key}" for key in IDS}


def test_the_whole_engine_says_what_pocket_says(functions):
    pocket = load("pocket")
    engine = assemble(pocket, functions[0])
    assert engine.prove() == {}
    assert set(whose(engine).values()) == {"yours"} and engine.problems == {}
    for question in ("What is gravity?", "What is the capital of Kenya?"):
        prompt = [{"role": "user", "content": question}]
        text = "".join(engine.stream(question, GREEDY))
        assert text == "".join(stream(engine.lm, prompt, GREEDY)) == generate(pocket, prompt, GREEDY).text
        draft = DraftModel(load("pocket-draft"), 4)
        assert "".join(engine.stream(question, GREEDY, draft=draft)) == text
    speed = engine.speed(tokens=8, rounds=1)
    assert speed.tokens_per_s > 0 and speed.ratio == speed.tokens_per_s / speed.finished_tokens_per_s
    assert list(speed.shares) == sorted(speed.shares, key=lambda key: -speed.shares[key])
    assert 0.2 < sum(speed.shares.values()) < 1


@pytest.mark.parametrize("name", PROOFS)
def test_every_proof_runs_the_parts_that_it_is_about(name, lm):
    engine = assemble(lm, ANSWERS, bits=4 if name == "weights" else None)
    engine.lm.own.reset()
    PROOFS[name](engine.with_answers({}) if name == "weights" else engine.lm, engine.lm.own)
    mine = [slot.exercise_id for slot in SLOTS if slot.proof == name and not slot.inside]
    if name == "weights":
        engine.rounded.clear()
        engine.weights(engine.lm.own)
        mine.remove("11.1")  # of 4 bits, the grid slides
    assert [key for key in mine if not engine.lm.own.by_id[key].calls] == []


def called(engine, run):
    engine.lm.own.reset()
    run()
    return {key for key, part in engine.lm.own.by_id.items() if part.calls}


def serve_one(engine, prompt):
    served = engine.engine(max_num_seqs=2)
    served.add_request("a", engine.lm.tokenizer.encode(prompt), GREEDY)
    while served.has_unfinished_requests():
        served.step()


def test_the_list_says_when_each_part_runs(lm):
    """Each part runs as soon as it is said to, and no part when it is said not to."""
    engine = assemble(lm, ANSWERS)
    says = {row.exercise: row.runs for row in engine.parts()}
    one, draft = "What is rain?", DraftModel(small_lm(num_hidden_layers=1), 3)
    options = {"penalties": {"repetition_penalty": 1.1}, "top_k": {"top_k": 5}, "top_p": {"top_p": 0.9},
               "min_p": {"min_p": 0.1}}
    runs = {"in generation": lambda: list(engine.stream(one, GREEDY)),
            "above 64 tokens": lambda: list(engine.stream(one * 20, GREEDY)),
            **{f"with {name}": lambda setting=setting: list(engine.stream(one, replace(GREEDY, **setting)))
               for name, setting in options.items()},
            "with a draft": lambda: list(engine.stream(one, GREEDY, draft=draft)),
            "in serving": lambda: serve_one(engine, "The cat sat " * 8),
            "in the report": lambda: engine.latency(engine_stream(engine, one))}
    does = {when: called(engine, run) for when, run in runs.items()}
    for when, keys in does.items():
        assert {key for key in says if says[key] == when} <= keys, when
    assert {key for key in says if says[key] == "in generation"} == does["in generation"]
    never = {key for key in says if says[key] in ("never", "with bits")}
    assert not never & set().union(*does.values())
    quantized = assemble(lm, ANSWERS, bits=8)
    bits = {row.exercise: row.runs for row in quantized.parts() if row.stage == "quantization"}
    assert {key for key, when in bits.items() if when == "with bits"} == \
        {key for key in bits if quantized.rounded and parts_called_by_rounding(lm, 8, key)}


def engine_stream(engine, prompt):
    running = engine.stream(prompt, GREEDY)
    list(running)
    return running


def parts_called_by_rounding(lm, bits, key):
    parts = Parts(ANSWERS)
    rounded_weights(lm.model.state_dict(), parts, bits, None)
    return parts.by_id[key].calls > 0


def test_where_the_functions_of_other_exercises_run():
    rows = {row.exercise: row.runs for row in assemble(small_lm(), {}).parts(everything=True)}
    assert [rows[key] for key in ("01.1", "05.5", "06.2", "00.1", "13.3", "16.2", "08.6")] == \
        ["in training", "in training", "in analysis", "never", "in a client", "in an agent", "never"]
    assert set(RUNS) <= set(NO_PLACE) and all(rows.values())


def test_a_verifier_checks_what_a_draft_called_by_its_name_proposes(functions):
    pocket = load("pocket")
    hot = replace(GREEDY, temperature=1.5, seed=0)  # so that something is rejected
    for some in (["12.3"], ["12.1", "12.2"]):
        engine = assemble(pocket, {key: ANSWERS[key] for key in some})
        for name in ("pocket-draft", "counts"):
            running = engine.stream("What is gravity?", hot, draft=engine.draft(name))
            assert called(engine, partial(list, running)) == set(some)
        assert called(engine, partial(list, engine.stream("What is gravity?", GREEDY))) == set()
    with pytest.raises(ValueError, match="draft = 'big' is not allowed: must be one of pocket-draft, counts"):
        engine.draft("big")


@pytest.mark.parametrize("some", [IDS[::2], IDS[1::2], IDS[:18], IDS[18:], []],
                         ids=["even", "odd", "first", "last", "no"])
def test_with_some_of_the_parts(some, lm):
    engine = assemble(lm, {key: ANSWERS[key] for key in some})
    assert engine.prove() == {}
    assert [key for key, who in whose(engine).items() if who == "yours"] == sorted(some, key=IDS.index)


@pytest.mark.parametrize("key", IDS)
def test_each_part_alone(key, lm):
    engine = assemble(lm, {key: ANSWERS[key]}, bits=8 if key in ("11.1", "11.2", "11.4") else None)
    assert engine.prove() == {} and whose(engine)[key] == "yours"


@pytest.mark.parametrize("bits, group_size, symmetric",
                         [(8, None, True), (6, 16, True), (4, 16, False), (3, None, False)])
def test_the_readers_grid_is_the_librarys(bits, group_size, symmetric, lm):
    engine = assemble(lm, ANSWERS, bits=bits, group_size=group_size)
    assert engine.prove() == {}
    state = engine.lm.model.state_dict()
    weights = {name: weight for name, weight in lm.model.named_parameters() if name != "norm.weight"}
    for name, weight in weights.items():  # that norm is in the head
        ours = state[name]
        if name.endswith("_proj.weight"):
            expected = round_weights(weight, bits, group_size or "channel", symmetric=symmetric)
            assert not torch.equal(ours, weight)
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
        else:
            assert torch.equal(ours, weight)
    idle = {row.exercise for row in engine.parts() if row.stage == "quantization" and row.why}
    assert idle == ({"11.5", "11.6"} if symmetric else {"11.1"})


def test_the_weights_are_shared_and_the_other_model_is_as_it_was(lm):
    before = {name: (weight.data_ptr(), weight.clone()) for name, weight in lm.model.state_dict().items()}
    engine = assemble(lm, ANSWERS)
    shared = {weight.data_ptr() for weight in engine.lm.model.state_dict().values()}
    list(engine.stream("hello", GREEDY))
    for name, (place, weight) in before.items():
        now = lm.model.state_dict()[name]
        assert place in shared and now.data_ptr() == place and torch.equal(now, weight)
    assert type(lm.model) is CausalLM and lm.model.embed_tokens.weight.requires_grad


def test_many_requests_at_once_and_a_server(lm):
    engine = assemble(lm, ANSWERS)
    prompts = ["The cat", "Once upon a time " * 12, [{"role": "user", "content": "What is rain? " * 6}]]
    ours, theirs = (generate_batch(one, prompts, GREEDY) for one in (engine.lm, lm))
    assert [a.token_ids for a in ours] == [a.token_ids for a in theirs]
    assert {output.step.token_id for output in only_one(engine.engine(max_num_seqs=2))} == \
        {generate(lm, [5, 6, 7], SamplingParams(temperature=0, max_tokens=1)).token_ids[0]}
    engine.lm.own.reset()
    with serve_in_background(engine.lm, model="my-engine", engine=engine.engine) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        for _ in range(2):  # the second finds the pages of the first
            said = client.chat.completions.create(model="my-engine", messages=prompts[2], temperature=0, max_tokens=24)
            assert said.choices[0].message.content == theirs[2].text
        found = re.search(r"^vllm:prefix_cache_hits_total\S* (\S+)$", get(f"{server.url}/metrics"), re.MULTILINE)
        assert float(found[1]) >= 16
    served = ("07.1", "07.6", "13.1", "13.2", "14.1", "14.2", "14.3")
    assert [key for key in served if not engine.lm.own.by_id[key].calls] == []
    assert set(whose(engine).values()) == {"yours"}


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer_:
        return answer_.read().decode()


def only_one(engine):
    engine.add_request("a", [5, 6, 7], SamplingParams(temperature=0, max_tokens=1))
    return engine.step()


def test_every_position_of_a_long_text(lm):
    """Prefill and decode over several tiles, in float64, where rounding leaves nothing to argue about."""
    wide = LanguageModel(CausalLM(lm.config).double().eval(), *list(vars(lm).values())[1:])
    wide.model.load_state_dict(lm.model.double().state_dict())
    lm.model.float()
    ids = torch.randint(0, 4096, (1, 2 * TILE + 9), generator=torch.Generator().manual_seed(0))
    expected = wide.model(ids)
    for some in (IDS, [key for key in IDS if key != "10.2"], ["03.1"], ["10.4"], ["10.2"], ["08.1"]):
        own = assemble(wide, {key: ANSWERS[key] for key in some}).lm
        cache = StaticCache.for_model(wide.model, ids.shape[1])
        with torch.inference_mode():
            pieces = [own.model(piece, kv_cache=cache) for piece in ids.split([TILE + 5, TILE, 1, 1, 1, 1], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=0, atol=1e-10)


def test_a_cache_that_is_rolled_back(lm):
    for key in ("08.1", "08.2"):
        engine = assemble(lm, {key: ANSWERS[key]})
        draft = DraftModel(small_lm(num_hidden_layers=1), 3)
        speculated = generate(engine.lm, "The cat", GREEDY, draft=draft)
        assert speculated.token_ids == generate(lm, "The cat", GREEDY).token_ids


# Wrong, slow, raising parts


def in_the_engine(key, wrong, when):
    """An answer that is right on the small inputs of its check, and wrong on those of an engine."""
    def function(*args, **settings):
        return (wrong if when(*args) else ANSWERS[key])(*args, **settings)

    return function


def reader_keeps_all(logits, k):
    return logits.clone()


WRONG = {
    "01.3": (lambda piece, ranks: [ranks[bytes([b])] for b in piece], lambda piece, _: len(piece) > 8),
    "01.4": (lambda tokenizer, role, content: [], lambda tokenizer, *_: len(tokenizer.mergeable_ranks) > 2000),
    "02.1": (lambda weight, ids: weight[ids] * 0, lambda weight, ids: len(weight) > 2000),
    "02.4": (lambda x, cos, sin: x, lambda x, *_: x.shape[1] == 8),
    "03.1": (lambda q, k, mask: mask / mask.sum(-1, keepdim=True) + q[..., :1] * 0, lambda q, k, mask: k.shape[2] > 20),
    "04.1": (lambda x, weight, eps: x, lambda x, *_: x.shape[-1] == 48),
    "04.3": (lambda x, self_attn, mlp, *norms: x + mlp(x), lambda x, *_: x.shape[-1] == 48),
    "06.3": (lambda model, h: model.lm_head(h), lambda model, h: h.shape[-1] == 48),
    "07.2": (reader_keeps_all, lambda logits, k: logits.shape[1] > 2000),
    "07.6": (lambda logits, *_: logits.argmin(-1), lambda logits, *_: logits.shape[1] > 2000),
    "08.2": (lambda layer, k, v: (k, v), lambda layer, k, v: k.shape[3] == 8 and layer.length > 0),
    "08.3": (lambda T, past: (torch.zeros(T, dtype=torch.long), torch.ones(T, past + T).bool()),
             lambda T, past: past > 50),
    "10.4": (lambda q, k, v, mask: (q[:, :1], q[:, :1], q), lambda q, k, v, mask: len(k) == TILE),
    "12.3": (lambda p, q, proposal, uniforms: [*proposal, 7], lambda p, *_: p.shape[1] > 2000),
    "13.1": (lambda held, new: ((held + new).decode(errors="replace"), b""), lambda held, new: len(held) > 1),
    "13.2": (lambda held, new, stops: (held + new, "", None), lambda held, new, stops: "が" in stops),
    "00.3": (lambda steps: (0.0, 0.0, 0.0), lambda steps: len(steps) == 4 and steps[0].logprob),
}


@pytest.mark.parametrize("key", WRONG)
def test_a_part_that_is_wrong_only_in_the_engine_is_found_among_all(key, lm):
    wrong = in_the_engine(key, *WRONG[key])
    engine = assemble(lm, ANSWERS | {key: wrong})
    found = engine.prove()
    assert list(found) == [key], found
    assert [name for name, who in whose(engine).items() if who != "yours"] == [key]
    assert engine.row(key).why == found[key]
    assert generate(engine.lm, "The cat", GREEDY).text == generate(lm, "The cat", GREEDY).text


def test_two_wrong_parts_are_both_found(lm):
    wrong = {key: in_the_engine(key, *WRONG[key]) for key in ("04.1", "08.3", "13.2")}
    engine = assemble(lm, ANSWERS | wrong)
    assert set(engine.prove()) == set(wrong) and engine.prove() == {}


def test_a_wrong_grid_is_found(lm):
    def coarse(weight, scale, bits, *, zero_point=0):
        return ANSWERS["11.2"](weight, scale, bits, zero_point=zero_point) // 2 * 2

    engine = assemble(lm, ANSWERS | {"11.2": coarse}, bits=4, group_size=16)
    assert list(engine.prove()) == ["11.2"]


def test_a_part_that_raises_is_named_and_replaced(lm):
    def raises(x, weight, eps):
        if x.shape[1:2] == (1,):
            raise ArithmeticError("no single positions\nplease")
        return ANSWERS["04.1"](x, weight, eps)

    engine = assemble(lm, ANSWERS | {"04.1": raises})
    assert engine.prove() == {"04.1": "raised ArithmeticError: no single positions please"}
    assert "ArithmeticError" in engine.row("04.1").why and whose(engine)["04.1"] == "course_lib"


def test_a_part_that_fails_later_is_named_and_the_next_answer_comes(lm):
    calls = []

    def tires(weight, ids):
        calls.append(1)
        if len(calls) > 3:
            raise ArithmeticError("tired")
        return weight[ids]

    engine = assemble(lm, {"02.1": tires, "04.2": ANSWERS["04.2"]})
    with pytest.raises(PartFailedError, match=r"your lookup \(02.1\) raised ArithmeticError: tired; from now on"):
        list(engine.stream("Hello", GREEDY))
    assert "".join(engine.stream("Hello", GREEDY)) == generate(lm, [{"role": "user", "content": "Hello"}], GREEDY).text
    assert whose(engine)["02.1"] == "course_lib" and "tired" in engine.row("02.1").why
    assert whose(engine)["04.2"] == "yours"


def test_a_part_that_never_seems_to_end_is_given_up(lm, monkeypatch):
    def sleeps(x, groups):
        time.sleep(0.05)
        return ANSWERS["03.4"](x, groups)

    monkeypatch.setattr(engine_proof, "PATIENCE_S", 0.3)
    monkeypatch.setattr(engine_proof, "PATIENCE", 1)
    engine = assemble(lm, {"03.4": sleeps, "01.3": ANSWERS["01.3"]})
    assert re.fullmatch(r"is too slow: \d+ calls, and the engine was not done after \d+ s", engine.prove()["03.4"])
    assert whose(engine)["01.3"] == "yours"


def test_a_slow_part_stays_and_is_seen(lm):
    def sleeps(x, groups):
        time.sleep(0.002)
        sum(range(100_000))  # also seen where only the thread's own time counts
        return ANSWERS["03.4"](x, groups)

    engine = assemble(lm, ANSWERS | {"03.4": sleeps})
    assert engine.prove() == {}
    speed = engine.speed(tokens=4, rounds=1)
    assert next(iter(speed.shares)) == "03.4" and speed.ratio < 1


@pytest.mark.parametrize("ours, theirs, words", [
    ([1, (2, "a")], [1, (2, "a")], ""), ([1, 2], [1, 3], "it makes 2, not 3"),
    ([1], [1, 2], "it makes [1], not [1, 2]"),
    (torch.ones(2), torch.ones(2) + 1e-7, ""), (torch.ones(2), torch.ones(2) + 1e-3, "numbers differ by 0.001"),
    (torch.ones(2), torch.full((2,), torch.nan), "numbers differ by nan"),
    (torch.ones(2), torch.ones(3), "numbers differ by inf"),
    ({"a": torch.ones(1)}, {"a": torch.zeros(1)}, "numbers differ by 1"), (None, [1], "it makes None"),
])
def test_differences(ours, theirs, words):
    found = difference(ours, theirs)
    assert found.startswith(words) and bool(found) == bool(words)


# Other models


def test_models_that_the_functions_cannot_compute(lm):
    gpt2 = small_lm(positions="learned", norm="layernorm", gated_mlp=False, mlp_bias=True, hidden_act="gelu_tanh")
    for other, words in ((gpt2, "not of Llama's family"), (quantize(lm), "loaded as integers")):
        engine = assemble(other, ANSWERS)
        assert engine.prove() == {} and engine.lm.model is other.model
        idle = {row.exercise: row.why for row in engine.parts() if words in row.why}
        assert {"02.1", "03.1", "04.3", "08.2"} <= idle.keys() and "01.3" not in idle and "07.6" not in idle


def test_another_shape_with_biases_norms_of_heads_and_a_window():
    lm = small_lm(attention_bias=True, qk_norm=True, tie_word_embeddings=False, num_key_value_heads=6,
                  sliding_window=20)
    assert assemble(lm, ANSWERS).prove() == {}


# The table


def test_every_exercise_has_a_place_or_a_reason():
    placed = [slot.exercise_id for slot in SLOTS]
    assert len(set(placed)) == len(placed) and set(placed) <= set(all_ids())
    assert not set(NO_PLACE) & set(placed) and set(NO_PLACE) <= set(all_ids())
    assert {slot.proof for slot in SLOTS} == set(PROOFS)
    assert all(set(slot.inside) <= set(placed) for slot in SLOTS)
    for key in set(all_ids()) - set(placed):
        assert no_place(key) != PLAIN_ANSWER or not returns_tensors(key), key
    rows = assemble(small_lm(), {}).parts(everything=True)
    assert sorted(row.exercise for row in rows) == sorted(all_ids())
    assert all(row.why for row in rows)


def returns_tensors(key):
    return "Tensor" in str(find(key).finished.__annotations__.get("return"))


def test_names_of_parts_are_unique_and_unknown_exercises_refused(lm):
    assert len({slot.name for slot in SLOTS}) == len(SLOTS)
    with pytest.raises(ValueError, match=r"99\.1"):
        Parts({"99.1": print})
    assert repr(assemble(lm, {"02.1": ANSWERS["02.1"]})) == f"MyEngine('small', 1 of {len(SLOTS)} parts yours)"


# The commands


@contextmanager
def served(progress):
    """`my-engine serve` on a free port, in a process of its own, and its first line."""
    def hear_interrupts():  # a shell's background jobs, and so their children, are born deaf to SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen([*COMMAND, "serve", "--model", "pocket-draft", "--port", "0"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts,
                               env=os.environ | {"OMP_NUM_THREADS": "1", "COURSE_PROGRESS": str(progress)})
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_a_few_answers_serve_until_they_are_interrupted(solved, tmp_path):
    """Those on pages are right; one that no longer is gets named, and course_lib takes its place."""
    data = json.loads(solved.with_name("progress.answers.json").read_text())
    chosen = {key: data["answers"][key] for key in ("04.2", "14.1", "14.2", "14.3")}
    chosen["04.2"]["source"] = "def swiglu(x, gate, up, down):\n    return x"
    (tmp_path / "progress.answers.json").write_text(json.dumps({"answers": chosen}))
    prompt = [{"role": "user", "content": "What is gravity?"}]
    with served(tmp_path / "progress.json") as (process, line):
        url = re.search(r"^my-engine answers at (http://127.0.0.1:\d+)", line)[1]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            said = client.chat.completions.create(model="my-engine", messages=prompt, temperature=0, max_tokens=24)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert said.choices[0].message.content == generate(load("pocket-draft"), prompt, GREEDY).text
    assert (process.returncode, out) == (130, "")
    problem, end = filter(None, err.splitlines())
    assert problem.startswith("04.2: your answer is not used: it no longer passes its check")
    assert end == "python -m course_lib my-engine: interrupted"


def course(*arguments, cwd=None, **environment):
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd,
                          env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
    return done.returncode, done.stdout, done.stderr


def test_the_exported_file_answers_in_a_process_without_a_network(solved, tmp_path):
    status, out, err = course("export", cwd=tmp_path)
    assert (status, err) == (0, "") and f"holds {len(SLOTS)} functions of yours" in out
    path = tmp_path / "my_llm.py"
    text = path.read_text()
    assert "# the leftmost of several" in text and "@exercise" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["my_llm.py"], "no half-written file is left"
    done = subprocess.run([sys.executable, "my_llm.py", "What", "is", "gravity?"], cwd=tmp_path, text=True,
                          capture_output=True, timeout=120,
                          env=os.environ | {"COURSE_PROGRESS": str(tmp_path / "none.json")})
    prompt = [{"role": "user", "content": "What is gravity?"}]
    expected = generate(load("pocket"), prompt, SamplingParams(temperature=0)).text
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_list_and_ask_with_nothing_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("COURSE_MODEL", "pocket-draft")
    for arguments, rows in (([], len(SLOTS)), (["--all"], len(all_ids()))):
        assert my_engine_command.main(arguments) == 0
        table, words = capsys.readouterr().out.split("\n\n")
        assert table.count("\n") == rows and table.count(" course_lib ") == len(SLOTS)
        assert words == f"0 of {len(SLOTS)} parts are yours. Your answers: {tmp_path}/progress.answers.json\n"
    assert my_engine_command.main(["ask", "What is rain?"]) == 0
    prompt = [{"role": "user", "content": "What is rain?"}]
    expected = generate(load("pocket-draft"), prompt, SamplingParams(temperature=0, max_tokens=200)).text
    out, err = capsys.readouterr()
    assert out == expected + "\n"
    assert re.fullmatch(r"First token after \d+ ms, then \d+\.\d ms a token: \d+ tokens per second\.\n", err)
    assert list(tmp_path.iterdir()) == []


def test_a_problem_is_told(solved, tmp_path, capsys, monkeypatch):
    data = json.loads(solved.with_name("progress.answers.json").read_text())
    chosen = {key: data["answers"][key] for key in ("02.1", "04.3")}
    chosen["02.1"]["source"] = "def lookup(weight, ids):\n    return weight[0]"
    chosen["04.3"] |= {"source": "", "problem": "it uses lm, a LanguageModel"}
    (tmp_path / "progress.answers.json").write_text(json.dumps({"answers": chosen}))
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("COURSE_MODEL", "pocket-draft")
    assert my_engine_command.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "your answer is not used: it no longer passes its check: " in out
    assert "your answer is not used: it uses lm, a LanguageModel" in out and f"0 of {len(SLOTS)} parts are yours" in out
    assert my_engine_command.main(["export", "--to", str(tmp_path / "x.py")]) == 0
    assert "without 02.1, look up rows: your answer" in capsys.readouterr().out
    assert "MINE = {\n\n}" in (tmp_path / "x.py").read_text()
    (tmp_path / "x.py").write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        my_engine_command.main(["export", "--to", str(tmp_path / "x.py")])
    assert (tmp_path / "x.py").read_text() == "mine"
    assert my_engine_command.main(["export", "--to", str(tmp_path / "x.py"), "--force"]) == 0
    assert "MINE" in (tmp_path / "x.py").read_text()


def test_chat_goes_on_with_the_conversation(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    lines = iter(["What is rain?", "And of snow?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert my_engine_command.main(["chat", "--model", "pocket-draft"]) == 0
    first, second = capsys.readouterr().out.strip().split("\n", 1)
    talk = [{"role": "user", "content": "What is rain?"}, {"role": "assistant", "content": first},
            {"role": "user", "content": "And of snow?"}]
    assert second == generate(load("pocket-draft"), talk, SamplingParams(temperature=0, max_tokens=200)).text


def test_in_a_chat_a_part_that_fails_is_told_and_replaced(tmp_path, capsys, monkeypatch):
    left = [3]

    def lookup(weight, ids):
        left[0] -= 1
        if left[0] == 0:
            raise ArithmeticError("tired")
        return weight[ids]

    lm = load("pocket-draft")
    monkeypatch.setattr(my_engine_command, "make", lambda options: assemble(lm, {"02.1": lookup}))
    lines = iter(["What is rain?", "What is snow?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert my_engine_command.main(["chat"]) == 0
    out, err = capsys.readouterr()
    talk, params = [{"role": "user", "content": "What is rain?"}], SamplingParams(temperature=0, max_tokens=200)
    rain = generate(lm, talk, params).text
    talk += [{"role": "assistant", "content": rain}, {"role": "user", "content": "What is snow?"}]
    assert err == "your lookup (02.1) raised ArithmeticError: tired; from now on course_lib's takes its place\n"
    assert out.endswith(f"\n{rain}\n{generate(lm, talk, params).text}\n")


def tired(signature, after, otherwise):
    """An answer that changes its mind after sixty calls, which are more than a check and the proofs make."""
    source = f"def {signature}:\n    n.append(1)\n    if len(n) > 60:\n        {after}\n    return {otherwise}"
    return {"needs": {"torch": "import torch", "sys": "import sys", "n": "n = []"}, "source": source}


LOOKUP = ("lookup(weight, ids)", "raise ArithmeticError('tired')", "weight[ids]")
GONE = "your lookup (02.1) raised ArithmeticError: tired; from now on course_lib's takes its place"


@pytest.fixture
def command(solved, tmp_path, monkeypatch, capsys):
    """The command with a few of the kept answers, changed; status, output and errors."""
    def run(changes, *arguments):
        data = json.loads(solved.with_name("progress.answers.json").read_text())["answers"]
        chosen = {key: data[key] | change for key, change in changes.items()}
        (tmp_path / "progress.answers.json").write_text(json.dumps({"answers": chosen}))
        monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
        monkeypatch.setenv("COURSE_MODEL", "pocket-draft")
        return __main__.main(["my-engine", *arguments]), *capsys.readouterr()

    return run


def test_a_part_that_fails_after_the_proof_is_told_and_the_command_goes_on(command):
    prompt = [{"role": "user", "content": "What is gravity?"}]
    expected = generate(load("pocket-draft"), prompt, SamplingParams(temperature=0, max_tokens=200)).text
    changes = {"02.1": tired(*LOOKUP), "04.1": {}}
    status, out, err = command(changes, "ask", "What is gravity?")
    assert (status, err.splitlines()[:-1]) == (0, [GONE]) and out.endswith(f"\n{expected}\n")
    status, out, err = command(changes, "list")
    assert (status, err) == (0, f"{GONE}\n") and "(yours raised ArithmeticError: tired)" in out
    assert "1 of 39 parts is yours: 1 in generation." in out and "tokens per second" in out
    leaves = tired(LOOKUP[0], "sys.exit()", LOOKUP[2])
    status, out, err = command({"02.1": leaves}, "ask", "What is gravity?")
    assert status == 0 and "your lookup (02.1) raised SystemExit: ; from" in err and expected in out


def test_what_a_part_returns_after_the_proof_may_end_the_command_in_one_line(command):
    changes = {"02.1": tired(LOOKUP[0], "return weight[ids] * torch.nan", LOOKUP[2])}
    for arguments in (["ask", "What is gravity?"], ["list"]):
        status, out, err = command(changes, *arguments)
        assert status == 2 and err.count("\n") == 1
        assert "the engine fails at what one of your functions returns: ValueError: the model's logits are not" in err
    assert out.count("\n") == len(SLOTS) + 1, "the table is printed"


@pytest.mark.parametrize("body, words", [
    ("raise ArithmeticError('too large')", "yours raised ArithmeticError: too large"),
    ("return None", "what it returns makes the engine fail: AttributeError")])
def test_a_quantizer_that_fails_on_real_matrices_is_named(command, body, words):
    first, rest = read_answers()["11.2"].source.split("\n", 1)
    wrong = {"source": f"{first}\n    if weight.numel() > 4000: {body}\n{rest}"}
    status, out, err = command({"11.2": wrong, "04.2": {}}, "list", "--bits", "8")
    assert (status, err) == (0, "") and words.removeprefix("yours ") in out and "1 of 39 parts is yours" in out


def test_a_server_says_in_one_line_which_part_has_failed(solved, tmp_path):
    data = json.loads(solved.with_name("progress.answers.json").read_text())["answers"]
    chosen = {"02.1": data["02.1"] | tired(*LOOKUP)}
    (tmp_path / "progress.answers.json").write_text(json.dumps({"answers": chosen}))
    prompt = [{"role": "user", "content": "What is gravity?"}]
    with served(tmp_path / "progress.json") as (process, line):
        url = re.search(r"http://127.0.0.1:\d+", line)[0]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            def said():
                return client.chat.completions.create(model="my-engine", messages=prompt, temperature=0, max_tokens=24)

            with pytest.raises(openai.InternalServerError, match="the engine failed"):
                for _ in range(60):
                    said()
            text = said().choices[0].message.content
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert text == generate(load("pocket-draft"), prompt, GREEDY).text
    assert "Traceback" not in err and err.count(GONE) == 1


def test_an_answer_that_uses_a_tensor_of_another_cell_comes_out_of_the_kernel(tmp_path):
    """Typed in a kernel, in which PyTorch has made the notebook `__mp_main__`; used in another process."""
    swiglu = inspect.getsource(ANSWERS["04.2"]).replace("return ", "return TABLE * ")
    piece, norm = (inspect.getsource(ANSWERS[key]).replace("\n", f"\n    assert {uses}\n", 1)
                   for key, uses in (("01.3", 'PAT.match("a")'), ("04.1", "ROW.sum() == 1")))
    cells = type_cells(tmp_path / "progress.json", "from course_lib.classroom import exercise\nimport re, torch",
                       "TABLE = torch.tensor([1.0])  # all of them", 'PAT = re.compile("a")',
                       f'@exercise("04.2")\n{swiglu}', f'@exercise("01.3")\n{piece}',
                       "ROW, COLUMN = torch.ones(2, 1)", f'@exercise("04.1")\n{norm}')
    assert [cell.count("\n") for cell in cells[3:]] == [1, 1, 0, 2]
    assert "It works here, but cannot be kept for your engine of notebook 17: it uses ROW, a Tensor" in cells[-1]
    kept = read_answers(tmp_path / "progress.answers.json")
    assert kept["04.2"].needs["TABLE"] == "TABLE = torch.tensor([1.0])" and kept["01.3"].problem == ""
    status, out, err = course("list", "--model", "pocket-draft", COURSE_PROGRESS=str(tmp_path / "progress.json"))
    assert (status, err) == (0, "") and "2 of 39 parts are yours: 2 in generation." in out
    assert re.search(r"04\.1 +course_lib .*it uses ROW, a Tensor, and no statement ROW = \.\.\. in your cells", out)


@pytest.mark.parametrize("options, words", [
    ([], 'assemble(load("pocket-draft"), MINE)'),
    (["--model", "pocket"], 'assemble(load("pocket"), MINE)'),
    (["--bits", "4", "--group-size", "16", "--draft", "counts"],
     'assemble(load("pocket-draft"), MINE, bits=4, group_size=16)\n'
     '    for text in engine.stream(question, SamplingParams(temperature=0), draft=engine.draft("counts")):')])
def test_the_options_of_an_export_are_in_the_file(command, options, words, tmp_path):
    path = tmp_path / "x.py"
    status, out, _ = command({"04.2": {}}, "export", "--to", str(path), *options)
    assert status == 0 and out.startswith(f"{path} holds 1 function of yours: ")
    assert words in path.read_text()


def test_a_model_in_a_folder_is_found_from_elsewhere(monkeypatch):
    folder = Path(find_folder("pocket-draft"))
    monkeypatch.chdir(folder.parent)
    options = my_engine_command.parser().parse_args(["export", "--model", f"./{folder.name}"])
    assert my_engine_command.model_name(options) == str(folder.resolve())


@pytest.mark.parametrize("arguments, words", [
    (["ask", "--model", "pocket-draft", "a b " * 2000], "tokens"), (["--bits", "9"], "from 2 to 8"),
    (["list", "--model", "/nope"], "no model in /nope"),
    (["list", "--bits", "4", "--group-size", "7", "--model", "pocket-draft"], "group"), (["fly"], "'fly'"),
    (["ask", "--top-p", "3", "--model", "pocket-draft", "hi"], "top_p = 3.0"), (["chat", "--draft", "big"], "'big'"),
    (["serve", "--host", "0.0.0.0", "--model", "pocket-draft"], "key"), (["ask"], "question")])
def test_wrong_use_is_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    try:
        status = __main__.main(["my-engine", *arguments])
    except SystemExit as stop:
        status = stop.code
    err = capsys.readouterr().err
    assert status == 2 and err.count("\n") == 1 and words in err


def kept(name, source, **needs):
    return KeptAnswer(name, source, needs, "", "2026-01-01T00:00:00+00:00", "0.1.0")


def test_two_meanings_of_one_name_in_one_file():
    keep = {"04.2": kept("swiglu", "def swiglu(x, gate, up, down):\n    h = helper(x @ gate.T)  # helper of 4\n"
                                   "    return (h * (x @ up.T)) @ down.T",
                         **{"torch": "import torch", "helper": "def helper(x):\n    return x * torch.sigmoid(x)"}),
            "03.4": kept("repeat_kv", "def repeat_kv(x, groups):\n    return helper(x, groups)",
                         **{"helper": "def helper(x, n):\n    return x.repeat_interleave(n, dim=1)"}),
            "06.1": kept("main", "def main(logits):\n    return torch(logits, -1)\nsoftmax = main",
                         **{"torch": "from torch import softmax as torch"})}
    text = export_text(keep, "x.py", "0")
    for line in ("helper_03_4(x, groups)", "def helper_03_4(x, n)", "from torch import softmax as torch_06_1",
                 '"06.1": main_06_1', "# helper of 4", "torch_06_1(logits, -1)"):
        assert line in text, text


def test_rename_touches_names_alone():
    code = "@f\ndef f(x, *, g=f):\n    'f'  # f\n    é = f(x.f, f=1)\n    return ff + f"
    assert rename(code, {"f": "h"}) == "@h\ndef h(x, *, g=h):\n    'f'  # f\n    é = h(x.f, f=1)\n    return ff + h"
    assert rename("import f", {"f": "h"}) == "import f as h"
    assert rename("from a import b as f", {"f": "h"}) == "from a import b as h"
    assert Written("f", code, {}).source == code


@pytest.mark.parametrize("name", ["my llm.py", 'a"""b.py', "x\\N.py", "it's.py", '"'])
def test_a_file_of_any_name_says_how_it_is_run(name):
    text = export_text({}, name, "0")
    told = next(line for line in ast.get_docstring(ast.parse(text)).splitlines() if line.lstrip().startswith("python "))
    assert shlex.split(told) == ["python", name, "What is gravity?"]


def test_a_file_may_be_read_by_whom_any_new_file_may_be(tmp_path):
    (tmp_path / "other").write_text("")
    write_file(tmp_path / "a.py", "one")
    assert (tmp_path / "a.py").stat().st_mode == (tmp_path / "other").stat().st_mode
    (tmp_path / "a.py").chmod(0o640)
    write_file(tmp_path / "a.py", "two", force=True)
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o640 and (tmp_path / "a.py").read_text() == "two"


def test_a_file_is_written_where_there_are_no_links(tmp_path, monkeypatch):
    """As on a memory stick."""
    def refuse(*_):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_file(tmp_path / "a.py", "one")
    assert (tmp_path / "a.py").read_text() == "one"


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.py"
    write_file(path, "one")
    with pytest.raises(ValueError, match="--force"):
        write_file(path, "two")
    assert path.read_text() == "one"
    write_file(path, "two", force=True)
    with pytest.raises(OSError):
        write_file(tmp_path / "none" / "a.py", "x")
    assert path.read_text() == "two" and list(Path(tmp_path).iterdir()) == [path]
