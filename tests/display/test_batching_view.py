"""The slots of a server: numbers against their runs, time lines, pictures, and a panel on any functions."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from diagrams.well_drawn import check, hatched, words
from saved_form import picture_of, still_of

from course_lib.analysis.serving import POLICIES, PassCost, arrivals
from course_lib.analysis.slot_rules import Pool, scheduler_for, serve_by
from course_lib.classroom import answers
from course_lib.display.batching_picture import EDGE, RIGHT, WIDE, batching_drawing, batching_html
from course_lib.display.batching_view import (
    CHUNK,
    COST,
    REQUESTS,
    SPREADS,
    Setting,
    again,
    batching_finding,
    batching_summary,
    batching_view,
    idle,
    last_start,
    measures,
    names,
    padding,
    shown,
)
from course_lib.display.batching_widget import batching_widget, rates

CASES = [{}, {"policy": "static"}, {"policy": "chunked"}, {"pages": 8}, {"pages": 8, "policy": "chunked", "seed": 3},
         {"rate": math.inf, "policy": "static"}, {"slots": 1, "rate": 5.0}, {"slots": 16, "rate": 400.0, "pages": 48},
         {"spread": "all equal", "policy": "static"}, {"cost": None, "rate": 0.2, "pages": 8}]
EACH = pytest.mark.parametrize("settings", CASES, ids=lambda settings: "-".join(map(str, settings.values())) or "first")
VIEWS = {}
grow, admit = answers.answer("14.1"), answers.answer("14.2")


def view_of(**settings):
    key = tuple(settings.items())
    if key not in VIEWS:
        VIEWS[key] = batching_view(Setting(**settings), grow, admit)
    return VIEWS[key]


@EACH
def test_runs_are_those_of_the_same_requests(settings):
    view, setting = view_of(**settings), Setting(**settings)
    prompt, answer = SPREADS[setting.spread]
    requests = arrivals(REQUESTS, setting.rate, prompt=prompt, answer=answer, seed=setting.seed)
    assert list(view.runs) == list(POLICIES)
    scheduler = scheduler_for(setting.policy, Pool(setting.slots, setting.pages, 16, CHUNK), grow, admit, requests)
    assert serve_by(scheduler, requests, setting.cost or PassCost(1, 0, 0)) == view.run
    assert all(len(reader.tokens) == reader.arrival.answer
               for run in view.runs.values() for reader in run.served.readers)


@EACH
def test_waste_adds_up(settings):
    for policy, run in view_of(**settings).runs.items():
        lost, waited = idle(run)
        assert 0 <= waited <= lost + 1e-12 and lost < 1
        assert padding(run) >= 0 and (padding(run) == 0 or policy == "static")
        assert again(run) >= 0 and (again(run) == 0) == (run.served.preemptions == 0)
        needed = sum(r.arrival.prompt + r.arrival.answer - 1 for r in run.served.readers)
        assert run.served.computed == needed + padding(run) + again(run), "nothing is computed that is not counted"


def test_what_one_would_expect():
    runs = view_of().runs
    waits = {policy: run.served.percentiles(99) for policy, run in runs.items()}
    assert waits["static"][0] > 3 * waits["continuous"][0], "who waits for a whole batch waits longer"
    assert waits["chunked"][2] < 0.6 * waits["continuous"][2], "chunks keep the gaps short"
    assert waits["chunked"][1] > waits["continuous"][1], "and the first token late"
    assert padding(runs["static"]) > 1000 and runs["static"].served.unused > 0.5
    equal = view_of(spread="all equal", policy="static").runs
    assert padding(equal["static"]) == 0, "requests that are all equal waste nothing in a batch"
    tight = view_of(pages=8).runs
    assert tight["continuous"].served.preemptions > 10 and tight["static"].served.preemptions == 0


def test_idle_slots_by_hand():
    view = view_of(slots=1, rate=5.0)
    busy = sum(end - start for start, end in view.run.served.passes)
    assert idle(view.run)[0] == pytest.approx(1 - busy / view.run.served.seconds), "nobody there is idle, too"
    runs = view_of(rate=math.inf, policy="static").runs
    assert idle(runs["static"])[1] > 0.2 and idle(runs["continuous"])[1] < 0.1, "slots that nobody may take"


def test_the_table_says_the_numbers_of_each_policy():
    view = view_of()
    rows = {row.name: row.values for row in measures(view)}
    assert rows["waits for a slot"][1] == "2.14 ms / 62.9 ms" and rows["computed as padding"][1:] == ("0 %", "0 %")
    assert [float(value) for value in rows["throughput, tokens/s"]] == [
        pytest.approx(run.served.tokens_per_s, rel=0.006) for run in view.runs.values()]
    assert {row.name: row.values for row in measures(view_of(pages=8))}["pages taken away"][1] == (
        f"{view_of(pages=8).run.served.preemptions} times")
    passes = [row.name for row in measures(view_of(cost=None, rate=0.2, pages=8))]
    assert passes[:4] == ["waits for a slot, in passes", "waits for its first token, in passes",
                          "between its tokens, in passes", "throughput, tokens a pass"]


def test_the_summary_says_what_is_shown():
    assert batching_summary(view_of()).startswith(
        "100 requests, 50 a second, lengths: wide; 4 slots, 24 pages of 16; continuous. Median and 99th percentile: "
        "waiting 2.14 ms and 62.9 ms, first token 8 ms and 66.1 ms, gap 2.8 ms and 7.9 ms.")
    assert "all at once" in batching_summary(view_of(rate=math.inf, policy="static"))
    counted = batching_summary(view_of(cost=None, rate=0.2, pages=8))
    assert "0.2 a pass" in counted and " ms" not in counted and "tokens a pass" in counted


@EACH
def test_the_finding_is_true_of_the_readers(settings):
    view = view_of(**settings)
    setting, said = view.setting, batching_finding(view)
    waits = sorted(reader.waiting_s for reader in view.run.served.readers)
    half, late = (setting.time(waits[rank - 1]) + ("" if setting.cost else " passes") for rank in (50, 99))
    assert f"half of them wait {half} or less for one, and one in a hundred more than {late}." in said
    assert said.startswith(f"{REQUESTS} requests, ") and len(said) < 200
    assert ("all at once" in said) == math.isinf(setting.rate)


# --- the time line ------------------------------------------------------------------------------

@EACH
@pytest.mark.parametrize("share", [0.0, 0.37, 1.0])
def test_a_slot_does_one_thing_at_a_time(settings, share):
    view = view_of(**settings)
    marks, levels = shown(view, share * last_start(view))
    for slot in range(view.setting.slots):
        row = [mark for mark in marks if mark.slot == slot and mark.kind != "out"]
        assert all(mark.left < mark.right for mark in row)
        assert [a.right for a in row[:-1]] == pytest.approx([b.left for b in row[1:]]), "no gap, nothing over another"
        assert row[0].left == 0 and (row[-1].right == pytest.approx(1) or last_start(view) == 0)
    assert all(level.used <= level.held <= 1 for level in levels)
    assert all(mark.kind in ("idle", "out") or mark.request for mark in marks)
    named = names(marks)
    assert len({(slot, place) for slot, place, _ in named}) == len(named)


def test_the_marks_are_those_of_the_passes():
    view = view_of(pages=8)
    run, start = view.run, 0.3 * last_start(view)
    marks, _ = shown(view, start)
    inside = [i for i, (a, b) in enumerate(run.served.passes) if b > start and a < start + view.setting.window]
    decodes = sum(cell.kind == "decode" for i in inside for cell in run.passes[i].cells if cell)
    assert sum(mark.kind == "decode" for mark in marks) == decodes
    assert sum(mark.kind == "out" for mark in marks) == sum(len(run.passes[i].preempted) for i in inside)
    assert {mark.kind for mark in shown(view_of(policy="static"), 0.0)[0]} >= {"prefill", "decode", "pad", "idle"}


# --- pictures -----------------------------------------------------------------------------------

def svg_of(view, share=0.0):
    html = batching_html(view, share * last_start(view))
    return ElementTree.fromstring(re.search(r'<svg class="time".*?</svg>', html, re.S)[0])


@EACH
def test_the_picture_has_a_row_for_each_slot(settings):
    view = view_of(**settings)
    for share in (0.0, 1.0):
        root = svg_of(view, share)
        high = float(root.get("viewBox").split()[3])
        texts = {text.text for text in root.findall("text")}
        assert {f"slot {i + 1}" for i in range(view.setting.slots)} | {"waiting", "pages"} <= texts
        for rect in root.findall("rect"):
            x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
            assert EDGE - 0.2 <= x and x + width <= RIGHT + 1 and 0 <= y and y + height <= high
        for text in root.findall("text"):
            assert 0 <= float(text.get("x")) <= WIDE and 0 <= float(text.get("y")) <= high
        assert root.get("aria-label") == batching_summary(view)


def test_kinds_differ_in_shape_and_not_only_in_colour():
    tight, static = view_of(pages=8), svg_of(view_of(policy="static"))
    run = tight.run
    times = (start for one, (start, _) in zip(run.passes, run.served.passes)
             if any(cell and cell.kind == "again" for cell in one.cells))
    root = svg_of(tight, (next(times) - 0.5 * tight.setting.window) / last_start(tight))
    high = {kind: {rect.get("height") for rect in root.findall("rect") if rect.get("class") == kind}
            for kind in ("prefill", "decode", "again")}
    assert high == {"prefill": {"24"}, "decode": {"11"}, "again": {"24"}}
    assert root.findall("path[@class='cross']"), "a request that lost its pages is crossed out"
    fills = {rect.get("fill") for rect in static.findall("rect") if rect.get("data-kind") in ("idle", "pad")}
    assert fills == {"url(#slots-hatch)", "url(#slots-pad)"}
    html = batching_html(view_of())
    for said in ("reads its prompt", "writes a token", "reads again", "padding", "idle", "loses its pages"):
        assert f"</svg>{said}</span>" in html


def test_the_policy_that_is_shown_stands_out():
    for policy in POLICIES:
        html = batching_html(view_of(policy=policy) if policy != "continuous" else view_of())
        heads = re.findall(r'<th scope="col"( class="this" aria-current="true")?>', html)
        assert [bool(mark) for mark in heads] == [policy == other for other in POLICIES]
        assert html.count('aria-current="true"') == 1 + 9 and f'data-policy="{policy}"' in html


@EACH
def test_the_still_is_the_same_time_line(settings):
    view = view_of(**settings)
    drawing = check(lambda: batching_drawing(view))
    assert drawing.description == batching_summary(view)
    assert {f"slot {i + 1}" for i in range(view.setting.slots)} <= set(words(drawing)) and hatched(drawing)
    most = max([level.waiting for level in shown(view, 0.0)[1]], default=0)
    assert {f"at most {most}", f"all {view.setting.pages}"} <= set(words(drawing))


# --- settings and functions that are wrong ------------------------------------------------------

@pytest.mark.parametrize("settings, said", [
    ({"policy": "best"}, "policy"), ({"slots": 0}, r"slots = 0.*\[1, 16\]"), ({"slots": 17}, "slots = 17"),
    ({"slots": 2.0}, "slots = 2.0"), ({"pages": 5}, "pages = 5 .*>= 6, what the longest request needs"),
    ({"block_size": 0}, "block_size = 0"), ({"block_size": 4, "pages": 22}, "pages = 22.*>= 23"),
    ({"rate": 0.0}, "rate = 0.0"), ({"spread": "odd"}, "spread"), ({"cost": PassCost(0, 0, 0)}, "cost"),
    ({"cost": PassCost(1, -1, 0)}, "cost")])
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Setting(**settings)


# --- the panel ----------------------------------------------------------------------------------

def test_every_page_and_every_beginning_comes_through_the_functions():
    asked = {"grow": 0, "admit": 0}

    def my_grow(*args):
        asked["grow"] += 1
        return grow(*args)

    def my_admit(*args, **limits):
        asked["admit"] += 1
        return min(1, admit(*args, **limits))  # one at a time

    panel = batching_widget(my_grow, my_admit, rate=math.inf)
    assert asked["grow"] > 3 * REQUESTS and asked["admit"] >= 3 * REQUESTS
    begins = [sum(cell is not None and cell.kind == "prefill" for cell in one.cells)
              for one in panel.view.runs["continuous"].passes]
    assert max(begins) == 1, "nobody but the rule decides"
    before = dict(asked)
    panel.pages.value = 48
    assert asked["grow"] > before["grow"] and 'data-pages="48"' in panel.picture.value


def test_knobs_change_what_they_say():
    panel = batching_widget(grow, admit)
    knobs = [*panel.children[0].children, panel.since]
    assert [knob.description for knob in knobs] == ["policy", "lengths", "slots", "pages", "arrivals", "seed", "time"]
    seen = {panel.picture.value}
    for knob, value in ((panel.policy, "static"), (panel.spread, "some"), (panel.slots, 8), (panel.pages, 12),
                        (panel.rate, 100.0), (panel.seed, 5), (panel.since, 0.5)):
        knob.value = value
        assert panel.picture.value not in seen, knob.description
        seen.add(panel.picture.value)
    assert panel.view.setting == Setting("static", 8, 12, 16, 100.0, "some", 5) and panel.message.value == ""
    assert "course-batching" in panel._dom_classes


def test_moving_along_the_time_serves_nobody_anew():
    asked = []
    panel = batching_widget(grow, lambda *args, **limits: asked.append(1) or admit(*args, **limits))
    n, first = len(asked), panel.view
    panel.since.value = 1.0
    assert len(asked) == n and panel.view is first
    start = float(re.search(r'data-start="([^"]*)"', panel.picture.value)[1])
    assert start == pytest.approx(last_start(first), rel=1e-3)


def test_values_that_are_given_are_on_the_knobs():
    panel = batching_widget(grow, admit, policy="chunked", slots=3, pages=20, rate=7.0, cost=(1e-2, 0, 0))
    assert panel.slots.value == 3 and panel.pages.value == 20 and panel.rate.value == 7.0
    assert panel.view.setting.cost == PassCost(1e-2, 0, 0) and panel.view.setting.policy == "chunked"
    assert batching_widget(grow, admit, rate=math.inf).rate.value == math.inf
    assert [words for words, _ in rates(Setting(rate=0.2, cost=None))][3] == "0.2 a pass"


def test_what_a_function_does_wrong_is_said_and_the_panel_goes_on():
    broken = {"on": False}

    def leaky(table, num_tokens, free, block_size):
        result = grow(table, num_tokens, free, block_size)
        return (result[0], result[1][:-1]) if broken["on"] and result and result[0] != table else result

    panel = batching_widget(leaky, admit)
    before = panel.picture.value
    broken["on"] = True
    panel.seed.value = 1
    assert "Not updated." in panel.message.value and "free after grow(…)" in panel.message.value
    assert panel.picture.value == before
    broken["on"] = False
    panel.seed.value = 2
    assert panel.message.value == "" and panel.picture.value != before


def test_an_exception_of_a_function_is_shown():
    panel = batching_widget(grow, lambda *args, **limits: admit(*args, **limits) // (limits["max_num_seqs"] != 8))
    before = panel.picture.value
    with pytest.raises(ZeroDivisionError):  # to the log, with its traceback
        panel.slots.value = 8
    assert "ZeroDivisionError" in panel.message.value and panel.picture.value == before


@pytest.mark.parametrize("wrong", [{"policy": "mine"}, {"pages": 3}, {"slots": 0}, {"rate": -1.0}])
def test_a_panel_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        batching_widget(grow, admit, **wrong)
    with pytest.raises(ValueError, match="is not allowed"):
        batching_widget(lambda *_: None, admit)


def test_what_is_saved_is_a_picture_of_the_first_setting():
    panel = batching_widget(grow, admit)
    first = picture_of(panel)
    assert "waiting 2.14 ms and 62.9 ms" in still_of(panel)
    assert "half of them wait 2.14 ms or less for one, and one in a hundred more than 62.9 ms." in picture_of(panel)
    panel.policy.value = "static"
    assert picture_of(panel) == first


def test_a_view_is_a_pure_function():
    setting = replace(Setting(), seed=4)
    one, two = (batching_html(batching_view(setting, grow, admit)) for _ in range(2))
    assert one == two and COST == PassCost(2e-3, 2e-4, 1e-4)
