"""The path of a token and a client's time line: bars and ticks are where the times say."""

import pytest
from well_drawn import check, paths, rects, words

from course_lib.display.diagrams.arrivals import BAR, END, START, client_timeline, token_path

REGULAR = [1.5 + 0.2 * i for i in range(40)]


@pytest.mark.parametrize("steps, rest", [({"pocket": 0.003, "a large one": 0.168}, 0.0012), ({"one": 0.002}, 0.0019)])
def test_the_step_has_its_share_of_the_bar(steps, rest):
    drawing = check(lambda: token_path((" is", 292), steps, rest))
    long = [width for _, _, width, _ in rects(drawing, "latency") if width > 200]
    assert long == pytest.approx([(BAR[1] - BAR[0]) * step / (step + rest) for step in steps.values()], abs=0.2)
    ends = [left + width for left, _, width, _ in rects(drawing, "mark")]
    assert ends == pytest.approx([BAR[1]] * len(steps), abs=0.2)
    for name, step in steps.items():
        assert f"{name}: step " in drawing.description
        assert f"{100 * step / (step + rest):.1f} % of the time" in drawing.description
    assert 'data: {…"delta":{"content":" is"}…}' in words(drawing)
    assert "a step of the model gives id 292" in words(drawing) and "“␣is”" in drawing.description


@pytest.mark.parametrize("arrivals", [REGULAR, [0.004, 0.007, 0.011, 0.3, 0.303], [3.0, 3.1, 3.2, 3.25]])
def test_a_tick_for_each_token_at_its_time(arrivals):
    drawing = check(lambda: client_timeline(arrivals, "some model"))
    xs = [points[0][0] for points in paths(drawing, 3)]
    assert xs == pytest.approx([START + (END - START) * t / arrivals[-1] for t in arrivals], abs=0.06)
    [prefill] = rects(drawing, "cost")
    assert prefill[0] == START and prefill[0] + prefill[2] == pytest.approx(xs[0], abs=0.11)
    [everything] = rects(drawing, "query")
    assert everything[0] < END <= everything[0] + everything[2], "not streamed, all is there at the end"
    assert f"then {len(arrivals) - 1} more" in drawing.description
    assert any(word.startswith(f"all {len(arrivals)} tokens: ") for word in words(drawing))


def test_the_gap_is_the_median():
    drawing = client_timeline([0.1, 0.12, 0.14, 0.5, 0.52], "x")
    assert "then a token every 20 ms" in words(drawing) and "first token: 100 ms" in words(drawing)
    assert "all 5 tokens: 520 ms" in words(drawing)


@pytest.mark.parametrize("call", [
    lambda: client_timeline([1.0, 2.0], "x"), lambda: client_timeline([1.0, 3.0, 2.0, 4.0], "x"),
    lambda: client_timeline([0.0, 1.0, 2.0, 3.0], "x"), lambda: client_timeline([1.0] * 101, "x"),
    lambda: token_path(("a", 1), {}, 0.1), lambda: token_path(("a", 1), dict.fromkeys("abc", 1.0), 0.1),
    lambda: token_path(("a", 1), {"a": 1.0}, 0.0), lambda: token_path(("a", 1), {"a": 0.0}, 0.1)])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
