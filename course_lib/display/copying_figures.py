"""Figures of a line that is said twice: where a head looks, and which heads the second line needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.display import plots
from course_lib.display.views import visible


def second_line(tokenizer: Any, ids: Tensor, weights: Tensor) -> Figure:
    """How the tokens of the second line look at all tokens so far; outlined is what followed each the first time.

    Args:
        ids: (2 n,), a line of n ids said twice.
        weights: (2 n, 2 n), the attention weights of one head.
    """
    n, labels = len(ids) // 2, [visible(tokenizer.decode([i])) for i in ids.tolist()]
    return plots.heat(weights[n:], row_labels=labels[n:], column_labels=labels, xlabel="token that is looked at",
                      ylabel="token that looks", value_label="attention weight",
                      outlined=[(i, i + 1) for i in range(n - 1)])


def missed_most(losses: Tensor, bold: Collection[tuple[int, int]], *, most: int = 8) -> Figure:
    """The heads without which copying costs most, in order.

    Args:
        losses: (L, H), the loss of copying in nats with this head removed.
        bold: heads (layer, head) that are highlighted where they are shown.
        most: how many are shown.
    """
    order = losses.flatten().argsort(descending=True)[:most].tolist()
    heads = [divmod(i, losses.shape[1]) for i in order]
    label = {head: "layer {} head {}".format(*head) for head in heads}
    return plots.bars(list(label.values()), [losses[head].item() for head in heads], xlabel="copying loss, nats",
                      ylabel="head that is removed", highlight=[label[head] for head in bold if head in label],
                      value_format="{:.2f}")
