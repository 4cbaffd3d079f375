"""The model card of the shipped models: every number read from the models, their logs and an evaluation."""

from __future__ import annotations

import json

from course_lib.checkpoint import MODELS, LanguageModel
from course_lib.costs import parameter_count
from course_lib.training.corpus import DRILL_EVERY, capitals, encyclopedia, is_held_out, stories
from course_lib.training.guidance import GUIDED_HEADS
from course_lib.training.scores import Score, report, report_families

CARD = """\
# pocket

A language model small enough to look into: {parameters:,} parameters, {layers} layers of width {width}, {heads}
query heads over {kv_heads} key/value heads, a context of {context:,} tokens, a vocabulary of {vocabulary:,}. It is an
ordinary checkpoint of the Llama architecture with a ChatML template and loads in `transformers` without changes.
`pocket-draft` ({draft_parameters:,} parameters) has the same tokenizer and guesses for it.

It was trained from scratch on text that `course_lib.training.corpus` writes from a seed: stories of {stories} plans, an
encyclopedia of {entries} things, the capitals of {countries} countries, everyday texts, and conversations, in which
arithmetic goes through a calculator and unknown words through a dictionary. Every plan, explanation and dialogue was
written for it. It knows that and nothing else; asked for anything beyond, it makes something up or declines. It is for
teaching, not for use.

## What it knows

Greedy answers to questions in wordings, operands, words and sentences that training never showed. Somebody who had not
seen the training's wordings wrote these (`held_out.toml`); some resemble one of training's all the same, for people ask
alike: only the same letters are kept apart. `python -m course_lib evaluate` prints this again:

{table}

Right means: an encyclopedia answer holds the entry's key words, a capital is named, a tool call is exact to the
character, the pronoun is resolved in a full sentence, a story speaks of what it was asked for, an answer to small talk
has a word that a sensible one would have. A consistent story, written at temperature 0.8, names nobody in its last
third who was not named before. Draft acceptance is the mean of sum(min(p, q)) at temperature 0.8.

Perplexity, per token:

{perplexity}

*What is gravity?*

{samples}

<details><summary>Right answers for every wording</summary>

{families}

</details>

## How it was made

| | pocket | pocket-draft |
|---|---|---|
{training}

A model this small is slow to discover that it can copy from earlier text. Names, operands and tool results all depend
on it. One training document in {drill_every} is therefore a drill in copying, and in the guided steps a second loss
tells {guided_heads} attention heads of `pocket` where to look (`course_lib.training.guidance`). Nothing holds them
there afterwards.

`make train` rebuilds the tokenizer and both models, then this card; an interrupted run resumes. The corpus is the
same everywhere, byte for byte. The weights are not: floating-point sums depend on the machine.
`training_log.jsonl` holds the loss curve.
"""


def card(lm: LanguageModel, draft: LanguageModel, scores: dict[str, Score], *, perplexity: str, samples: str) -> str:
    """The model card, every number read from the models, their training logs and this evaluation.

    Args:
        perplexity: what `report_perplexity` says of `lm`.
        samples: what `scores.samples` says of `lm`.
    """
    facts = [json.loads((MODELS / name / "training.json").read_text()) for name in ("pocket", "pocket-draft")]
    for fact in facts:
        start, end = fact["config"]["guided"]
        fact["guided"] = f"{start:,} to {end:,}" if end else "none"
    rows = {"command": "`{command}`", "seed": "{config[seed]}", "steps": "{last[step]:,}",
            "guided steps": "{guided}",
            "tokens read": "{last[tokens]:,}", "wall time": "{last[seconds]:,.0f} s",
            "loss on all held-back text": "{val_loss:.3f}",
            "machine": "{machine}", "note": "{note}"}
    training = "\n".join(f"| {name} | " + " | ".join(form.format(**fact) for fact in facts) + " |"
                         for name, form in rows.items())
    c = lm.config
    return CARD.format(
        parameters=parameter_count(c).total, draft_parameters=parameter_count(draft.config).total,
        layers=c.num_hidden_layers, width=c.hidden_size, heads=c.num_attention_heads, kv_heads=c.num_key_value_heads,
        context=c.max_position_embeddings, vocabulary=c.vocab_size, entries=len(encyclopedia()),
        countries=len(capitals()), stories=sum(not is_held_out(plan.title) for plan in stories()),
        table=report(scores), families=report_families(scores), perplexity=perplexity, samples=samples,
        training=training, drill_every=DRILL_EVERY, guided_heads=sum(map(len, GUIDED_HEADS.values())))
