"""What a model still can do without a part of it: facts, copying and fluent text, asked in one batch each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.analysis.residual import knocked_out
from course_lib.checkpoint import LanguageModel
from course_lib.config import require
from course_lib.generate import encode_prompt
from course_lib.kv_cache import StaticCache
from course_lib.model import KVCache
from course_lib.training.corpus import Writer, capitals, encyclopedia
from course_lib.training.questions import SEED, user

MAX_TOKENS = {"capitals": 18, "encyclopedia": 40, "copying": 28}


class Item(NamedTuple):
    """A question, what it is about, and whether an answer to it is right."""

    about: str
    question: str
    is_right: Callable[[str], bool]


def exam_items(n: int, seed: int = SEED) -> dict[str, list[Item]]:
    """n questions each about capitals, about things of the encyclopedia, and to copy; in held-out wordings.

    An answer about a thing is right if it holds the entry's key words, one about a capital if it names it,
    and a copy if it is exact.
    """
    writer = Writer(seed, held_out=True)
    items: dict[str, list[Item]] = {"capitals": [], "encyclopedia": [], "copying": []}
    for country in writer.rng.sample(sorted(capitals()), n):
        right = capitals()[country]
        items["capitals"].append(Item(country, writer.question("capital", country=country),
                                      lambda answer, right=right: right in answer))
    for entry in writer.rng.sample(encyclopedia(), n):
        items["encyclopedia"].append(Item(entry.name, writer.encyclopedia_question(entry), entry.is_right))
    for _ in range(n):
        ask, reply = writer.repeat_exchange(())
        right = reply["content"]
        items["copying"].append(Item(right, ask["content"], lambda answer, right=right: answer.strip() == right))
    return items


@torch.inference_mode()
def greedy_batch(lm: LanguageModel, prompts: Sequence[Sequence[int]], max_tokens: int, *,
                 new_cache: Callable[..., KVCache] = StaticCache.for_model) -> list[str]:
    """The greedy continuation of each prompt as text, all rows in one batch padded on the left.

    Args:
        prompts: ids, at least one each.
        max_tokens: per row; a row ends earlier with an end token.
        new_cache: makes the cache, called as `StaticCache.for_model`.
    """
    device, width = lm.model.embed_tokens.weight.device, max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in prompts], device=device)  # (B, T)
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in prompts], device=device)
    kv_cache = new_cache(lm.model, width + max_tokens, batch_size=len(prompts))
    ends = torch.tensor(sorted(lm.eos_token_ids), device=device, dtype=torch.long)
    written: list[Tensor] = []
    for _ in range(max_tokens):
        ids = lm.model(ids, kv_cache=kv_cache, attention_mask=mask, logits_to_keep=1).argmax(-1)  # (B, 1)
        written.append(ids)
        mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
        if torch.isin(torch.cat(written, dim=1), ends).any(-1).all():
            break
    return [text_until(lm, row) for row in torch.cat(written, dim=1).tolist()]


def chat_prompt(lm: LanguageModel, question: str) -> list[int]:
    """The ids of a question as a user's turn, or as plain text where the model has no chat template."""
    return encode_prompt(lm.tokenizer, user(question) if lm.tokenizer.chat_template else question)


def text_until(lm: LanguageModel, ids: Sequence[int]) -> str:
    """The text of the ids before the first end token."""
    end = next((i for i, token_id in enumerate(ids) if token_id in lm.eos_token_ids), len(ids))
    return lm.tokenizer.decode(list(ids[:end]))


@dataclass(frozen=True)
class Exam:
    """Questions in the tokens of one model, to be put to it again and again.

    Attributes:
        items: the questions by kind.
        prompts: their ids, in the chat template.
        story: ids of stories in rows (B, T), for fluency; their plans are those of the training, filled anew.
    """

    items: Mapping[str, Sequence[Item]]
    prompts: Mapping[str, Sequence[Sequence[int]]]
    story: Tensor

    @classmethod
    def write(cls, lm: LanguageModel, *, n: int = 24, seed: int = SEED, rows: int = 6, length: int = 96) -> Exam:
        """n questions of each kind, and new stories cut into `rows` rows of `length` tokens."""
        require(1 <= n <= len(encyclopedia()), "n", n, f"in [1, {len(encyclopedia())}]")
        items = exam_items(n, seed)
        prompts = {kind: [chat_prompt(lm, item.question) for item in asked] for kind, asked in items.items()}
        writer = Writer(seed)
        stories = (lm.tokenizer.encode(writer.story()[0])[:length] for _ in count())
        long_ones = islice((ids for ids in stories if len(ids) == length), rows)
        return cls(items, prompts, torch.tensor(list(long_ones), device=lm.model.embed_tokens.weight.device))

    def sit(self, lm: LanguageModel) -> dict[str, list[bool]]:
        """Right or wrong, for each question and for each token of the stories.

        Fluency asks at every token of a story but the first whether greedy decoding would have written it.
        """
        result = {}
        for kind, items in self.items.items():
            texts = greedy_batch(lm, self.prompts[kind], MAX_TOKENS[kind])
            result[kind] = [item.is_right(text) for item, text in zip(items, texts)]
        with torch.inference_mode():
            guesses = lm.model(self.story)[:, :-1].argmax(-1)  # (B, T - 1)
        result["fluency"] = (guesses == self.story[:, 1:]).flatten().tolist()
        return result

    def without(self, lm: LanguageModel, parts: Collection[str], *,
                instead: Mapping[str, Tensor] | None = None) -> dict[str, list[bool]]:
        """`sit`, with some parts of the model knocked out; the arguments are those of `knocked_out`."""
        with knocked_out(lm.model, parts, instead=instead):
            return self.sit(lm)


class Reopened(NamedTuple):
    """An answer that is right with all parts and wrong without some, and how it goes on once it is begun.

    Attributes:
        about: what the question is about.
        wrong: the answer without the parts.
        opening: the intact answer up to the words that were asked for; empty where these come first.
        after: what the model without the parts says after the opening.
        is_back: whether that is right.
    """

    about: str
    wrong: str
    opening: str
    after: str
    is_back: bool


def reopened(lm: LanguageModel, exam: Exam, parts: Collection[str], *,
             instead: Mapping[str, Tensor] | None = None) -> list[Reopened]:
    """The capitals that are lost without some parts, asked again with the opening of the intact answer written.

    Args:
        parts, instead: as for `knocked_out`.
    """
    items, prompts, limit = exam.items["capitals"], exam.prompts["capitals"], MAX_TOKENS["capitals"]
    intact = greedy_batch(lm, prompts, limit)
    starts = [text.partition(capitals()[item.about])[0].strip() for item, text in zip(items, intact)]
    begun = [[*ids, *lm.tokenizer.encode(start)] for ids, start in zip(prompts, starts)]
    with knocked_out(lm.model, parts, instead=instead):
        wrong, after = greedy_batch(lm, prompts, limit), greedy_batch(lm, begun, limit)
    return [Reopened(item.about, bad.strip(), start, end.strip(), item.is_right(end))
            for item, good, bad, start, end in zip(items, intact, wrong, starts, after)
            if item.is_right(good) and not item.is_right(bad)]


def shares(result: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    """The share of right answers of each kind, in [0, 1].

    >>> shares({"capitals": [True, True, False, True]})
    {'capitals': 0.75}
    """
    return {kind: sum(right) / len(right) for kind, right in result.items()}
