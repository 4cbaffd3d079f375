"""How surprised a model is by a text: the surprisal of each token, perplexity, entropy.

The surprisal of a token is -log2 of the probability that the model gave it, in bits (Shannon 1948). A
text's first token is given nothing to be predicted from, unless the tokenizer puts a token in front, so it
has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.config import require
from course_lib.generate import LanguageModel, encode_prompt


def next_token_logprobs(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Natural logarithms of the probability of each id but the first, given those before it: (T - 1,), float64.

    Args:
        logits: (T, V), the model's for the T ids; position t predicts ids[t + 1].

    >>> next_token_logprobs(torch.zeros(3, 8), [5, 0, 7]).exp().round(decimals=9).tolist()
    [0.125, 0.125]
    """
    require(len(logits) == len(ids), "len(logits)", len(logits), f"{len(ids)}, as there are ids")
    following = torch.as_tensor(ids, device=logits.device)[1:, None]  # (T - 1, 1)
    parts = zip(logits[:-1].split(32), following.split(32))  # in float64 a whole text's logits are large
    return torch.cat([part.double().log_softmax(-1).gather(-1, next_ids) for part, next_ids in parts])[:, 0]


def perplexity(logits: Tensor, ids: Sequence[int]) -> float:
    """exp of the mean of -ln p over the tokens that are predicted: as unsure as a fair choice among that many.

    Args:
        logits: (T, V), the model's for the T ids; position t predicts ids[t + 1].
        ids: at least two.

    >>> round(perplexity(torch.zeros(3, 8), [5, 0, 7]), 9)
    8.0
    """
    require(len(ids) >= 2, "len(ids)", len(ids), ">= 2: the first token is not predicted")
    return math.exp(-next_token_logprobs(logits, ids).mean().item())


def pooled_perplexity(losses: Sequence[Sequence[float]]) -> float:
    """Perplexity of several texts together, every token counting once.

    Args:
        losses: for each text, -ln p of its predicted tokens; a text may have none.

    >>> round(pooled_perplexity([[math.log(2)] * 3, [math.log(32)]]), 9)
    4.0
    """
    n = sum(map(len, losses))
    require(n > 0, "losses", losses, "at least one predicted token")
    return math.exp(math.fsum(map(math.fsum, losses)) / n)


def entropy(logits: Tensor) -> Tensor:
    """Expected surprisal of the next token, in bits: (..., V) to (...), float64.

    >>> entropy(torch.zeros(2, 8)).round(decimals=9).tolist()
    [3.0, 3.0]
    """
    bits = []
    for part in logits.flatten(0, -2).split(32) if logits.dim() > 1 else [logits[None]]:  # (32, V), float64 is large
        logprobs = part.double().log_softmax(-1)
        bits.append(-(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1) / math.log(2))  # a removed token: 0 * -inf
    return torch.cat(bits).view(logits.shape[:-1])


@dataclass(frozen=True)
class TokenScore:
    """One token of a text, and what the model expected there.

    Attributes:
        id, piece: the token and its bytes.
        bits: its surprisal; None for a first token, which nothing precedes. The same holds for the next two.
        rank: its place among all tokens by probability; 1 is the likeliest.
        entropy: the surprisal in bits that the model expected here, before it saw the token.
        candidates: the likeliest tokens here, with their probabilities.
    """

    id: int
    piece: bytes
    bits: float | None = None
    rank: int | None = None
    entropy: float | None = None
    candidates: tuple[tuple[bytes, float], ...] = ()


@torch.no_grad()
def score_text(lm: LanguageModel, text: str, *, softmax: Callable[[Tensor], Tensor] | None = None,
               candidates: int = 5) -> list[TokenScore]:
    """The tokens of a text with their surprisal, from one run of the model.

    Args:
        softmax: makes probabilities of logits (1, V) in float64; None: PyTorch's.
        candidates: how many of the likeliest tokens to name at each place.

    Raises:
        ValueError: the text is empty or longer than the context.
    """
    ids = encode_prompt(lm.tokenizer, text)
    limit = lm.config.max_position_embeddings
    require(len(ids) <= limit, "tokens of the text", len(ids), f"at most {limit}")
    pieces = [lm.tokenizer.decode_single_token_bytes(id) for id in ids]
    logits = lm.model(torch.tensor([ids], device=next(lm.model.parameters()).device))[0].cpu()  # (T, V)
    softmax = softmax or (lambda row: row.softmax(-1))
    scores = [TokenScore(ids[0], pieces[0])]
    for t, (id, piece) in enumerate(zip(ids[1:], pieces[1:])):
        probs = softmax(logits[t : t + 1].double())[0]  # (V,)
        top = probs.topk(min(candidates, len(probs)))
        named = tuple((lm.tokenizer.decode_single_token_bytes(i), p)
                      for i, p in zip(top.indices.tolist(), top.values.tolist()))
        scores.append(TokenScore(id, piece, bits_of(probs[id].item()), 1 + int((probs > probs[id]).sum()),
                                 entropy(logits[t]).item(), named))
    return scores


def bits_of(p: float) -> float:
    """-log2 p; infinite for what cannot happen.

    >>> bits_of(0.125), bits_of(0)
    (3.0, inf)
    """
    return -math.log2(p) + 0.0 if p > 0 else math.inf


def mean_bits(scores: Sequence[TokenScore]) -> float:
    """Bits per predicted token; 2 to this power is the perplexity. NaN if no token is predicted."""
    bits = [score.bits for score in scores if score.bits is not None]
    return math.fsum(bits) / len(bits) if bits else math.nan


def bits_per_byte(scores: Sequence[TokenScore]) -> float:
    """Bits for each byte of the predicted tokens, which compares across tokenizers. NaN if there are none."""
    predicted = [score for score in scores if score.bits is not None]
    n = sum(len(score.piece) for score in predicted)
    return math.fsum(score.bits for score in predicted) / n if n else math.nan
