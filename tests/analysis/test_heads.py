"""Scores of heads against loops over single weights, and knocked-out heads against weights set to zero."""

import copy
from types import SimpleNamespace

import pytest
import torch

from course_lib import load
from course_lib.analysis import heads
from course_lib.analysis.trace import trace
from course_lib.config import ModelConfig
from course_lib.layers import attention_weights, causal_mask
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.training.corpus import people as all_people

L, H, HKV, DH = 3, 6, 2, 4
IDS = torch.tensor([[5, 1, 30, 7, 7, 2, 19], [3, 36, 0, 11, 4, 8, 9]])


def make_model(vocab_size=37):
    config = ModelConfig(vocab_size=vocab_size, hidden_size=20, intermediate_size=28, num_hidden_layers=L,
                         num_attention_heads=H, num_key_value_heads=HKV, head_dim=DH, max_position_embeddings=64)
    model, generator = CausalLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return model.double().eval()


@pytest.fixture(scope="module")
def model():
    return make_model()


def random_weights(batch, T, seed=0):
    scores = torch.randn(L, batch, H, T, T, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scores.masked_fill(~causal_mask(T, T), -torch.inf).softmax(-1)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


# Projections


def test_projections_give_the_weights_that_the_trace_shows(model):
    q, k, v = heads.projections(model, IDS)
    assert q.shape == (L, 2, H, 7, DH) and k.shape == v.shape == (L, 2, HKV, 7, DH)
    shown = trace(model, IDS).attentions
    for layer in range(L):
        close(attention_weights(q[layer], k[layer], causal_mask(7, 7)), shown[layer])


def test_attention_inputs_are_what_the_projections_are_made_of(model):
    x = heads.attention_inputs(model, IDS)
    assert x.shape == (L, 2, 7, 20)
    q, _, _ = heads.projections(model, IDS)
    for layer in range(L):
        close(model.layers[layer].self_attn.project(x[layer], model.rope(slice(0, 7), x.dtype))[0], q[layer])


def test_turned_queries_are_those_of_the_model_and_without_rope_nothing_turns(model):
    x, attention = heads.attention_inputs(model, IDS)[1], model.layers[1].self_attn
    flat = attention.q_proj(x).unflatten(-1, (H, DH)).transpose(1, 2)
    close(heads.turn(model, flat), heads.projections(model, IDS)[0][1])
    learned = SimpleNamespace(config=SimpleNamespace(positions="learned"))
    assert heads.turn(learned, flat) is flat


def test_no_hook_stays_behind(model):
    heads.projections(model, IDS)
    heads.attention_inputs(model, IDS)
    with pytest.raises(IndexError):
        heads.projections(model, torch.tensor([[37]]))
    with pytest.raises(RuntimeError), heads.knocked_out_heads(model, {0: [1]}):
        raise RuntimeError
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


# Scores


def test_share_of_attention_is_that_of_the_loops():
    weights, T = random_weights(2, 5), 5
    places = torch.rand(2, T, T, generator=torch.Generator().manual_seed(1)) < 0.3
    places[0, 3] = False  # a query without a place does not count
    expected = torch.zeros(L, H, dtype=torch.float64)
    for layer in range(L):
        for head in range(H):
            sums = [sum(weights[layer, b, head, t, s] for s in range(T) if places[b, t, s])
                    for b in range(2) for t in range(T) if places[b, t].any()]
            expected[layer, head] = sum(sums) / len(sums)
    close(heads.attention_share(weights, places), expected)
    close(heads.attention_share(weights, places[0]), heads.attention_share(weights, torch.stack([places[0]] * 2)))


def test_a_pattern_without_any_place_is_refused():
    with pytest.raises(ValueError, match="True somewhere"):
        heads.attention_share(random_weights(1, 1), heads.previous_token(1))


@pytest.mark.parametrize("T", [1, 2, 6])
def test_places(T):
    assert heads.previous_token(T).nonzero().tolist() == [[t, t - 1] for t in range(1, T)]
    assert heads.first_token(T).nonzero().tolist() == [[t, 0] for t in range(2, T)]


WORDS = ["Mia", "Tom", "Ravi", "Zoe"]
BY_HAND = {"Mia": [0], "Tom": [1], "Ravi": [2, 3], "Zoe": [4, 4], " Mia": [5], " Tom": [6], " Ravi": [7, 8],
           " Zoe": [9], "\n": [10]}


def test_lines_said_twice_have_n_ids_and_no_id_twice():
    tokenizer = SimpleNamespace(encode=BY_HAND.__getitem__)
    lines = set()
    for seed in range(20):
        rows, again = (heads.lines_said_twice(tokenizer, WORDS, 4, batch_size=3,
                                              generator=torch.Generator().manual_seed(seed)) for _ in range(2))
        assert rows.shape == (3, 8) and torch.equal(rows, again) and torch.equal(rows[:, :4], rows[:, 4:])
        lines |= {tuple(row) for row in rows[:, :4].tolist()}
    assert lines == {(0, 6, 9, 10), (0, 9, 6, 10), (1, 5, 9, 10), (1, 9, 5, 10), (0, 7, 8, 10), (1, 7, 8, 10),
                     (2, 3, 5, 10), (2, 3, 6, 10), (2, 3, 9, 10)}
    for n in (1, 9):
        with pytest.raises(ValueError, match=f"n = {n} is not allowed: must be a number of tokens that a line of"):
            heads.lines_said_twice(tokenizer, WORDS, n, batch_size=1, generator=torch.Generator())


def test_lines_said_twice_are_what_the_shipped_tokenizer_makes_of_the_text():
    tokenizer, people = load("pocket").tokenizer, all_people()
    rows = heads.lines_said_twice(tokenizer, people["girls"] + people["boys"], 12, batch_size=4,
                                  generator=torch.Generator().manual_seed(0))
    for row in rows.tolist():
        text = tokenizer.decode(row)
        assert tokenizer.encode(text) == row
        line, same, nothing = text.split("\n")
        assert line == same and nothing == "" and set(line.split()) <= {*people["girls"], *people["boys"]}


def test_induction_scores_are_those_of_the_loops():
    n = 4
    weights = random_weights(2, 2 * n)
    expected = [[sum(weights[layer, b, head, i, i - n + 1].item() for b in range(2) for i in range(n, 2 * n - 1))
                 / (2 * (n - 1)) for head in range(H)] for layer in range(L)]
    close(heads.induction_scores(weights, n), torch.tensor(expected, dtype=torch.float64))


def test_copying_loss_is_the_mean_over_what_can_be_copied(model):
    rows = torch.randint(0, 37, (3, 5), generator=torch.Generator().manual_seed(0)).repeat(1, 2)
    with torch.no_grad():
        logprobs = model(rows).log_softmax(-1)
    expected = [-logprobs[b, i, rows[b, i + 1]].item() for b in range(3) for i in range(5, 9)]
    assert heads.copying_loss(model, rows) == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_mean_loss_is_the_mean_over_all_next_tokens(model):
    with torch.no_grad():
        logprobs = model(IDS).log_softmax(-1)
    expected = [-logprobs[b, i, IDS[b, i + 1]].item() for b in range(2) for i in range(6)]
    assert heads.mean_loss(model, IDS) == pytest.approx(sum(expected) / 12, rel=1e-5)


# Knocked out


@pytest.mark.parametrize("gone", [{1: [4]}, {0: [0, 5], 2: {3}}, {2: range(H)}, {}, {1: []}], ids=str)
def test_a_knocked_out_head_is_one_whose_output_weights_are_zero(model, gone):
    other = copy.deepcopy(model)
    with torch.no_grad():
        for layer, numbers in gone.items():
            for head in numbers:
                other.layers[layer].self_attn.o_proj.weight[:, head * DH : (head + 1) * DH] = 0
        with heads.knocked_out_heads(model, gone):
            close(model(IDS), other(IDS))
        whole = model(IDS)
    assert torch.equal(whole, make_model()(IDS)), "afterwards the model is whole again"
    assert torch.allclose(whole, other(IDS)) == (not any(gone.values()))


def test_heads_that_do_not_exist_are_refused(model):
    for gone, words in (({3: [0]}, r"layer = 3 .* \[0, 2\]"), ({0: [1, 6]}, r"heads = \[1, 6\] .* \[0, 5\]")):
        with pytest.raises(ValueError, match=words), heads.knocked_out_heads(model, gone):
            pass


def test_heads_can_be_named_one_by_one(model):
    with torch.no_grad():
        with heads.knocked_out_heads(model, {0: [5, 1], 2: [3]}):
            expected = model(IDS)
        with heads.without_heads(model, [(0, 5), (2, 3), (0, 1)]):
            assert torch.equal(model(IDS), expected)
        with heads.without_heads(model, iter([])):
            assert torch.equal(model(IDS), make_model()(IDS))


def test_what_makes_the_zeros_can_be_chosen(model):
    called = []

    def zero(merged, gone, num_heads):
        called.append((tuple(merged.shape), gone, num_heads))
        return heads.zero_heads(merged, gone, num_heads)

    with torch.no_grad():
        with heads.without_heads(model, [(0, 5), (2, 3), (0, 1)]):
            expected = model(IDS)
        with heads.without_heads(model, [(0, 5), (2, 3), (0, 1)], zero):
            assert torch.equal(model(IDS), expected)
    assert called == [((2, IDS.shape[1], H * DH), [1, 5], H), ((2, IDS.shape[1], H * DH), [3], H)]


def test_zeros_stand_where_the_heads_were_and_the_input_does_not_change():
    merged = torch.arange(1.0, 25).view(1, 2, 12)
    before = merged.clone()
    zeroed = heads.zero_heads(merged, (2, 0), 4)
    assert zeroed.tolist() == [[[0, 0, 0, 4, 5, 6, 0, 0, 0, 10, 11, 12], [0, 0, 0, 16, 17, 18, 0, 0, 0, 22, 23, 24]]]
    assert torch.equal(merged, before) and torch.equal(heads.zero_heads(merged, [], 4), merged)


def test_the_group_to_compare_with_is_of_the_same_layers_and_looks_least():
    scores = torch.tensor([[0.9, 0.1, 0.8, 0.3], [0.2, 0.7, 0.6, 0.5]])
    assert heads.others_in_these_layers(scores, [(0, 0), (1, 1), (0, 2)]) == [(0, 1), (1, 0), (0, 3)]
    assert heads.others_in_these_layers(scores, [(0, 0), (0, 1), (0, 2)]) == [(0, 3)]


# Pronouns


def test_pronoun_sentences_leave_no_doubt_and_no_order_to_guess_by():
    sentences = heads.pronoun_sentences(40)
    people = all_people()
    firsts = 0
    for text, pronoun, referent, other in sentences:
        assert text.startswith(heads.LEAD) and text.endswith(f" {pronoun}") and "{" not in text
        assert referent in people[{"she": "girls", "he": "boys"}[pronoun]]
        assert other in people[{"she": "boys", "he": "girls"}[pronoun]]
        assert text.index(other) >= len(heads.LEAD) and text.index(referent) >= len(heads.LEAD)
        firsts += text.index(referent) < text.index(other)
    assert firsts == 20
    assert {sentence.pronoun for sentence in sentences} == {"he", "she"}
    assert len({sentence.text for sentence in sentences}) > 35
    assert heads.pronoun_sentences(40) == sentences != heads.pronoun_sentences(40, seed=1)


RANKS = train_bpe(["It was a fine day. Mia gave Tom a coat because he was cold. Tom Mia é"] * 2, 290)
TOKENIZER = Tokenizer("tiny", POCKET_PATTERN, RANKS, {})


@pytest.mark.parametrize("part", ["Tom", "Mia", "because he", "é", "It", "d. é", " "])
def test_tokens_of_finds_every_token_that_holds_a_byte_of_the_part(part):
    text = "It was a fine day. Mia gave Tom a coat because he was cold. é Tom"
    ids = TOKENIZER.encode(text)
    owner = [i for i, id in enumerate(ids) for _ in TOKENIZER.decode_single_token_bytes(id)]
    start = text.encode().index(part.encode())
    assert heads.tokens_of(TOKENIZER, ids, part) == sorted(set(owner[start : start + len(part.encode())]))


def test_tokens_of_a_part_that_is_not_there():
    with pytest.raises(ValueError, match="'Zoe' is not allowed"):
        heads.tokens_of(TOKENIZER, TOKENIZER.encode("Tom"), "Zoe")


def test_pronoun_scores_are_sums_over_the_tokens_of_the_names():
    lm = SimpleNamespace(model=make_model(len(RANKS)), tokenizer=TOKENIZER)
    sentences = [heads.PronounSentence("day. Mia gave Tom a coat because he", "he", "Tom", "Mia"),
                 heads.PronounSentence("day. Tom saw Mia because she", "she", "Mia", "Tom")]
    expected = torch.zeros(2, L, H, dtype=torch.float64)
    for sentence in sentences:
        ids = TOKENIZER.encode(sentence.text)
        weights = trace(lm.model, torch.tensor([ids])).attentions[:, 0]
        for i, name in enumerate((sentence.referent, sentence.other)):
            for position in heads.tokens_of(TOKENIZER, ids, name):
                expected[i] += weights[:, :, len(ids) - 1, position] / 2
    referent, other = heads.pronoun_scores(lm, sentences)
    close(referent, expected[0])
    close(other, expected[1])
