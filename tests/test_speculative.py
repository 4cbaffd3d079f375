"""Speculative decoding writes what plain decoding writes: the same ids when greedy, the same distribution else."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import course_lib.drafts as drafting
import course_lib.speculative as speculative
from course_lib import load
from course_lib.analysis.stats import count_limits, outside, power
from course_lib.config import ModelConfig, SamplingParams
from course_lib.drafts import DraftModel, DraftRun, NGramDraft, PromptLookup, count_contexts, look_up
from course_lib.generate import check_logits, decode_steps, generate, latency, stream
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM
from course_lib.sampling import draw, filter_logits
from course_lib.speculative import (
    Pass,
    accept,
    acceptance_rate,
    distributions,
    expected_tokens,
    passes,
    residual,
    verify,
)
from course_lib.tokenizer import Tokenizer

SHAPE = ModelConfig(vocab_size=260, hidden_size=24, intermediate_size=20, num_hidden_layers=2,
                    num_attention_heads=6, num_key_value_heads=3, head_dim=4, max_position_embeddings=40)
BYTES = {bytes([i]): i for i in range(256)}
END, OTHER_END = 256, 257
SPECIALS = {"<|end|>": END, "<|other|>": OTHER_END, "<|a|>": 258, "<|b|>": 259}
TOKENIZER = Tokenizer("bytes", r"(?s).", BYTES, SPECIALS)
GREEDY = SamplingParams(temperature=0, max_tokens=12)
COUNTED = [random.Random(0).randrange(259) for _ in range(3000)]  # an id follows each that the target may write
PROMPT = [5, 99, 7, 31]
SETTINGS = [
    GREEDY,
    SamplingParams(temperature=0, repetition_penalty=1.5, presence_penalty=0.7, frequency_penalty=0.5, max_tokens=16),
    SamplingParams(temperature=1.3, seed=1, max_tokens=12),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.02, repetition_penalty=1.3, seed=2, max_tokens=12),
]


def random_model(config, seed, scale=0.2):
    model, generator = CausalLM(config).eval(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1))
    return model


def language_model(model, tokenizer=TOKENIZER, eos=()):
    return SimpleNamespace(model=model, tokenizer=tokenizer, config=model.config, eos_token_ids=frozenset(eos))


def neighbour(lm, noise=0.02, **changes):
    """A draft that agrees with the target now and then: its weights, with some noise."""
    model, generator = CausalLM(replace(lm.config, **changes)).eval(), torch.Generator().manual_seed(9)
    weights = {name: weight + noise * torch.randn(weight.shape, generator=generator)
               for name, weight in lm.model.state_dict().items()}
    model.load_state_dict(weights, strict=False)
    return language_model(model)


@pytest.fixture(scope="module")
def real():
    return language_model(random_model(SHAPE, 0))


@pytest.fixture(scope="module")
def near(real):
    return neighbour(real)


@pytest.fixture
def caches(monkeypatch):
    """Every cache that is made, in order: the draft's first, then the target's."""
    made, for_model = [], StaticCache.for_model

    def keep(model, *args, **kwargs):
        made.append((model, for_model(model, *args, **kwargs)))
        return made[-1][1]
    monkeypatch.setattr(StaticCache, "for_model", keep)
    return made


# --- the rule, in exact numbers -----------------------------------------------------------------


def fractions(weights):
    return np.array([Fraction(w, sum(weights)) for w in weights], dtype=object)


def test_one_round_of_the_rule_gives_p_in_fractions():
    """q(x) min(1, p / q) stays, the rest is drawn from the residual: the sum is p, to the last digit."""
    rng = random.Random(0)
    for _ in range(300):
        V = rng.randint(2, 6)
        p, q = fractions([rng.randint(0, 5) for _ in range(V - 1)] + [2]), fractions(rng.choices(range(1, 7), k=V))
        stays = np.array([q_x * min(Fraction(1), p_x / q_x) for p_x, q_x in zip(p, q)], dtype=object)
        law = stays + (1 - stays.sum()) * residual(p, q)
        assert (law == p).all() and residual(p, q).sum() == 1
        assert [accept(p_x, q_x, p_x / q_x) for p_x, q_x in zip(p, q) if p_x <= q_x] == [False] * (p <= q).sum()
        just_below = [accept(p_x, q_x, p_x / q_x - Fraction(1, 10**9)) for p_x, q_x in zip(p, q) if 0 < p_x <= q_x]
        assert all(just_below)


def test_a_token_that_the_target_never_writes_is_never_accepted():
    assert not accept(0.0, 0.3, 0.0) and accept(0.3, 1.0, 0.0)
    assert accept(torch.tensor([0.0, 0.5]), torch.tensor([0.3, 0.25]), torch.tensor([0.0, 0.999])).tolist() == [
        False, True]


def test_the_residual_of_equal_rows_is_the_row():
    p = torch.tensor([0.2, 0.8])
    assert residual(p, p).equal(p) and residual(p, p + 1e-9).equal(p)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p, q = (3 * torch.randn(2, 50, generator=generator)).softmax(-1)
        r = residual(p, q)
        assert r.sum() == pytest.approx(1, abs=1e-5) and (r[p <= q] == 0).all() and (r >= 0).all()


# Every ratio p / q below 1 and every running sum of p and of a residual is a multiple of 1 / 12, so that numbers at
# the middle of twelfths stand for all numbers. The second row and the third depend on what was written before.
FIRST = ([6, 5, 1, 0], [4, 4, 2, 2])
LATER = [([4, 4, 2, 2], [2, 2, 4, 4]), ([6, 4, 1, 1], [3, 3, 2, 4]), ([0, 1, 5, 6], [2, 2, 4, 4]),
         ([1, 1, 4, 6], [4, 2, 3, 3])]
TWELFTHS = [(i + 0.5) / 12 for i in range(12)]


def rows_after(written):
    """Weights (p, q) of the next token, in twelfths."""
    return FIRST if not written else LATER[(written[-1] + len(written)) % 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_verify_writes_the_target_s_law_exactly(dtype):
    """All 16 proposals of two tokens times 12 ** 3 numbers: total variation 0, in fractions, of three tokens."""
    law = Counter()
    for proposal in itertools.product(range(4), repeat=2):
        rows = [rows_after(proposal[:i]) for i in range(3)]
        drawn = math.prod(Fraction(q[x], 12) for x, (_, q) in zip(proposal, rows))
        p_rows, q_rows = (torch.tensor([row[i] for row in rows], dtype=dtype) / 12 for i in (0, 1))
        for uniforms in itertools.product(TWELFTHS, repeat=3):
            tokens = verify(p_rows, q_rows[:2], proposal, torch.tensor(uniforms, dtype=torch.float64))
            law[tuple(tokens)] += drawn / 12**3
    assert sum(law.values()) == 1
    whole = Counter()
    for tokens, share in law.items():  # what a later pass would add has the law p
        for rest in itertools.product(range(4), repeat=3 - len(tokens)):
            text = (*tokens, *rest)
            whole[text] += share * math.prod(Fraction(rows_after(text[:i])[0][text[i]], 12)
                                             for i in range(len(tokens), 3))
    for text in itertools.product(range(4), repeat=3):
        assert whole[text] == math.prod(Fraction(rows_after(text[:i])[0][x], 12) for i, x in enumerate(text)), text


def test_verify_stops_at_the_first_rejection_and_adds_a_bonus():
    p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    q = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert verify(p, q, [0, 2], torch.tensor([0.4, 0.4, 0.9])) == [0, 2, 2]
    assert verify(p, q, [0, 2], torch.tensor([0.4, 0.6, 0.9])) == [0, 1]
    assert verify(p, q, [0, 2], torch.tensor([0.6, 0.0, 0.9])) == [1], "an accepted token after a rejected one goes"
    assert verify(p[:1], q[:0], [], torch.tensor([0.7])) == [1], "no proposal: one draw from p"


def test_expected_tokens():
    assert expected_tokens(Fraction(4, 5), 4) == (1 - Fraction(4, 5) ** 5) / (1 - Fraction(4, 5))
    assert [expected_tokens(a, 3) for a in (0, 1)] == [1, 4] and expected_tokens(0.7, 0) == 1
    assert expected_tokens(torch.tensor([0.0, 0.5, 1.0]), 2).tolist() == [1, 1.75, 3]


# --- greedy: the same ids -----------------------------------------------------------------------


def drafts(lm):
    return {"model, k=1": DraftModel(lm, 1), "model, k=3": DraftModel(lm, 3), "model, k=30": DraftModel(lm, 30),
            "model, k=0": DraftModel(lm, 0), "unsure": DraftModel(lm, 6, min_confidence=0.01),
            "never sure": DraftModel(lm, 6, min_confidence=1.0), "lookup": PromptLookup(8, 3),
            "lookup, k=0": PromptLookup(0), "lookup, k=50": PromptLookup(50, 1), "counts": NGramDraft(COUNTED, 5),
            "counts, k=0": NGramDraft(COUNTED, 0), "counts, bold": NGramDraft(COUNTED, 50, min_confidence=0)}


@pytest.mark.parametrize("name", drafts(None))
@pytest.mark.parametrize("params", [p for p in SETTINGS if p.temperature == 0], ids=str)
def test_greedy_ids_are_those_of_plain_decoding(real, near, name, params):
    for prompt in (PROMPT, [5], [7, 7, 7, 7, 7], list(range(28, 50))):
        expected, output = (generate(real, prompt, replace(params, logprobs=3), draft=draft)
                            for draft in (None, drafts(near)[name]))
        assert output.token_ids == expected.token_ids and output.finish_reason == expected.finish_reason
        assert output.text == expected.text
        assert output.cumulative_logprob == pytest.approx(expected.cumulative_logprob, abs=1e-3)
        for row, other in zip(output.logprobs, expected.logprobs, strict=True):
            assert [p for _, p in row] == pytest.approx([p for _, p in other], abs=1e-4)


def test_a_model_that_drafts_for_itself_is_always_right(real):
    running = stream(real, PROMPT, GREEDY, draft=DraftModel(real, 3))
    list(running)
    rounds = passes(running.steps)
    assert [len(one.tokens) for one in rounds] == [4, 4, 4] and acceptance_rate(rounds) == 1
    assert [one.positions for one in rounds] == [4 + 3, 1 + 3, 1 + 3]


def test_the_draft_of_the_tests_is_right_now_and_then(real, near):
    """Else neither a rejection nor an acceptance would be tested here."""
    for params in SETTINGS:
        running = stream(real, PROMPT, replace(params, max_tokens=30), draft=DraftModel(near, 3))
        list(running)
        assert 0.2 < acceptance_rate(passes(running.steps)) < 0.95, params


@pytest.mark.parametrize("k", [1, 4, 8])
def test_pocket_writes_the_same_ids(k):
    lm, draft = load("pocket"), DraftModel(load("pocket-draft"), k)
    params = SamplingParams(temperature=0, max_tokens=40)
    for prompt in ([{"role": "user", "content": "What is gravity?"}], "Once upon a time",
                   [{"role": "user", "content": "tell me a story about a dragon"}]):
        plain = generate(lm, prompt, params)
        assert generate(lm, prompt, params, draft=draft) == replace(
            plain, cumulative_logprob=pytest.approx(plain.cumulative_logprob, abs=1e-3))


def top_left(T, S, **_):
    """The queries are taken for the first of the S positions."""
    return torch.arange(S) <= torch.arange(T)[:, None]


def everywhere(T, S, **_):
    """A cache is there, so no mask: each proposal sees those after it."""
    return torch.ones(T, S, dtype=torch.bool)


@pytest.mark.parametrize("mask", [top_left, everywhere])
def test_greedy_ids_show_a_wrong_mask(real, mask, monkeypatch):
    expected = generate(real, PROMPT, GREEDY).token_ids
    monkeypatch.setattr("course_lib.model.causal_mask", mask)
    assert generate(real, PROMPT, GREEDY).token_ids == expected, "plain decoding needs no mask"
    assert generate(real, PROMPT, GREEDY, draft=DraftModel(real, 3)).token_ids != expected


def test_a_model_with_a_window_keeps_what_a_roll_back_needs(real):
    """In a ring the rejected tokens would have overwritten positions that count again."""
    lm = language_model(random_model(replace(SHAPE, sliding_window=4), 0))
    for draft in (DraftModel(neighbour(lm), 3), DraftModel(real, 5), PromptLookup(5)):
        assert generate(lm, PROMPT, GREEDY, draft=draft).token_ids == generate(lm, PROMPT, GREEDY).token_ids


# --- other temperatures: the same distribution --------------------------------------------------

FEW = ModelConfig(vocab_size=4, hidden_size=12, intermediate_size=10, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=6, max_position_embeddings=16)
LENGTH, STREAMS, FALSE_ALARM = 3, 1000, 1e-6


@pytest.fixture(scope="module")
def few():
    """A target and a draft of four tokens; about half of what the draft proposes is accepted."""
    return tuple(language_model(random_model(FEW, seed, 0.5)) for seed in (0, 7))


def rows(lm, params):
    """The probabilities of the next token after each text of up to LENGTH - 1 tokens, after prompt [1]."""
    texts = [text for n in range(LENGTH) for text in itertools.product(range(4), repeat=n)]
    with torch.no_grad():
        return {text: filter_logits(lm.model(torch.tensor([[1, *text]]))[:, -1].double(), params)
                .softmax(-1)[0].tolist() for text in texts}


def law(p, q, k, mistake=""):
    """The distribution of the first LENGTH tokens, by following every branch of every pass."""
    done = Counter()

    def go(text, n, share):
        """`n` more proposals in this pass; what a rejection writes begins a new one."""
        if share == 0 or len(text) == LENGTH:
            done[text] += share
            return
        if n == 0:
            for x, p_x in enumerate(p[text]):
                begin((*text, x), share * p_x)
            return
        drawn = [float(q_x == max(q[text])) for q_x in q[text]] if mistake == "greedy draft" else q[text]
        stays = [min(1, p_x / q_x) for p_x, q_x in zip(p[text], q[text])]
        excess = p[text] if mistake == "target again" else [max(0, a - b) for a, b in zip(p[text], q[text])]
        rejected = sum(d * (1 - a) for d, a in zip(drawn, stays))
        for x in range(4):
            go((*text, x), n - 1, share * drawn[x] * stays[x])
            begin((*text, x), share * rejected * excess[x] / (sum(excess) or 1))

    def begin(text, share):
        go(text, max(0, min(k, LENGTH - len(text) - 1)), share)

    begin((), 1.0)
    return done


def counts(lm, draft, params):
    return Counter(generate(lm, [1], replace(params, seed=seed), draft=draft).token_ids for seed in range(STREAMS))


class GreedyRun(DraftRun):
    """Proposes the likeliest tokens and says that they were drawn from q."""

    def propose(self, ids, uniforms):
        return super().propose(ids, torch.zeros_like(uniforms))


def verify_target_again(p_rows, q_rows, proposal, uniforms):
    """After a rejection, p."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculative, "residual", lambda p, q: p)
        return verify(p_rows, q_rows, proposal, uniforms)


WIDE = SamplingParams(temperature=0.9, max_tokens=LENGTH)
CHAINS = [WIDE, SamplingParams(temperature=1.4, top_k=3, top_p=0.9, min_p=0.05, repetition_penalty=1.4,
                               presence_penalty=0.6, frequency_penalty=0.4, max_tokens=LENGTH)]


@pytest.mark.parametrize("k, confidence", [(1, 0.0), (2, 0.0), (2, 0.45)])
def test_streams_have_the_target_s_law(few, k, confidence):
    """Counts of all 64 texts of three tokens; a right one fails at most once in a million."""
    target, draft = few
    p = rows(target, WIDE)
    exact = {text: math.prod(p[text[:i]][x] for i, x in enumerate(text)) for text in
             itertools.product(range(4), repeat=LENGTH)}
    computed = law(p, rows(draft, WIDE), k)
    assert all(computed[text] == pytest.approx(exact[text], abs=1e-9) for text in exact), "total variation 0"
    limits = count_limits(exact, STREAMS, false_alarm=FALSE_ALARM)
    assert outside(counts(target, DraftModel(draft, k, confidence), WIDE), limits) == []


def test_streams_have_the_law_of_the_whole_chain(few):
    """Penalties see the proposals before them; the draft goes through the chain, too. At most once in a million."""
    target, draft = few
    params, exact = CHAINS[1], Counter()
    for text in itertools.product(range(4), repeat=LENGTH):
        with torch.no_grad():
            logits = target.model(torch.tensor([[1, *text[:-1]]]))[0].double()
        exact[text] = math.prod(filter_logits(logits[i : i + 1], params, [[1]], [text[:i]]).softmax(-1)[0, x].item()
                                for i, x in enumerate(text))
    limits = count_limits(exact, STREAMS, false_alarm=FALSE_ALARM)
    for proposer in (DraftModel(draft, 2), PromptLookup(2), NGramDraft([1, 3, 3, 2, 0, 3, 1], 2, min_confidence=0)):
        assert outside(counts(target, proposer, params), limits) == []


@pytest.mark.parametrize("mistake", ["target again", "greedy draft"])
def test_streams_of_a_broken_verifier_are_found(few, mistake, monkeypatch):
    """With a power of more than 0.999, by the law that the mistake has."""
    target, draft = few
    p, q = (rows(lm, WIDE) for lm in few)
    exact, wrong = law(p, q, 2), law(p, q, 2, mistake)
    limits = count_limits(exact, STREAMS, false_alarm=FALSE_ALARM)
    assert power(limits, STREAMS, wrong) > 0.999
    if mistake == "target again":
        monkeypatch.setattr(speculative, "verify", verify_target_again)
    else:
        monkeypatch.setattr(drafting, "DraftRun", GreedyRun)
        monkeypatch.setattr(drafting, "draw", lambda probs, uniforms: probs.argmax(-1)
                            if (uniforms == 0).all() else draw(probs, uniforms))
    observed = counts(target, DraftModel(draft, 2), WIDE)
    assert outside(observed, limits) != []
    assert outside(observed, count_limits(wrong, STREAMS, false_alarm=FALSE_ALARM)) == [], "it is this mistake"


def test_every_pass_whose_proposals_all_stay_has_a_bonus(real, near):
    rounds = []
    for seed in range(20):
        running = stream(real, PROMPT, SamplingParams(seed=seed, max_tokens=20), draft=DraftModel(near, 2))
        list(running)
        rounds += passes(running.steps)
    full = [one for one in rounds if one.proposal and one.tokens[: len(one.proposal)] == one.proposal]
    assert len(full) > 20 and all(len(one.tokens) == len(one.proposal) + 1 for one in full)


@pytest.mark.parametrize("params", [p for p in SETTINGS if p.temperature], ids=str)
def test_a_seed_chooses_the_same_text_each_time(real, near, params):
    for draft in (DraftModel(near, 3), PromptLookup()):
        texts = [generate(real, PROMPT, replace(params, seed=seed), draft=draft).token_ids for seed in (1, 1, 2, None)]
        assert texts[0] == texts[1] and len(set(texts)) == 3


def test_the_global_generator_is_neither_read_nor_moved(real, near):
    before = torch.random.get_rng_state()
    generate(real, PROMPT, SamplingParams(seed=None, max_tokens=6), draft=DraftModel(near, 2))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_each_row_goes_through_the_chain_with_the_proposals_before_it(params):
    logits = 3 * torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    got = distributions(logits, params, [1, 2, 3], [3, 4], [5, 6, 6])
    for i, seen in enumerate([[3, 4], [3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6, 6]]):
        alone = filter_logits(logits[i : i + 1], params, [[1, 2, 3]], [seen]).softmax(-1)
        torch.testing.assert_close(got[i : i + 1], alone, rtol=0, atol=1e-7)


# --- caches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_after_every_pass_both_caches_equal_fresh_ones(real, near, params, caches):
    text, rejections = list(PROMPT), 0
    for step in DraftModel(near, 3).decode_steps(real, PROMPT, replace(params, max_tokens=30)):
        if not step.positions:
            continue
        text += step.target_pass.tokens
        rejections += step.target_pass.accepted < len(step.target_pass.proposal)
        assert [model for model, _ in caches] == [near.model, real.model]
        for model, cache in caches:
            held = cache.get_seq_length()
            if step.target_pass.proposal or model is real.model:  # of a bonus round, the draft lacks the last proposal
                assert held == len(text) - 1 or (model is near.model and held == len(text) - 2)
            fresh = StaticCache(model.config, 40)
            with torch.no_grad():
                model(torch.tensor([text[:held]]), kv_cache=fresh)
            for ours, theirs in ((cache.keys, fresh.keys), (cache.values, fresh.values)):
                torch.testing.assert_close(ours[..., :held, :], theirs[..., :held, :], rtol=0, atol=1e-5)
    assert rejections >= 3


def test_what_goes_through_the_models(real, near):
    """The target sees the pending token and the proposal, the draft one token a step or, after a bonus, two."""
    lengths = {"draft": [], "target": []}
    hooks = [lm.model.register_forward_pre_hook(lambda _, args, name=name: lengths[name].append(args[0].shape[1]))
             for name, lm in (("draft", near), ("target", real))]
    running = stream(real, PROMPT, replace(GREEDY, max_tokens=30), draft=DraftModel(near, 3))
    list(running)
    for hook in hooks:
        hook.remove()
    rounds = passes(running.steps)
    assert lengths["target"] == [one.positions for one in rounds]
    assert lengths["target"][:2] == [len(PROMPT) + 3, 1 + 3]
    assert lengths["draft"][:3] == [len(PROMPT), 1, 1] and set(lengths["draft"][3:]) == {1, 2}
    assert len(lengths["draft"]) == sum(len(one.proposal) for one in rounds)


# --- when it ends -------------------------------------------------------------------------------


class Scripted(nn.Module):
    """It writes `script` after a prompt of one token, and id 0 from then on; the text lies in the cache, as keys."""

    def __init__(self, script):
        super().__init__()
        self.config = ModelConfig(vocab_size=260, hidden_size=2, intermediate_size=2, num_hidden_layers=1,
                                  num_attention_heads=1, head_dim=2, max_position_embeddings=30)
        self.weight = nn.Parameter(torch.zeros(1))
        self.script = script

    def forward(self, input_ids, *, kv_cache, logits_to_keep):
        new = input_ids.float().view(1, 1, -1, 1).expand(-1, -1, -1, 2)
        kv_cache.update(new, new, 0)
        end = kv_cache.get_seq_length()
        logits = torch.zeros(1, logits_to_keep, 260)
        for row, n in enumerate(range(end - logits_to_keep, end)):
            logits[0, row, self.script[n] if n < len(self.script) else 0] = 5.0
        return logits


def scripted(script, draft_script=None, k=4, eos=(END,)):
    lm, other = (language_model(Scripted(s), eos=eos) for s in (script, draft_script or script))
    return lm, DraftModel(other, k)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("after", range(5))
def test_an_end_token_ends_it_wherever_it_stands_in_the_proposal(k, after):
    script = [*b"hello"[:after], END, *b"never"]
    for end, params in ((END, GREEDY), (33, replace(GREEDY, stop_token_ids=(33,), ignore_eos=True))):
        lm, draft = scripted([end if i == END else i for i in script], k=k)
        output = generate(lm, "?", params, draft=draft)
        assert (output.text, output.finish_reason) == ("hello"[:after], "stop")
        assert output.token_ids == (*b"hello"[:after], end)


def test_nothing_is_proposed_after_an_end_token():
    lm, draft = scripted([*b"ab", END, *b"never"], k=8)
    running = stream(lm, "?", GREEDY, draft=draft)
    list(running)
    assert [one.proposal for one in passes(running.steps)] == [(*b"ab", END)]
    running = stream(lm, "?", replace(GREEDY, ignore_eos=True), draft=draft)
    list(running)
    assert passes(running.steps)[0].proposal == (*b"ab", END, *b"never")


def test_an_end_token_that_only_the_draft_writes_is_replaced():
    lm, draft = scripted([*b"abcd", END], [*b"ab", END, *b"xy"])
    assert generate(lm, "?", GREEDY, draft=draft).text == "abcd"


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("stop", ["STOP", "wS", "P!", "OP! ", "we STOP! and"])
def test_a_stop_string_ends_it_inside_a_proposal(k, stop):
    lm, draft = scripted([*b"we STOP! and go on"], k=k)
    params = SamplingParams(temperature=0, max_tokens=18, stop=stop)
    plain, output = generate(lm, "?", params), generate(lm, "?", params, draft=draft)
    assert output == plain and output.finish_reason == ("length" if stop == "wS" else "stop")


@pytest.mark.parametrize("n", range(1, 8))
def test_max_tokens_inside_a_proposal(real, n):
    expected = generate(real, PROMPT, GREEDY).token_ids[:n]
    for draft in (DraftModel(real, 3), DraftModel(real, 30), PromptLookup(5)):
        running = stream(real, PROMPT, replace(GREEDY, max_tokens=n), draft=draft)
        list(running)
        assert (running.output.token_ids, running.finish_reason) == (expected, "length")
        assert all(len(one.tokens) <= n for one in passes(running.steps)), "no pass writes what nobody may read"


@pytest.mark.parametrize("k", [0, 1, 5, 100])
def test_the_end_of_the_context_is_length(real, near, k):
    for length in (33, 38, 39):
        output = generate(real, [1] * length, replace(GREEDY, max_tokens=1000), draft=DraftModel(near, k))
        assert (len(output.token_ids), output.finish_reason) == (40 - length, "length")
        assert output.token_ids == generate(real, [1] * length, replace(GREEDY, max_tokens=1000)).token_ids


@pytest.mark.parametrize("context", [2, 4, 7, 13])
def test_a_draft_falls_silent_at_the_end_of_its_own_context(real, context):
    draft = neighbour(real, noise=0, max_position_embeddings=context)
    running = stream(real, PROMPT, replace(GREEDY, max_tokens=20), draft=DraftModel(draft, 3))
    list(running)
    assert running.output.token_ids == generate(real, PROMPT, replace(GREEDY, max_tokens=20)).token_ids
    rounds = passes(running.steps)
    seen = 0 if context < 4 else context + 1 - len(PROMPT)  # the last id that it reads may be its context's last
    assert sum(len(one.proposal) for one in rounds) >= seen - 2 and not rounds[-2].proposal
    longest, text = 0, len(PROMPT)
    for one in rounds:
        longest = max(longest, text + len(one.proposal) - 1 if one.proposal else 0)
        text += len(one.tokens)
    assert longest <= context


# --- what is refused ----------------------------------------------------------------------------


def test_another_vocabulary_is_refused_at_once(real, near):
    swapped = {**BYTES, b"a": BYTES[b"b"], b"b": BYTES[b"a"]}
    for tokenizer, words in ((Tokenizer("swapped", r"(?s).", swapped, SPECIALS), ["b'a'", "98", "97"]),
                             (Tokenizer("more", r"(?s).", BYTES, {**SPECIALS, "<|c|>": 260}), ["<|c|>", "260", "None"]),
                             (Tokenizer("fewer", r"(?s).", BYTES, {"<|end|>": END}), ["<|other|>", "257", "None"])):
        draft = DraftModel(language_model(near.model, tokenizer))
        for call in (stream, generate):
            with pytest.raises(ValueError, match="a draft must have the target's vocabulary") as caught:
                call(real, PROMPT, GREEDY, draft=draft)
            assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("vocab_size", [256, 300])
def test_a_vocabulary_padded_to_another_size_will_do(real, vocab_size):
    """Published families pad the same tokenizer differently; no proposal is an id that the target lacks."""
    config = replace(SHAPE, vocab_size=vocab_size)
    draft = DraftModel(language_model(random_model(config, 0)), 3)
    for params in SETTINGS:
        output = generate(real, PROMPT, params, draft=draft)
        assert len(output.token_ids) == params.max_tokens
        if params.temperature == 0:
            assert output.token_ids == generate(real, PROMPT, params).token_ids


@pytest.mark.parametrize("make, words", [
    (lambda lm: DraftModel(lm, -1), "num_speculative_tokens = -1 .* integer >= 0"),
    (lambda lm: DraftModel(lm, 2.0), "num_speculative_tokens = 2.0 .* integer >= 0"),
    (lambda lm: DraftModel(lm, 2, 1.1), r"min_confidence = 1.1 .* in \[0, 1\]"),
    (lambda lm: DraftModel(lm, 2, math.nan), "min_confidence = nan"),
    (lambda lm: PromptLookup(-1), "num_speculative_tokens = -1"),
    (lambda lm: PromptLookup(4, 0), "max_ngram = 0 .* integer >= 1")])
def test_settings_out_of_range_are_refused(near, make, words):
    with pytest.raises(ValueError, match=words):
        make(near)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("broken, words", [("target", "the model's logits"), ("draft", "the draft's logits")])
def test_weights_that_are_no_numbers_are_named(real, near, broken, words, value, params):
    models = {"target": real.model, "draft": near.model}
    copy = CausalLM(SHAPE).eval()
    copy.load_state_dict(models[broken].state_dict())
    copy.requires_grad_(False)
    copy.layers[1].mlp.up_proj.weight[3, 2] = value
    models[broken] = copy
    with pytest.raises(ValueError, match=rf"{words} are not finite: .*layers\.1\.mlp\.up_proj\.weight holds NaN"):
        generate(language_model(models["target"]), PROMPT, params,
                 draft=DraftModel(language_model(models["draft"]), 3))


def test_check_logits_speaks_of_the_model_unless_told():
    with pytest.raises(ValueError, match="the model's logits"):
        check_logits(random_model(SHAPE, 0), torch.tensor([[math.nan]]))


# --- leaving early ------------------------------------------------------------------------------


def test_a_consumer_that_breaks_off_leaves_both_models_as_they_were(real, near):
    draft = DraftModel(near, 3)
    expected = [generate(real, PROMPT, params, draft=draft) for params in SETTINGS]
    running = stream(real, [5, 6, 7], GREEDY, draft=draft)
    next(running)
    running.close()
    assert list(running) == [] and running.output.finish_reason is None
    with pytest.raises(KeyboardInterrupt):
        for _ in stream(real, [9], GREEDY, draft=draft):
            raise KeyboardInterrupt
    assert [generate(real, PROMPT, params, draft=draft) for params in SETTINGS] == expected


@pytest.mark.parametrize("which", ["draft", "target"])
@pytest.mark.parametrize("at_call", [0, 2])
def test_an_interrupt_inside_a_model_leaves_both_as_they_were(real, near, which, at_call):
    draft, calls = DraftModel(near, 3), itertools.count()
    expected = generate(real, PROMPT, GREEDY, draft=draft)

    def interrupt(*_):
        if next(calls) == at_call:
            raise KeyboardInterrupt
    model = {"draft": near, "target": real}[which].model
    hook = model.layers[1].mlp.register_forward_pre_hook(interrupt)
    running = stream(real, PROMPT, GREEDY, draft=draft)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    hook.remove()
    assert not torch.is_inference_mode_enabled() and running.output.finish_reason is None
    assert generate(real, PROMPT, GREEDY, draft=draft) == expected


def test_close_gives_the_caches_back(real, near, caches):
    import gc
    import weakref

    running = stream(real, PROMPT, GREEDY, draft=DraftModel(near, 3))
    next(running)
    kept = [weakref.ref(cache) for _, cache in caches]
    caches.clear()
    running.close()
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_two_streams_share_a_draft_and_do_not_disturb_each_other(real, near):
    draft = DraftModel(near, 3)
    calls = [(PROMPT, SETTINGS[2]), ([9, 8, 7], SETTINGS[0]), (PROMPT, SETTINGS[3])]
    expected = [generate(real, *call, draft=draft) for call in calls]
    running = [stream(real, *call, draft=draft) for call in calls]
    for _ in itertools.zip_longest(*running):
        pass
    assert [r.output for r in running] == expected


def test_inference_mode_does_not_reach_the_consumer(real, near):
    for _ in stream(real, PROMPT, GREEDY, draft=DraftModel(near, 3)):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


# --- what is recorded ---------------------------------------------------------------------------


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_a_pass_records_the_probabilities_of_its_proposals(real, near, params):
    running = stream(real, PROMPT, replace(params, max_tokens=20), draft=DraftModel(near, 3))
    list(running)
    output, tested = [], 0
    for one in passes(running.steps):
        assert isinstance(one, Pass) and len(one.p) == len(one.q) == len(one.proposal)
        assert one.tokens[: one.accepted] == one.proposal[: one.accepted] and 0 < one.draft_seconds < one.seconds < 60
        for i, token in enumerate(one.proposal):
            seen = [*output, *one.proposal[:i]]
            for lm, probability in ((real, one.p[i]), (near, one.q[i])):
                with torch.no_grad():
                    logits = lm.model(torch.tensor([[*PROMPT, *seen]]))[:, -1]
                exact = filter_logits(logits, params, [PROMPT], [seen]).softmax(-1)[0, token].item()
                assert probability == pytest.approx(exact, abs=1e-5)
        output += one.tokens
        tested += one.tested
    assert tuple(output) == running.output.token_ids
    accepted = sum(one.accepted for one in passes(running.steps))
    assert acceptance_rate(passes(running.steps)) == accepted / tested


def test_steps_add_up(real, near):
    """One for each token; the first of a pass carries its positions and its seconds."""
    running = stream(real, PROMPT, SamplingParams(seed=5, max_tokens=20, logprobs=2), draft=DraftModel(near, 3))
    list(running)
    rounds = passes(running.steps)
    assert len(running.steps) == 20 == sum(len(one.tokens) for one in rounds)
    assert sum(step.positions for step in running.steps) == sum(one.positions for one in rounds)
    assert sum(step.seconds for step in running.steps) == pytest.approx(sum(one.seconds for one in rounds))
    first, between, rate = latency(running.steps)
    assert first == rounds[0].seconds and rate == pytest.approx(20 / sum(one.seconds for one in rounds)) and between > 0
    text = list(PROMPT)
    for step in running.steps:
        with torch.no_grad():
            exact = real.model(torch.tensor([text]))[0, -1].double().log_softmax(-1)
        assert step.logprob == pytest.approx(exact[step.token_id].item(), abs=1e-4)
        assert [i for i, _ in step.top] == exact.topk(2).indices.tolist()
        text.append(step.token_id)


def test_no_proposal_no_rate():
    assert acceptance_rate([]) == 0.0
    assert acceptance_rate([Pass((), (), (), (5,), 1, 0.0, 0.1)]) == 0.0


def test_plain_steps_are_what_they_were(real):
    """A stream without a draft knows nothing of passes."""
    assert [vars(step).keys() for step in decode_steps(real, PROMPT, replace(GREEDY, max_tokens=2))] == [
        {"token_id": 0, "logprob": 0, "top": 0, "seconds": 0, "positions": 0}.keys()] * 2


# --- prompt lookup ------------------------------------------------------------------------------


@pytest.mark.parametrize("ids, k, n, expected", [
    ([1, 2, 3, 9, 1, 2, 3], 2, 3, [9, 1]),
    ([1, 2, 8, 5, 2, 9, 1, 2], 1, 2, [8]),  # the longer ending, although [2] stood there later
    ([1, 2, 8, 5, 2, 9, 1, 2], 1, 1, [9]),
    ([2, 8, 2, 9, 2], 2, 1, [9, 2]),  # the latest place of several
    ([4, 4], 5, 3, [4] * 5), ([1, 2, 1, 2, 1], 4, 3, [2, 1, 2, 1]),  # in a circle
    ([1], 4, 3, []), ([1, 2, 3], 4, 3, []), ([5, 5, 5], 0, 3, []),
])
def test_look_up(ids, k, n, expected):
    assert look_up(ids, k, n) == expected


def test_look_up_against_a_loop():
    rng = random.Random(0)
    for _ in range(500):
        ids, k, longest = [rng.randrange(3) for _ in range(rng.randint(1, 12))], rng.randint(1, 6), rng.randint(1, 4)
        expected = []
        for n in range(1, longest + 1):  # a longer one counts more, a later one too
            for end in range(n, len(ids)):
                if ids[end - n : end] == ids[-n:]:
                    longer = list(ids)
                    while len(longer) < len(ids) + k:
                        longer.append(longer[end + len(longer) - len(ids)])
                    expected = longer[len(ids) :]
        assert look_up(ids, k, longest) == expected, (ids, k, longest)


def test_contexts_are_counted_as_a_loop_counts_them():
    rng = random.Random(1)
    for _ in range(100):
        text, n = [rng.randrange(4) for _ in range(rng.randint(2, 30))], rng.randint(1, 3)
        followers = {}
        for i in range(len(text) - n):
            followers.setdefault(tuple(text[i : i + n]), []).append(text[i + n])
        if not followers:
            continue
        contexts, following, shares = count_contexts(np.array(text), n, 5)
        assert contexts.tolist() == sorted(sum(5**e * x for e, x in enumerate(reversed(c))) for c in followers)
        for key, best, share in zip(contexts.tolist(), following.tolist(), shares.tolist()):
            ids = followers[tuple(key // 5**e % 5 for e in reversed(range(n)))]
            assert ids.count(best) == max(map(ids.count, ids)) and share == pytest.approx(ids.count(best) / len(ids))
            assert best == min(x for x in ids if ids.count(x) == ids.count(best))


def test_counts_back_off_to_shorter_contexts():
    draft = NGramDraft([1, 2, 3, 4, 9, 2, 3, 5, 9, 2, 3, 5], max_context=2, min_confidence=0.0)
    assert draft.following([1, 2]) == (3, 1.0) and draft.following([2, 3]) == (5, pytest.approx(2 / 3))
    assert draft.following([7, 9]) == (2, 1.0), "7 9 was never seen, 9 was"
    assert draft.following([7]) == draft.following([500]) == (0, 0.0)
    assert draft.guess([8, 1, 2], 4) == [3, 5, 9, 2] and draft.guess([8], 4) == draft.guess([1], 0) == []
    bold, careful = (NGramDraft([1, 2, 3, 4, 9, 2, 3, 5, 9, 2, 3, 5], max_context=2, min_confidence=c)
                     for c in (0.6, 0.7))
    assert bold.guess([1, 2], 3) == [3, 5, 9] and careful.guess([1, 2], 3) == [3]


def test_counts_propose_nothing_after_an_end_token():
    lm, _ = scripted([*b"abc", END])
    draft = NGramDraft([63, *b"abc", END, 63, *b"abc", END, 63], 9)
    running = stream(lm, "?", GREEDY, draft=draft)
    assert "".join(running) == "abc"
    assert [one.proposal for one in passes(running.steps)] == [(*b"abc", END)]


@pytest.mark.parametrize("ids, options, words", [
    ([1], {}, "two ids or more"), ([], {}, "two ids or more"), ([[1, 2]], {}, "two ids or more"),
    ([1, -1], {}, "two ids or more"), ([1, 2], {"max_context": 0}, "max_context = 0"),
    ([1, 150_000], {"max_context": 4}, r"max_context = 4 .* 150001 \*\* \(max_context \+ 1\)"),
    ([1, 2], {"min_confidence": -0.1}, "min_confidence = -0.1"), ([1, 2], {"num_speculative_tokens": -1}, "= -1")])
def test_counts_that_cannot_be_are_refused(ids, options, words):
    with pytest.raises(ValueError, match=words):
        NGramDraft(ids, **options)


def test_counts_of_ids_that_the_target_lacks_are_refused(real):
    with pytest.raises(ValueError, match=r"largest id that was counted = 260 .* vocab_size = 260"):
        stream(real, PROMPT, GREEDY, draft=NGramDraft([260, 1]))


def test_a_copy_is_written_in_few_passes():
    """The prompt holds what will be written."""
    text = [*b"a quick brown fox jumps"]
    model = Scripted([0] * len(text) + text[1:] + [END])
    model.config = replace(model.config, max_position_embeddings=60)
    running = stream(language_model(model, eos=(END,)), [*text, text[0]],
                     SamplingParams(temperature=0, max_tokens=30), draft=PromptLookup(8, 3))
    assert "".join(running) == bytes(text[1:]).decode()
    assert len(passes(running.steps)) <= 4 < len(running.steps) / 5
