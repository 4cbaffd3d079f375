"""Notebook 05 in a real JupyterLab: the training shows itself while it runs, and the schedule has knobs.

The notebook trains for a minute and then asserts what came of it. Here a copy of a few of its cells runs with
fewer and smaller steps.
"""

import json

import pytest
from lab import RUN

CELLS = ("imports", "product", "logs", "cross-entropy-exercise", "shift-exercise", "weight", "loop",
         "schedule-exercise", "schedule-widget", "before", "train")
FEWER = ("\nfrom course_lib.training.train import TrainConfig"
         "\nconfig = TrainConfig(steps=100, sequences=4, length=48, long_every=0)")
TRAINING = "document.querySelector('.course-trainer .course-chart')"
SCHEDULE = "document.querySelector('.course-schedule .course-chart')"


@pytest.fixture
def short(root):
    """The name of a copy with the widgets' cells alone and less to train."""
    [path] = root.glob("05_t*.ipynb")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["cells"] = [cell for cell in content["cells"] if cell["id"] in CELLS]
    assert len(content["cells"]) == len(CELLS)
    for cell in content["cells"]:
        cell["outputs"] = []
        cell["source"] = "".join(cell["source"]) + FEWER * (cell["id"] == "before")
    (root / "05_short.ipynb").write_text(json.dumps(content), encoding="utf-8")
    return "05_short.ipynb"


def test_training_is_live_and_the_schedule_follows_its_knobs(short, notebook, picture):
    notebook.open(short)
    page = notebook.page
    page.evaluate(RUN, ["notebook:run-all-cells"])
    notebook.until(f"() => {TRAINING}?.dataset.step > 0 && window.ran === null", timeout_s=240)
    during = int(page.evaluate(f"{TRAINING}.dataset.step"))
    assert 0 < during < 100, "the curve is drawn while the cell still runs"
    notebook.until("() => window.ran !== null", timeout_s=240)
    raised = page.locator("[data-mime-type='application/vnd.jupyter.error']").all_text_contents()
    assert raised == [] and page.evaluate("window.ran") == {"ok": True}
    notebook.until(f"() => {TRAINING}.dataset.step === '100'")
    trainer = notebook.locate(".course-trainer")
    assert trainer.locator("path").count() == 2 and trainer.locator("li").count() >= 2
    assert trainer.locator("li").first.inner_text().split(" ", 1)[1].startswith("The cat")
    assert "Step 100 of 100: loss" in trainer.locator("[role=status]").inner_text()
    picture(trainer, "training")

    notebook.locate(".course-schedule")
    peak, warmup, decay = page.locator(".course-schedule .noUi-handle").all()
    assert page.evaluate(f"{SCHEDULE}.dataset.first") == "0.05"
    warmup.focus()
    page.keyboard.press("Home")
    notebook.until(f"() => {SCHEDULE}.dataset.first === '1'")
    peak.focus()
    page.keyboard.press("End")
    notebook.until(f"() => {SCHEDULE}.dataset.peak === '5'")
    before = page.evaluate(f"{SCHEDULE}.outerHTML")
    decay.focus()
    page.keyboard.press("Home")
    notebook.until(f"([old]) => {SCHEDULE}.outerHTML !== old", before)
    before = page.evaluate(f"{SCHEDULE}.outerHTML")
    page.locator(".course-schedule input[type=number]").fill("77")
    page.keyboard.press("Enter")
    notebook.until(f"([old]) => {SCHEDULE}.outerHTML !== old", before)
    picture(notebook.locate(".course-schedule"), "schedule")
    assert notebook.errors == [] and notebook.strangers == []
