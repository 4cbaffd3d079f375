"""The loss curve, the one weight and their widgets: what is drawn, and what a reader's knobs and functions do."""

import re
from xml.etree import ElementTree

import pytest
from saved_form import still_of

from course_lib.display import training_view, training_widget
from course_lib.display.training_view import (
    Frame,
    chart,
    descend,
    descent_figure,
    descent_html,
    ticks,
    training_figure,
    training_html,
)
from course_lib.display.training_widget import SAVED, TrainingPanel, schedule_widget
from course_lib.training.train import TrainConfig, learning_rate

LOG = [{"step": 10, "loss": 6.0, "val_loss": 5.0, "seconds": 1.2, "tokens": 100, "lr": 0.1},
       {"step": 20, "loss": 3.0, "val_loss": 3.5, "seconds": 2.4, "tokens": 200, "lr": 0.1}]


def parse(markup):
    return ElementTree.fromstring(markup.replace('xmlns="http://www.w3.org/2000/svg" ', ""))


@pytest.mark.parametrize("low, high", [(0, 1), (0, 500), (-20, 3), (0.001, 0.0042), (0, 7000), (2.5, 2.9)])
def test_ticks_are_few_and_inside(low, high):
    values = ticks(low, high)
    assert 2 <= len(values) <= 5 and low <= values[0] and values[-1] <= high
    steps = {round(b - a, 9) for a, b in zip(values, values[1:])}
    assert len(steps) == 1
    with pytest.raises(ValueError, match="two numbers in order"):
        ticks(high, low)


def test_a_frame_maps_its_corners_and_keeps_what_lies_outside_at_the_edge():
    frame = Frame("x", "y", (0, 10), (-1, 1))
    left, bottom = frame.place(0, -1)
    right, top = frame.place(10, 1)
    assert 0 < left < right < training_view.WIDTH and 0 < top < bottom < training_view.HEIGHT
    assert frame.place(5, 0) == ((left + right) / 2, (top + bottom) / 2)
    assert frame.place(99, -9) == (right, bottom)


def test_a_chart_names_its_lines_and_escapes_them():
    frame = Frame("x", "y", (0, 10), (0, 4))
    root = parse(f"<g>{chart(frame, {'a<b': [(0, 0), (10, 4)], 'none': []}, level=('best', 2.0))}</g>")
    texts = [element.text for element in root.iter("text")]
    assert "a<b" in texts and "best" in texts and "none" not in texts
    [path] = root.iter("path")
    assert path.get("d") == "M46.0 188.0L328.0 14.0"
    heights = sorted(float(element.get("y")) for element in root.iter("text") if float(element.get("x")) > 328)
    assert heights[1] - heights[0] >= 15


def test_the_training_picture_holds_the_log_and_the_samples():
    root = parse(training_html(LOG, [(10, "The <b>cat"), (20, "sat")], steps=40, chance=8.3))
    assert root.get("data-step") == "20" and root.get("data-samples") == "2"
    said = "".join(root.find(".//p").itertext())
    assert said == "Step 20 of 40: loss 3.00, validation 3.50 nats, 2 s"
    assert root.find(".//svg").get("aria-label") == said
    assert ["".join(item.itertext()) for item in root.iter("li")] == ["10 The <b>cat", "20 sat"]
    training, validation = (path.get("d") for path in root.iter("path"))
    assert training != validation and training.count("L") == 2, "a start by chance, and two entries"


def test_before_the_first_entry_there_is_a_frame_and_no_line():
    root = parse(training_html([], [], steps=40, chance=8.3))
    assert list(root.iter("path")) == [] and root.get("data-step") == "0"


def test_the_panel_follows_the_log():
    panel = TrainingPanel(40, 8.3)
    before = panel.picture.value
    panel.add(LOG[0])
    assert panel.bar.value == 10 and panel.bar.max == 40 and panel.picture.value != before
    panel.add(LOG[1], "Once upon a time")
    assert panel.entries == LOG and panel.samples == [(20, "Once upon a time")]
    assert panel.picture.value == training_html(LOG, panel.samples, steps=40, chance=8.3)
    assert panel.bar.description == "training" and "course-trainer" in panel._dom_classes


def test_a_panel_that_is_saved_before_the_training_is_a_sentence():
    bundle = TrainingPanel(40, 8.3)._repr_mimebundle_()
    assert bundle["text/plain"] == SAVED and any("widget-view" in kind for kind in bundle)


def test_a_panel_that_is_saved_after_it_is_the_curve_and_the_texts():
    panel = TrainingPanel(40, 8.3)
    panel.add(LOG[0], "The <b>cat")
    panel.add(LOG[1], "sat")
    bundle = panel._repr_mimebundle_()
    assert any("widget-view" in kind for kind in bundle)
    html, plain = bundle["text/html"], bundle["text/plain"]
    assert "<b>step 10:</b> The &lt;b&gt;cat" in html and html.count("<li>") == 2
    assert "A still of the panel, after step 20 of 40." in html
    assert "training: from 8.3 at 0 to 3 at 20" in plain and plain.endswith("\nstep 10: The <b>cat\nstep 20: sat")


def test_a_panel_shows_itself_once_and_is_brought_up_to_date_at_the_end(monkeypatch):
    shown = []

    class Handle:
        def update(self, panel):
            shown.append(("updated", len(panel.entries)))

    monkeypatch.setattr(training_widget, "display", lambda panel, display_id: shown.append("shown") or Handle())
    panel = TrainingPanel(40, 8.3)
    panel.finish()
    assert shown == [], "a panel that nobody displayed has nothing to bring up to date"
    panel.start()
    panel.add(LOG[0])
    panel.finish()
    assert shown == ["shown", ("updated", 1)]


def test_the_still_begins_with_the_uniform_guess():
    training, validation = training_figure(LOG, chance=8.3).axes[0].lines[:2]
    assert list(training.get_xdata()) == [0, 10, 20] and list(training.get_ydata()) == pytest.approx([8.3, 6.0, 3.0])
    assert list(validation.get_ydata()) == pytest.approx([8.3, 5.0, 3.5])


def test_one_step_by_hand():
    # sigmoid(0) = 1/2, so the first step goes up or down by half the rate
    for seed in range(5):
        descent = descend(0.6, [0.3, 0.0], seed, start=0.0)
        assert descent.weights[1] in (0.15, -0.15) and descent.weights[2] == descent.weights[1]
        assert descent.distance == pytest.approx(abs(descent.weights[1] - 0.405465))


def test_a_certain_share_goes_where_the_odds_say_and_a_bad_share_is_refused():
    mean = sum(descend(0.8, [0.2] * 400, seed).weights[-1] for seed in range(60)) / 60
    assert mean == pytest.approx(1.386, abs=0.2)  # ln(0.8 / 0.2); a standard error is about 0.05
    for share in (0, 1, float("nan")):
        with pytest.raises(ValueError, match="share"):
            descend(share, [0.1], 0)


def test_a_schedule_that_decays_ends_nearer_on_average():
    constant, decayed = (TrainConfig(steps=200, peak_lr=1.0, warmup_steps=0, decay_fraction=d) for d in (0.0, 0.5))
    far, near = (sum(descend(0.6, [learning_rate(step, config) for step in range(200)], seed).distance
                     for seed in range(50)) for config in (constant, decayed))
    assert near < 0.6 * far


def test_the_widget_follows_its_knobs():
    panel = schedule_widget(0.6)
    first = panel.picture.value
    assert 'data-first="0.05"' in first and 'data-peak="1"' in first
    panel.knobs["warmup_steps"].value = 0
    assert 'data-first="1"' in panel.picture.value
    panel.knobs["decay_fraction"].value = 0.0
    panel.knobs["peak_lr"].value = 2.0
    panel.knobs["seed"].value = 4
    assert panel.picture.value == descent_html(descend(0.6, [2.0] * 200, 4))
    assert all(knob.description for knob in panel.knobs.values()) and "course-schedule" in panel._dom_classes


def test_the_widget_begins_with_a_seed_and_its_picture_has_rate_and_weight_side_by_side():
    panel = schedule_widget(0.6, seed=4)
    descent = panel.descent()
    assert panel.knobs["seed"].value == 4 and panel.picture.value == descent_html(descent)
    left, right = descent_figure(descent).axes
    assert left.get_ylabel() == "learning rate" and right.get_ylabel() == "weight"
    assert left.get_title("left") == "the schedule" and right.get_title("left") == "the weight that follows it"
    assert list(left.lines[0].get_ydata()) == list(descent.rates)
    assert list(right.lines[-1].get_ydata()) == list(descent.weights)
    assert left.get_position().x1 < right.get_position().x0


def test_the_widget_runs_on_the_function_it_is_given_and_says_what_is_wrong():
    panel = schedule_widget(0.6, schedule=lambda step, config: config.peak_lr / 4)
    assert 'data-peak="0.25"' in panel.picture.value
    before = panel.picture.value

    def broken(step, config):
        raise ValueError("no rate today")

    panel.schedule = broken
    panel.knobs["peak_lr"].value = 3.0
    assert "no rate today" in panel.message.value and panel.picture.value == before


def test_what_is_saved_is_a_picture_with_words():
    assert re.search(r"After 200 steps the weight is -?\d", still_of(schedule_widget(0.6)))
