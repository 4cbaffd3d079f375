"""The figures of a line said twice: what is outlined, and which heads are shown in which order."""

import torch

from course_lib.display.copying_figures import missed_most, second_line


class Letters:
    """A tokenizer whose ids are letters."""

    @staticmethod
    def decode(ids):
        return "".join(" abc"[i] for i in ids)


def test_the_second_line_looks_at_both_and_what_followed_is_outlined():
    weights = torch.arange(36.0).view(6, 6)
    [axes, *_] = second_line(Letters, torch.tensor([1, 2, 0, 1, 2, 0]), weights).axes
    assert axes.images[0].get_array().tolist() == weights[3:].tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "␣"]
    frames = sorted((round(patch.get_x() + 0.5), round(patch.get_y() + 0.5)) for patch in axes.patches)
    assert frames == [(1, 0), (2, 1)]  # column i + 1 in row i


def test_the_heads_that_are_missed_most_come_first_and_those_named_are_bold():
    losses = torch.tensor([[0.5, 3.0, 0.25], [1.0, 0.75, 2.0]])
    [axes] = missed_most(losses, [(1, 2), (0, 2)], most=4).axes
    labels = axes.get_yticklabels()
    assert [label.get_text() for label in labels] == ["layer 0 head 1", "layer 1 head 2", "layer 1 head 0",
                                                      "layer 1 head 1"]
    assert [patch.get_width() for patch in axes.patches[:4]] == [3.0, 2.0, 1.0, 0.75]
    assert [label.get_fontweight() == "bold" for label in labels] == [False, True, False, False]
