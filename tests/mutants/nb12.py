"""Wrong and right answers to the exercises of notebook 12; each name says what the function does wrong."""

import torch

from course_lib import speculative
from course_lib.sampling import draw
from mutants import mutant, variant

# 12.1 accept


@mutant("12.1", "it always stays")
def accept_with_probability_p(p, q, uniform):
    return uniform < p


@mutant("12.1", "it always stays")
def accept_only_if_the_draft_is_surer(p, q, uniform):
    return p < q and uniform < p / q


@mutant("12.1", "in half of the cases")
def accept_all_or_nothing(p, q, uniform):
    return p >= q


@mutant("12.1", "does not always stay")
def accept_whatever_the_target_may_write(p, q, uniform):
    return p > 0


@mutant("12.1", "in half of the cases")
def accept_the_other_share(p, q, uniform):
    return p >= q or uniform >= p / q


@mutant("12.1", "always stay")
def accept_the_ratio_upside_down(p, q, uniform):
    return uniform < q / p if p else False


@mutant("12.1", "*below*")
def accept_at_the_border(p, q, uniform):
    return uniform <= min(1, p / q)


@mutant("12.1", "not even with uniform = 0")
def accept_what_is_impossible(p, q, uniform):
    return uniform < p / q or uniform == 0


@mutant("12.1", "same, it always stays")
def accept_only_if_the_target_is_surer(p, q, uniform):
    return p > q or (p < q and uniform < p / q)


@mutant("12.1", "not how probable that is")
def accept_as_a_probability(p, q, uniform):
    return min(1, p / q)


@variant("12.1")
def accept_without_a_division(p, q, uniform):
    return uniform * q < p


@variant("12.1")
def accept_with_min(p, q, uniform):
    return bool(uniform < min(1, p / q))


# 12.2 residual


@mutant("12.2", "only where p is above q")
def residual_that_forgets_the_draft(p, q):
    return p


@mutant("12.2", "only where p is above q")
def residual_of_absolute_differences(p, q):
    difference = (p - q).abs()
    return difference / difference.sum()


@mutant("12.2", "all sums to 1")
def residual_that_is_not_divided(p, q):
    return (p - q).clamp(min=0)


@mutant("12.2", "only where p is above q")
def residual_of_the_draft(p, q):
    excess = (q - p).clamp(min=0)
    return excess / excess.sum()


@mutant("12.2", "only where p is above q")
def residual_by_softmax(p, q):
    return (p - q).softmax(-1)


@mutant("12.2", "divided by their sum")
def residual_shared_out_evenly(p, q):
    left = (p > q).to(p.dtype)
    return left / left.sum() if left.sum() > 0 else p


@mutant("12.2", "0 / 0 is no number")
def residual_of_equal_rows_is_nan(p, q):
    excess = (p - q).clamp(min=0)
    return excess / excess.sum()


@mutant("12.2", "0 / 0 is no number")
def residual_of_equal_rows_is_nothing(p, q):
    excess = (p - q).clamp(min=0)
    return excess / excess.sum().clamp(min=1e-9)


@mutant("12.2", "return float64")
def residual_in_float32(p, q):
    excess = (p - q).clamp(min=0).float()
    return excess / excess.sum() if excess.sum() > 0 else p


@variant("12.2")
def residual_with_maximum(p, q):
    left = torch.maximum(p, q) - q
    return p if left.sum() == 0 else left / left.sum()


@variant("12.2")
def residual_by_loop(p, q):
    left = [max(0.0, a - b) for a, b in zip(p.tolist(), q.tolist())]
    total = sum(left)
    return torch.tensor([x / total for x in left], dtype=p.dtype) if total else p


# 12.3 verify


def last(row, uniforms):
    return draw(row[None], uniforms[-1:]).item()


def stays(p_rows, q_rows, i, token, uniforms):
    return speculative.accept(p_rows[i, token], q_rows[i, token], uniforms[i])


@mutant("12.3", "length 1, expected 2")
def verify_without_a_bonus(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)]
    return list(proposal)


@mutant("12.3", "so a bonus token is drawn from the last row of p")
def verify_with_the_draft_s_bonus(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)]
    return [*proposal, last((q_rows if len(q_rows) else p_rows)[-1], uniforms)]


@mutant("12.3", "and not from p")
def verify_that_draws_from_the_target_again(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], last(p_rows[i], uniforms)]
    return [*proposal, last(p_rows[-1], uniforms)]


@mutant("12.3", "each number is used once")
def verify_that_uses_a_number_twice(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], draw(speculative.residual(p_rows[i], q_rows[i])[None], uniforms[i : i + 1]).item()]
    return [*proposal, last(p_rows[-1], uniforms)]


@mutant("12.3", "and its replacement is the last token of this pass")
def verify_that_goes_on_after_a_replacement(p_rows, q_rows, proposal, uniforms):
    tokens = []
    for i, token in enumerate(proposal):
        kept = stays(p_rows, q_rows, i, token, uniforms)
        tokens.append(token if kept else last(speculative.residual(p_rows[i], q_rows[i]), uniforms))
    return [*tokens, last(p_rows[-1], uniforms)]


@mutant("12.3", "even where the rows agree")
def verify_that_skips_what_is_rejected(p_rows, q_rows, proposal, uniforms):
    kept = [token for i, token in enumerate(proposal) if stays(p_rows, q_rows, i, token, uniforms)]
    rejected = [i for i, token in enumerate(proposal) if not stays(p_rows, q_rows, i, token, uniforms)]
    row = speculative.residual(p_rows[rejected[0]], q_rows[rejected[0]]) if rejected else p_rows[-1]
    return [*kept, last(row, uniforms)]


@mutant("12.3", "length 0, expected 1")
def verify_without_a_replacement(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return list(proposal[:i])
    return [*proposal, last(p_rows[-1], uniforms)]


@mutant("12.3", "stays if uniforms[i] is below")
def verify_that_accepts_the_likeliest_only(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if token != p_rows[i].argmax().item():
            return [*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)]
    return [*proposal, last(p_rows[-1], uniforms)]


@mutant("12.3", "not taken as the likeliest")
def verify_with_a_greedy_bonus(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)]
    return [*proposal, p_rows[-1].argmax().item()]


@mutant("12.3", "belong to proposal i")
def verify_that_replaces_from_the_next_row(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            row = speculative.residual(p_rows[i], q_rows[i]) if i == 0 else p_rows[i + 1]
            return [*proposal[:i], last(row, uniforms)]
    return [*proposal, last(p_rows[-1], uniforms)]


@mutant("12.3", "with no proposal")
def verify_that_needs_a_proposal(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return [*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)]
    return [*proposal, last(p_rows[-1], uniforms)] if proposal else []


@mutant("12.3", "return a list, not a tensor")
def verify_that_returns_a_tensor(p_rows, q_rows, proposal, uniforms):
    for i, token in enumerate(proposal):
        if not stays(p_rows, q_rows, i, token, uniforms):
            return torch.tensor([*proposal[:i], last(speculative.residual(p_rows[i], q_rows[i]), uniforms)])
    return torch.tensor([*proposal, last(p_rows[-1], uniforms)])


@variant("12.3")
def verify_by_counting_first(p_rows, q_rows, proposal, uniforms):
    n = 0
    while n < len(proposal) and uniforms[n] * q_rows[n, proposal[n]] < p_rows[n, proposal[n]]:
        n += 1
    row = p_rows[n]
    if n < len(proposal):
        left = (row - q_rows[n]).clamp(min=0)
        row = left / left.sum() if left.sum() > 0 else row
    return list(proposal[:n]) + draw(row.unsqueeze(0), uniforms[-1:]).tolist()


# 12.4 expected_tokens


@mutant("12.4", "the replacement")
def expected_without_the_replacement(acceptance, k):
    return sum(acceptance**i for i in range(1, k + 1))


@mutant("12.4", "the bonus")
def expected_without_the_bonus(acceptance, k):
    return max(1, sum(acceptance**i for i in range(k)))


@mutant("12.4", "divides by 1 - a")
def expected_by_a_formula_that_divides_by_zero(acceptance, k):
    return (1 - acceptance ** (k + 1)) / (1 - acceptance) if acceptance != 1 else float("nan")


@mutant("12.4", "divides by 1 - a")
def expected_by_a_formula_that_stops_at_zero(acceptance, k):
    return (1 - acceptance ** (k + 1)) / (1 - acceptance)


@mutant("12.4", "if the first was accepted, too")
def expected_as_if_each_proposal_counted_alone(acceptance, k):
    return 1 + acceptance * k


@mutant("12.4", "k + 1 of them")
def expected_of_two_proposals_at_most(acceptance, k):
    return (5.0 if acceptance == 1 else 1 + acceptance * (k > 0) + acceptance**2 * (k > 1))


@mutant("12.4", "the replacement")
def expected_in_the_limit(acceptance, k):
    return 1 / (1 - acceptance) - 1 if acceptance < 1 else k + 1


@mutant("12.4", "one token for certain")
def expected_of_one_proposal_more(acceptance, k):
    return sum(acceptance**i for i in range(k + 2)) if acceptance < 1 else k + 1


@mutant("12.4", "without proposals")
def expected_of_one_proposal_at_least(acceptance, k):
    return sum(acceptance**i for i in range(max(1, k) + 1))


@variant("12.4")
def expected_by_formula(acceptance, k):
    return k + 1 if acceptance == 1 else (1 - acceptance ** (k + 1)) / (1 - acceptance)


@variant("12.4")
def expected_by_steps(acceptance, k):
    total = reach = 1.0
    for _ in range(k):
        reach *= acceptance
        total += reach
    return total


# 12.5 diagnosis


@mutant("12.5", "do less often than it should")
def diagnosis_that_takes_a_for_the_draft_s_bonus():
    return {"A": "draft's bonus", "B": "target again", "C": "greedy draft"}


@mutant("12.5", "from where can a replacement bring it")
def diagnosis_that_takes_b_for_the_same_number():
    return {"A": "no bonus", "B": "same number", "C": "greedy draft"}


@mutant("12.5", "never propose")
def diagnosis_that_takes_c_for_all_or_nothing():
    return {"A": "no bonus", "B": "target again", "C": "all or nothing"}


@mutant("12.5", "name the mistakes as the list above does")
def diagnosis_in_other_words():
    return {"A": "forgets the bonus", "B": "target again", "C": "greedy draft"}


@mutant("12.5", "the letters A, B, C as keys")
def diagnosis_of_two():
    return {"A": "no bonus", "B": "target again"}


@mutant("12.5", "a dict")
def diagnosis_as_a_list():
    return ["no bonus", "target again", "greedy draft"]


@variant("12.5")
def diagnosis_in_another_order():
    return dict(C="greedy draft", B="target again", A="no bonus")
