"""The tests of samplers in notebook 07 find what they are for, and pass what is right."""

from course_lib.analysis.stats import outside
from course_lib.classroom.broken_samplers import RIGHT, SAMPLERS
from course_lib.classroom.sampler_tests import (
    EXPERIMENTS,
    experiment,
    gap_to_processor,
    print_company,
    print_shares,
    together,
    unequal_rows,
)
from course_lib.config import SamplingParams
from course_lib.sampling import apply_min_p, apply_top_k


def shares(row):
    return [w / sum(row) for w in row]


def test_rows_that_differ_are_named_with_their_setting():
    def best(row, k):
        first = row.index(max(row))
        return [float(i == first) for i in range(4)] if k == 1 else shares(row)

    assert unequal_rows(apply_top_k, best, [0, 1]) == (512, [])
    n, wrong = unequal_rows(apply_top_k, best, [0, 2])
    assert n == 512 and len(wrong) == 256 and wrong[0] == "weights (1, 1, 1, 1), setting 2"


def test_the_gap_to_a_processor_is_the_largest():
    assert gap_to_processor(apply_min_p, lambda p: lambda ids, row: apply_min_p(row, [p]), [0.01, 0.5]) == 0
    assert gap_to_processor(apply_min_p, lambda p: lambda ids, row: row, [0.01, 0.5]) > 0.1


def test_a_right_sampler_stays_within_the_limits_of_every_experiment():
    """False alarms: at most 3e-6."""
    for setup in EXPERIMENTS.values():
        exact, counts, limits = experiment(RIGHT, *setup)
        assert sum(counts) == 10_000 and abs(sum(exact) - 1) < 1e-12
        assert outside(dict(enumerate(counts)), limits) == []


def test_the_line_up_shows_four_mistakes_by_their_shares_and_one_by_its_ids(capsys):
    print_shares()
    printed = capsys.readouterr().out
    assert printed.count("outside its limits") == 4 and printed.count("right") == 3
    print_company()
    lines = capsys.readouterr().out.splitlines()[3:]
    differ = [line.split()[0] for line in lines if line.split()[1] != line.split()[2]]
    assert len(lines) == len(SAMPLERS) and differ == ["B"]


def test_requests_that_stand_together_have_seeds_of_their_own():
    plain = SamplingParams()
    both = together(RIGHT, [plain, plain])
    assert both[0] == together(RIGHT, [plain])[0] and both[0] != both[1] and len(both[0]) == 16
