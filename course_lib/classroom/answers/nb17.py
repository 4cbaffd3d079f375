"""Answers to the exercises of notebook 17, Every lever."""

from course_lib.analysis.levers import BETTER


def pareto(rows, better):
    def worth(row):  # less is better everywhere
        return [getattr(row, column) * (1 if way == "less" else -1)
                for column, way in better.items()]

    def beats(one, other):
        pairs = list(zip(worth(one), worth(other)))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    return [row for row in rows if not any(beats(other, row) for other in rows)]


def choose(rows, limits, objective):
    def keeps(row, column, limit):
        value = getattr(row, column)
        return value <= limit if BETTER[column] == "less" else value >= limit

    allowed = [row for row in rows
               if all(keeps(row, *limit) for limit in limits.items())]
    best = min if BETTER[objective] == "less" else max
    return best(allowed, key=lambda row: getattr(row, objective), default=None)


def diagnosis():
    return {
        "A": "stale pages",  # wrong only where a page was lost, and from there on
        "B": "wrong scale",  # nearly every text, from its first words
        "C": "time stamp",  # all texts right, and not one page found again
    }
