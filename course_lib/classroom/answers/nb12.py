"""Answers to the exercises of notebook 12, Speculative decoding."""

from course_lib.sampling import draw


def accept(p, q, uniform):
    return uniform < p / q


def residual(p, q):
    excess = (p - q).clamp(min=0)
    total = excess.sum()
    return excess / total if total > 0 else p


def verify(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        stays = accept(p_rows[i, token], q_rows[i, token], uniforms[i])
        if not stays:
            left = residual(p_rows[i], q_rows[i])
            return [*proposal[:i], draw(left[None], uniforms[-1:]).item()]
    return [*proposal, draw(p_rows[-1][None], uniforms[-1:]).item()]


def expected_tokens(acceptance, k):
    return sum(acceptance**i for i in range(k + 1))


def diagnosis():
    return {"A": "no bonus", "B": "target again", "C": "greedy draft"}
