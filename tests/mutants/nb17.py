"""Wrong and right answers to the exercises of notebook 17; each name says what the function does wrong."""

from course_lib.analysis.levers import BETTER
from mutants import mutant, variant

# 17.1 pareto


def worth(row, better):
    """A row's columns, less being better in each."""
    return [-getattr(row, name) if way == "more" else getattr(row, name) for name, way in better.items()]


def front(rows, better, beats):
    """The rows that no other one beats, by this rule for two rows."""
    worths = [worth(row, better) for row in rows]
    return [row for i, row in enumerate(rows)
            if not any(beats(other, worths[i]) for j, other in enumerate(worths) if j != i)]


@mutant("17.1", "to be better in one of them is not enough")
def pareto_where_one_better_column_beats(rows, better):
    return front(rows, better, lambda a, b: any(x < y for x, y in zip(a, b)))


@mutant("17.1", "both stay")
def pareto_where_equals_beat_each_other(rows, better):
    return front(rows, better, lambda a, b: all(x <= y for x, y in zip(a, b)))


@mutant("17.1", "need not be better in all columns")
def pareto_where_only_better_in_all_beats(rows, better):
    return front(rows, better, lambda a, b: all(x < y for x, y in zip(a, b)))


@mutant("17.1", "the largest number is the best")
def pareto_of_less_in_every_column(rows, better):
    return front(rows, dict.fromkeys(better, "less"), lambda a, b: a != b and all(x <= y for x, y in zip(a, b)))


@mutant("17.1", "in the order in which they came")
def pareto_in_the_order_of_the_first_column(rows, better):
    found = pareto_by_dominators(rows, better)
    return sorted(found, key=lambda row: worth(row, better))


@mutant("17.1", "and not by its neighbour")
def pareto_among_neighbours(rows, better):
    found = sorted(rows, key=lambda row: worth(row, better))
    kept = [row for i, row in enumerate(found)
            if i == 0 or not (worth(found[i - 1], better) != worth(row, better)
                              and all(x <= y for x, y in zip(worth(found[i - 1], better), worth(row, better))))]
    return [row for row in rows if row in kept]


@mutant("17.1", "one row alone must beat it")
def pareto_where_each_column_has_another_winner(rows, better):
    worths = [worth(row, better) for row in rows]
    return [row for row, mine in zip(rows, worths)
            if not all(any(other[i] < mine[i] for other in worths) for i in range(len(mine)))]


@mutant("17.1", "only the columns in better count")
def pareto_of_all_columns(rows, better):
    everything = {name: better.get(name, BETTER[name]) for name in vars(rows[0]) if name != "name"} if rows else better
    return front(rows, everything, lambda a, b: a != b and all(x <= y for x, y in zip(a, b)))


@mutant("17.1", "here less of the one and more of the other")
def pareto_in_the_direction_of_the_first_column(rows, better):
    way = next(iter(better.values()))
    return front(rows, dict.fromkeys(better, way), lambda a, b: a != b and all(x <= y for x, y in zip(a, b)))


@mutant("17.1", "however many there are")
def pareto_of_two_columns(rows, better):
    two = dict(list(better.items())[:2])
    return front(rows, two, lambda a, b: a != b and all(x <= y for x, y in zip(a, b)))


@mutant("17.1", "return the rows themselves, not their names")
def pareto_of_names(rows, better):
    return [row.name for row in pareto_by_dominators(rows, better)]


@variant("17.1")
def pareto_by_dominators(rows, better):
    signs = [(name, -1 if way == "more" else 1) for name, way in better.items()]
    worths, kept = [[sign * getattr(row, name) for name, sign in signs] for row in rows], []
    for row, mine in zip(rows, worths):
        beaten = False
        for theirs in worths:
            if theirs != mine and max(a - b for a, b in zip(theirs, mine)) <= 0:
                beaten = True
        if not beaten:
            kept.append(row)
    return kept


# 17.2 choose


def within(row, column, limit):
    """Whether a row keeps to a limit."""
    value = getattr(row, column)
    return value <= limit if BETTER[column] == "less" else value >= limit


def best_of(rows, objective):
    """The best row, None of none."""
    sign = 1 if BETTER[objective] == "less" else -1
    return min(rows, key=lambda row: sign * getattr(row, objective), default=None)


@mutant("17.2", "limits first")
def choose_the_best_and_look_at_the_limits_then(rows, limits, objective):
    best = best_of(rows, objective)
    return best if best and all(within(best, *limit) for limit in limits.items()) else None


@mutant("17.2", "a limit is the least that a row must have")
def choose_with_at_most_everywhere(rows, limits, objective):
    return best_of([row for row in rows if all(getattr(row, c) <= limit for c, limit in limits.items())], objective)


@mutant("17.2", "the largest number is the best")
def choose_the_smallest_always(rows, limits, objective):
    allowed = [row for row in rows if all(within(row, *limit) for limit in limits.items())]
    return min(allowed, key=lambda row: getattr(row, objective), default=None)


@mutant("17.2", "exactly at a limit keeps to it")
def choose_strictly_below_the_limits(rows, limits, objective):
    def keeps(row, column, limit):
        return within(row, column, limit) and getattr(row, column) != limit
    return best_of([row for row in rows if all(keeps(row, *limit) for limit in limits.items())], objective)


@mutant("17.2", "not to one of them")
def choose_with_one_limit_kept(rows, limits, objective):
    return best_of([row for row in rows if not limits or any(within(row, *limit) for limit in limits.items())],
                   objective)


@mutant("17.2", "return None")
def choose_something_in_any_case(rows, limits, objective):
    allowed = [row for row in rows if all(within(row, *limit) for limit in limits.items())]
    return best_of(allowed or rows, objective)


@mutant("17.2", "of equal rows take the first")
def choose_the_last_of_equals(rows, limits, objective):
    return best_of([row for row in rows[::-1] if all(within(row, *limit) for limit in limits.items())], objective)


@mutant("17.2", "a number of 0 counts like any other")
def choose_with_zeros_for_nothing(rows, limits, objective):
    return best_of([row for row in rows if all(within(row, c, limit) for c, limit in limits.items() if limit)],
                   objective)


@mutant("17.2", "return the row itself, not its name")
def choose_a_name(rows, limits, objective):
    row = choose_by_sorting(rows, limits, objective)
    return row and row.name


@mutant("17.2", "without limits")
def choose_the_worst(rows, limits, objective):
    return best_of([row for row in rows if all(within(row, *limit) for limit in limits.items())][::-1], objective) \
        if limits else max(rows, key=lambda row: getattr(row, objective), default=None)


@variant("17.2")
def choose_by_sorting(rows, limits, objective):
    allowed = list(rows)
    for column, limit in limits.items():
        sign = 1 if BETTER[column] == "less" else -1
        allowed = [row for row in allowed if sign * getattr(row, column) <= sign * limit]
    allowed.sort(key=lambda row: getattr(row, objective), reverse=BETTER[objective] == "more")
    return allowed[0] if allowed else None


# 17.3 diagnosis


@variant("17.3")
def diagnosis_in_another_order():
    return {"C": "time stamp", "A": "stale pages", "B": "wrong scale"}


@mutant("17.3", "Compare with `preempted_at`")
def diagnosis_takes_lost_pages_for_too_few():
    return {"A": "few pages", "B": "wrong scale", "C": "time stamp"}


@mutant("17.3", "do requests that never lost a page suffer")
def diagnosis_takes_a_scale_for_a_draft():
    return {"A": "stale pages", "B": "careless draft", "C": "time stamp"}


@mutant("17.3", "why might no two prompts begin alike")
def diagnosis_takes_slow_for_one_slot():
    return {"A": "stale pages", "B": "wrong scale", "C": "one slot"}


@mutant("17.3", "How many prompt tokens did it find")
def diagnosis_takes_slow_for_few_pages():
    return {"A": "stale pages", "B": "wrong scale", "C": "few pages"}


@mutant("17.3", "from which token on")
def diagnosis_exchanges_the_two_with_wrong_texts():
    return {"A": "wrong scale", "B": "stale pages", "C": "time stamp"}


@mutant("17.3", "name the faults as the list above does")
def diagnosis_in_own_words():
    return {"A": "old pages", "B": "wrong scale", "C": "time stamp"}
