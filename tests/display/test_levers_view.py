"""Who is it for: limits, choices and fronts of made-up settings, their pictures, and a panel on any two functions."""

import math
import re
from itertools import pairwise, permutations
from random import Random
from xml.etree import ElementTree

import pytest
from diagrams.well_drawn import check, paths, words
from saved_form import picture_of, still_of

from course_lib.analysis import levers
from course_lib.analysis.customers import CUSTOMERS, Limit, score
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.levers import BETTER, SETTINGS, Row
from course_lib.display.levers_chart import DOT, PLOT, Axis, Chart, between, meets, within
from course_lib.display.levers_page import levers_html, still
from course_lib.display.levers_picture import levers_drawing
from course_lib.display.levers_view import (
    OWN,
    Wish,
    breaks,
    front_words,
    levers_summary,
    levers_view,
    tempting_words,
    verdict,
)
from course_lib.display.levers_widget import choices, levers_widget


def row(setting, tokens_per_s, ttft, gap, megabytes, perplexity=2.8, capitals=0.96, tool_calls=0.92):
    """A made-up row; times in ms."""
    return Row(setting, tokens_per_s, ttft / 1e3, gap / 1e3, int(megabytes * 4e5), int(megabytes * 6e5), perplexity,
               capitals, tool_calls, 0.1 / 3600 / tokens_per_s * 1e6)


PLAIN = row(Setting(), 200, 40, 4, 40)
INT4 = row(Setting("int4"), 250, 40, 3, 12, 2.9, tool_calls=0.88)
SMALL = row(Setting("int4", kv_cache_dtype="int8"), 150, 48, 5, 8, 2.9, tool_calls=0.88)
DRAFT = row(Setting(draft="counts"), 260, 40, 2, 80)
BATCH = row(Setting(max_num_seqs=8), 340, 280, 14, 115)
REUSE = row(Setting(max_num_seqs=8, enable_prefix_caching=True), 580, 100, 11, 115)
MANY = row(Setting(max_num_seqs=32, enable_prefix_caching=True), 960, 240, 28, 256)
ROUGH = row(Setting("int4", max_num_seqs=32, enable_prefix_caching=True), 1100, 190, 24, 190, 2.9, tool_calls=0.88)
ROWS = (PLAIN, INT4, SMALL, DRAFT, BATCH, REUSE, MANY, ROUGH)
WAITS = (Limit("ttft_s", 4), Limit("gap_s", 5), Limit("perplexity", 1.05), Limit("tool_calls", 0.9))
BEST = {"chat": REUSE, "phone": SMALL, "nightly": MANY}


def choose(rows, limits, objective):
    """As the notebook's."""
    signs = {name: 1 if way == "less" else -1 for name, way in BETTER.items()}
    fit = [one for one in rows
           if all(signs[name] * (getattr(one, name) - bound) <= 0 for name, bound in limits.items())]
    return min(fit, key=lambda one: signs[objective] * getattr(one, objective), default=None)


def view_of(customer="chat", rows=ROWS, pareto=levers.pareto, choose=choose, **changes):
    wish = Wish.of(customer)
    return levers_view(rows, Wish(**{**vars(wish), **changes}), pareto, choose)


EACH = pytest.mark.parametrize("customer", CUSTOMERS)


# --- what is allowed and what is best -----------------------------------------------------------

@EACH
def test_limits_are_the_customers_and_the_best_is_theirs(customer):
    view = view_of(customer)
    for one in ROWS:
        theirs = score(CUSTOMERS[customer], one.name, ROWS)
        assert len(view.broken[one.name]) == len(theirs.broken) and (one in view.allowed) == theirs.allowed
    assert view.chosen is BEST[customer] is view.allowed[0]
    assert theirs.best == view.chosen.name


@EACH
def test_what_tempts_is_better_and_forbidden(customer):
    view = view_of(customer)
    objective = view.wish.objective
    signs = 1 if BETTER[objective] == "less" else -1
    best = getattr(view.allowed[0], objective)
    wanted = [one for one in ROWS if one not in view.allowed and signs * (getattr(one, objective) - best) < 0]
    assert {one.name for one in view.tempting} == {one.name for one in wanted}
    values = [getattr(one, objective) for one in view.tempting]
    assert values == sorted(values, reverse=signs < 0)


def test_functions_get_what_they_are_told():
    asked = []
    view_of(limits=WAITS, pareto=lambda rows, better: asked.append((rows, better)) or [],
            choose=lambda rows, limits, objective: asked.append((rows, limits, objective)))
    assert asked[0] == (list(ROWS), {"gap_s": "less", "dollars_per_million": "less"})
    rows, limits, objective = asked[1]
    assert rows == list(ROWS) and objective == "dollars_per_million"
    assert limits == pytest.approx({"ttft_s": 0.16, "gap_s": 0.02, "perplexity": 2.94, "tool_calls": 0.828})


def test_more_is_better_for_some():
    view = view_of("nightly", objective="tokens_per_s", limits=(Limit("tool_calls", 0.97),))
    assert view.chosen is MANY and [one.name for one in view.tempting] == [ROUGH.name]
    assert breaks(view, ROUGH) == "tool calls 0.96 × plain, at least 0.97"


# --- in words -----------------------------------------------------------------------------------

def test_who_is_chosen_and_why():
    view = view_of(limits=WAITS)
    assert verdict(view) == ("batch 8 + prefix reuse is chosen: $0.048, 0.34 × plain, the lowest cost of 5 settings "
                             "that keep to all limits.")
    late = "time to first token {} × plain, at most 4; gap {} × plain, at most 5"
    assert tempting_words(view) == [(ROUGH.name, "$0.025, 0.18 × plain", late.format("4.75", "6.00")),
                                    (MANY.name, "$0.029, 0.21 × plain", late.format("6.00", "7.00"))]
    summary = levers_summary(view_of("phone", limits=(Limit("nbytes", 0.27), Limit("capitals", 0.9))))
    assert summary.startswith("Customer: phone, wants the shortest gap. Limits: memory at most 0.27 and capitals at "
                              "least 0.9 times plain's. int4 + int8 cache is chosen: 5 ms, 1.25 × plain, the shortest "
                              "gap of 1 setting that keeps to all limits.")
    assert "draft: counts (2 ms, 0.50 × plain) breaks: memory 2.00 × plain, at most 0.27" in summary


@pytest.mark.parametrize("wrong, said", [
    (lambda *_: MANY, "is chosen, but it is not allowed: time to first token 6.00 × plain, at most 4; gap"),
    (lambda *_: PLAIN, "plain is chosen with $0.14, but batch 8 + prefix reuse is allowed, too, and has $0.048."),
    (lambda *_: None, "Nobody is chosen, but 5 settings keep to all limits; batch 8 + prefix reuse has the")])
def test_a_wrong_choice_is_seen(wrong, said):
    assert said in verdict(view_of(choose=wrong, limits=WAITS))


def test_limits_that_nobody_keeps():
    view = view_of(limits=(Limit("nbytes", 0.01),))
    assert verdict(view) == "Nobody is chosen: none of 8 settings keeps to all limits."
    assert view.chosen is None and len(view.tempting) == len(ROWS) and "(and 4 more)" in levers_html(view)
    assert 'data-chosen=""' in levers_html(view)


def test_without_limits_everybody_is_allowed():
    view = view_of(limits=())
    assert view.chosen is ROUGH and "Limits: none." in levers_summary(view) and view.tempting == []
    assert "Nothing that is not allowed would be better." in levers_html(view)


@pytest.mark.parametrize("wrong, said", [
    (lambda rows, better: rows, "plain is on it, and another setting beats it"),
    (lambda rows, better: [DRAFT], "batch 8 + prefix reuse is not on it, and nobody beats it"),
    (lambda rows, better: [], "draft: counts is not on it")])
def test_a_wrong_front_is_seen(wrong, said):
    words = front_words(view_of(pareto=wrong))
    assert words.startswith("The front is not right: ") and said in words
    assert front_words(view_of()) == ("On the front of gap and cost per million tokens: draft: counts, batch 8 + "
                                      "prefix reuse, int4 + batch 32 + prefix reuse.")


# --- pictures -----------------------------------------------------------------------------------

AXES = [pair for pair in permutations(BETTER, 2) if not {*pair} <= {"perplexity", "capitals", "tool_calls"}][::7]


@pytest.mark.parametrize("x, y", AXES)
def test_points_names_and_the_front_on_any_two_columns(x, y):
    front = levers.pareto(ROWS, {name: BETTER[name] for name in (x, y)})
    drawing = check(lambda: levers_drawing(ROWS, front, x=x, y=y))
    chart = Chart.of(ROWS, front, x, y)
    assert sum(map(len, chart.spots.values())) == len(ROWS)
    for a, b in chart.spots:
        assert PLOT.left <= a <= PLOT.right and PLOT.top <= b <= PLOT.bottom
    for axis, apart in ((chart.x, 64), (chart.y, 40)):
        places = [place for place, _ in axis.ticks(apart)]
        assert len(places) >= 2 and all(abs(a - b) >= apart for a, b in pairwise(places))
        assert all(axis.place(float(text) / scale_of(axis.column)) == pytest.approx(place)
                   for place, text in axis.ticks(apart))
    assert all(a[0] == pytest.approx(b[0]) or a[1] == pytest.approx(b[1]) for a, b in pairwise(chart.stairs))
    assert all(chart.place(one) in chart.stairs for one in front)
    if len(front) > 1:
        assert len(paths(drawing, 3)) == 1
    assert sum(name is not None for name in chart.names.values()) >= len(chart.spots) - 1


def scale_of(column):
    return {"ttft_s": 1e3, "gap_s": 1e3, "nbytes": 1e-6, "capitals": 100, "tool_calls": 100}.get(column, 1)


def test_better_is_where_the_title_says():
    chart = Chart.of(ROWS, [], "tokens_per_s", "gap_s")
    drawing = levers_drawing(ROWS, [], x="tokens_per_s", y="gap_s")
    assert "tokens per second (→ better)" in words(drawing) and "gap, ms (↓ better)" in words(drawing)
    assert chart.place(MANY)[0] > chart.place(PLAIN)[0] and chart.place(DRAFT)[1] > chart.place(PLAIN)[1]


@EACH
def test_no_name_covers_a_point_or_the_line_of_another(customer):
    view = view_of(customer)
    chart = Chart.of(view.rows, view.front, "gap_s", "dollars_per_million", chosen=view.chosen.name)
    assert all(chart.names.values()), "there is room for all"
    for spot, name in chart.names.items():
        assert not any(within(name.area, other) for other in chart.spots)
        for other, its in chart.names.items():
            if other != spot:
                assert not name.area.overlaps(its.area)
                assert not any(within(name.area, point) for point in between(other, meets(other, its.area)))


@pytest.mark.parametrize("seed", range(6))
def test_in_a_crowd_no_line_to_a_name_runs_through_another_point(seed):
    draw = Random(seed)
    rows = [row(setting, draw.lognormvariate(5, 0.3), 50, draw.lognormvariate(2, 0.5), 40) for setting in SETTINGS]
    chart = Chart.of(rows, [], "gap_s", "dollars_per_million")
    for spot, name in chart.names.items():
        line = between(spot, meets(spot, name.area)) if name else []
        way = [point for point in line if math.dist(point, spot) > 2 * DOT]
        assert all(math.dist(point, other) >= DOT + 2 for point in way for other in chart.spots if other != spot)


def test_points_that_overlap_are_two():
    """Each has a ground of paper, wider than itself."""
    drawing = levers_drawing(ROWS, [])
    circles = [part for part in drawing.parts if part.startswith("<circle")]
    grounds, points = circles[::2], circles[1::2]
    assert len(grounds) == len(points) == len(ROWS)
    assert all("f-paper" in ground and f'r="{DOT + 2}"' in ground for ground in grounds)


@pytest.mark.parametrize("seed", range(6))
def test_in_a_crowd_no_name_lies_on_the_line_to_another(seed):
    draw = Random(seed)
    rows = [row(setting, draw.lognormvariate(5, 0.3), 50, draw.lognormvariate(2, 0.5), 40) for setting in SETTINGS]
    front = levers.pareto(rows, {name: BETTER[name] for name in ("gap_s", "dollars_per_million")})
    chart = Chart.of(rows, front, "gap_s", "dollars_per_million")
    named = {spot: name for spot, name in chart.names.items() if name}
    assert len(named) >= len(chart.spots) - 2
    for spot, name in named.items():
        for other, its in named.items():
            if other != spot:
                assert not any(within(name.area, point) for point in between(other, meets(other, its.area)))


def test_no_line_runs_through_a_name():
    """The front and the limits are drawn before the ground of the names, and the points after it."""
    view = view_of()
    drawing = still(view)
    names = {(area.left, area.top) for area in (name.area for name in
             Chart.of(view.rows, view.front, "gap_s", "dollars_per_million", chosen=view.chosen.name,
                      bounds={"gap_s": 4 * PLAIN.gap_s}).names.values())}
    grounds = [part for part in drawing.parts if part.startswith("<rect") and "f-paper" in part]
    assert len(grounds) == len(names) == len(ROWS)
    first, last = (drawing.parts.index(grounds[i]) for i in (0, -1))
    assert last - first == len(grounds) - 1
    through = [i for i, part in enumerate(drawing.parts) if part.startswith("<path")
               and ("stroke-dasharray" in part or "s-query" in part)]
    assert through and max(through) < first
    assert min(i for i, part in enumerate(drawing.parts) if part.startswith("<circle")) > last


def test_settings_at_one_place_share_a_spot():
    twin = row(Setting("int8"), 200, 40, 4, 40)
    rows = (*ROWS, twin, row(Setting("bfloat16"), 200, 40, 4, 40))
    chart = Chart.of(rows, [], "gap_s", "dollars_per_million")
    assert [name.lines for name in chart.names.values() if "plain" in name.lines] == [("plain", "and 2 more")]
    chosen = Chart.of(rows, [], "gap_s", "dollars_per_million", chosen="int8")
    assert [name.lines for name in chosen.names.values() if name.bold] == [("int8", "and 2 more")]
    drawing = check(lambda: levers_drawing((*ROWS, twin), []))
    areas = dict(drawing.texts)
    assert areas["plain"].left == areas["int8"].left and 0 < areas["int8"].top - areas["plain"].bottom < 10


def test_columns_without_a_spread_are_drawn():
    same = [row(Setting(max_num_seqs=n), 200, 40, 4, 40) for n in (1, 2, 4)]
    check(lambda: levers_drawing(same, same, x="gap_s", y="capitals"))
    assert Axis.of("nbytes", same, 0, 100).place(same[0].nbytes) == pytest.approx(50)


@EACH
def test_shapes_say_what_colours_say(customer):
    view = view_of(customer)
    drawing = check(lambda: still(view))
    assert drawing.description == levers_summary(view)
    forbidden = sum(bool(found) for found in view.broken.values())
    crosses = [path for thick in (2.6, 3.6) for path in paths(drawing, thick)]
    assert len(crosses) == 2 * forbidden
    circles = [part for part in drawing.parts if part.startswith("<circle")]
    assert len([part for part in circles if 'r="8"' in part]) == len(ROWS) - forbidden
    [ring] = [part for part in circles if 'r="16"' in part]
    x, y = Chart.of(ROWS, view.front, "gap_s", "dollars_per_million").place(view.chosen)
    assert (float(re.search('cx="(.*?)"', ring)[1]), float(re.search('cy="(.*?)"', ring)[1])) == pytest.approx(
        (x, y), abs=0.1)
    dashed = [part for part in drawing.parts if "stroke-dasharray" in part]
    assert len(dashed) == (customer == "chat"), "the gap's limit"


def test_the_page_is_themed_and_says_everything():
    html = levers_html(view_of())
    root = ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.S)[0])
    assert root.get("role") == "img" and root.get("aria-label") == levers_summary(view_of())
    assert "prefers-color-scheme" not in html and "body[data-jp-theme-light=false] .course-needs .f-ink" in html
    assert "<title" not in html and "aria-labelledby" not in html
    html = levers_html(view_of(limits=WAITS))
    for text in ('data-chosen="batch 8 + prefix reuse"', 'data-allowed="5"', 'data-customer="chat"', 'role="status"',
                 "aria-current=true", "breaks 2 limits", "8 settings in a table", "better, and not allowed"):
        assert text in html
    assert html.count("<tr") == 1 + 2 + 1 + len(ROWS)


@pytest.mark.parametrize("call", [
    lambda: levers_drawing(ROWS[:1], []), lambda: levers_drawing(ROWS, [], x="gap_s", y="gap_s"),
    lambda: levers_drawing(ROWS, [], x="speed"), lambda: Wish("x", (), "speed"), lambda: Wish.of("nobody"),
    lambda: Wish("x", (Limit("gap_s", 1), Limit("gap_s", 2)), "gap_s"), lambda: view_of(x="nbytes", y="nbytes"),
    lambda: view_of(rows=ROWS[1:]), lambda: view_of(rows=(*ROWS, PLAIN)), lambda: view_of(rows=ROWS[:1])])
def test_what_cannot_be_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()


# --- functions that are wrong -------------------------------------------------------------------

@pytest.mark.parametrize("value", [3, "plain", "int4 + batch 32", math.nan, ..., [PLAIN], (PLAIN, 0.1), True])
def test_a_choice_is_a_row_or_none(value):
    with pytest.raises(ValueError, match=r"choose\(…\) = .* must be one of the rows, or None"):
        view_of(choose=lambda *_: value)


@pytest.mark.parametrize("value", [None, 3, "plain", ["plain"], [PLAIN, None], {PLAIN.name: PLAIN}, ..., [[PLAIN]]])
def test_a_front_is_a_list_of_rows(value):
    with pytest.raises(ValueError, match=r"pareto\(…\) = "):
        view_of(pareto=lambda *_: value)


def test_a_row_twice_on_the_front_is_refused_and_rows_are_named_in_messages():
    with pytest.raises(ValueError, match=r"pareto.* must be each row once"):
        view_of(pareto=lambda *_: [PLAIN, PLAIN])
    with pytest.raises(ValueError, match=r"\['plain', 7\]"):
        view_of(pareto=lambda *_: [PLAIN, 7])


def test_functions_cannot_change_the_rows():
    def greedy(rows, limits, objective):
        rows.clear()
        limits.clear()

    view = view_of(pareto=lambda rows, better: rows.clear() or better.clear() or [], choose=greedy)
    assert view.rows == ROWS and len(view.broken) == len(ROWS)


# --- the panel ----------------------------------------------------------------------------------

def test_a_customer_sets_all_knobs_and_asks_once():
    asked = []
    panel = levers_widget(ROWS, levers.pareto, lambda *args: asked.append(args[1:]) or choose(*args))
    knobs = panel.children[0].children
    assert [knob.description for knob in knobs] == ["customer", "wants", "across", "up", "first token", "gap", "memory",
                                                    "perplexity", "capitals", "tool calls"]
    for n, customer in enumerate(("phone", "nightly", "chat"), 2):
        panel.customer.value = customer
        assert len(asked) == n and panel.customer.value == customer and panel.objective.value == asked[-1][1]
        assert f'data-chosen="{BEST[customer].name}"' in panel.picture.value
        times = {name: knob.value for name, knob in panel.limits.items() if knob.value}
        assert times == {limit.column: limit.times_plain for limit in CUSTOMERS[customer].limits}


def test_a_limit_of_ones_own():
    panel = levers_widget(ROWS, levers.pareto, choose)
    panel.limits["ttft_s"].value = 8.0
    assert panel.customer.value == OWN and 'data-customer="your own"' in panel.picture.value
    panel.limits["gap_s"].value = 0.0
    assert f'data-chosen="{ROUGH.name}"' in panel.picture.value
    panel.limits["perplexity"].value = 1.01
    assert f'data-chosen="{MANY.name}"' in panel.picture.value
    panel.objective.value = "gap_s"
    assert f'data-chosen="{DRAFT.name}"' in panel.picture.value and panel.message.value == ""
    panel.customer.value = "chat"
    assert panel.limits["nbytes"].value == 0.0 and f'data-chosen="{REUSE.name}"' in panel.picture.value
    before = panel.picture.value
    panel.customer.value = OWN
    assert panel.picture.value == before.replace('data-customer="chat"', 'data-customer="your own"').replace(
        "Customer: chat", "Customer: your own")


def test_axes_change_and_must_differ():
    panel = levers_widget(ROWS, levers.pareto, choose, x="nbytes", y="perplexity")
    assert 'data-x="nbytes"' in panel.picture.value and panel.customer.value == "chat"
    before = panel.picture.value
    panel.y.value = "nbytes"
    assert "another column than x" in panel.message.value and panel.picture.value == before
    panel.x.value = "ttft_s"
    assert panel.message.value == "" and 'data-x="ttft_s" data-y="nbytes"' in panel.picture.value
    assert panel.customer.value == "chat" and "course-levers" in panel._dom_classes


@pytest.mark.parametrize("column", ["ttft_s", "gap_s", "nbytes", "perplexity", "capitals", "tool_calls"])
def test_limits_to_choose_from_hold_the_customers_and_none(column):
    values = [value for _, value in choices(column)]
    assert len(set(values)) == len(values) and 0.0 in values
    assert {limit.times_plain for customer in CUSTOMERS.values() for limit in customer.limits
            if limit.column == column} <= set(values)
    strict = [value for value in values if value]
    assert strict == sorted(strict)


def test_what_a_function_does_wrong_is_said_and_the_panel_goes_on():
    now = {"pareto": levers.pareto, "choose": choose}
    panel = levers_widget(ROWS, lambda *args: now["pareto"](*args), lambda *args: now["choose"](*args))
    before = panel.picture.value
    for name, value in (("pareto", None), ("choose", 7)):
        right, now[name], said = now[name], lambda *_, value=value: value, f"{name}(…) = {value}"
        panel.customer.value = "phone" if panel.customer.value == "chat" else "chat"
        assert "Not updated." in panel.message.value and said in panel.message.value and panel.picture.value == before
        now[name] = right

    def broken(*_):
        raise ZeroDivisionError("by 0")

    now["choose"] = broken
    with pytest.raises(ZeroDivisionError):  # to the log, with its traceback
        panel.customer.value = "nightly"
    assert "ZeroDivisionError: by 0" in panel.message.value and panel.picture.value == before
    now["choose"] = choose
    panel.limits["gap_s"].value = 2.0
    assert panel.message.value == "" and panel.customer.value == OWN


@pytest.mark.parametrize("wrong", [{"customer": "nobody"}, {"customer": OWN}, {"x": "speed"},
                                   {"x": "dollars_per_million"}])
def test_a_panel_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        levers_widget(ROWS, levers.pareto, choose, **wrong)


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = levers_widget(ROWS, levers.pareto, choose)
    first = picture_of(panel)
    assert still_of(panel) == levers_summary(view_of())
    caption = first.split("<figcaption>")[1]
    assert caption.startswith(f"Customer: chat. {verdict(view_of())}") and "Limits" not in caption
    panel.customer.value = "phone"
    assert picture_of(panel) == first == picture_of(levers_widget(ROWS, levers.pareto, choose))
