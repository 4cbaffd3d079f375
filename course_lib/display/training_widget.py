"""A training that shows itself while it runs, and a learning-rate schedule with knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as W
from IPython.display import display

from course_lib.display import training_view
from course_lib.display.show import bundle
from course_lib.display.widgets import LABELLED, Live, Message, Picture, seed_field, slider
from course_lib.training.train import TrainConfig, learning_rate

Schedule = Callable[[int, TrainConfig], float]
SAVED = "A progress bar, a loss curve that grows and texts that get better, live in JupyterLab while the cell runs."
STILL = "A still of the panel, after step {step:,} of {steps:,}. Run the cell to watch the curve grow."


class TrainingPanel(W.VBox):
    """A progress bar, the loss curve so far, and what the model writes on the way.

    It has no knobs and needs no reader: without a browser it collects the same log. A saved notebook shows a
    still of it, the loss curve with the texts as a list: `finish` puts it in the place of the empty panel.

    Args:
        steps: of the run.
        chance: the loss of a uniform guess, where the curve begins.
    """

    def __init__(self, steps: int, chance: float) -> None:
        self.steps, self.chance = steps, chance
        self.entries: list[dict[str, float]] = []
        self.samples: list[tuple[int, str]] = []
        self.shown: Any = None
        self.bar = W.IntProgress(0, 0, steps, description="training", style=LABELLED,
                                 layout=W.Layout(width="min(420px, 100%)"))
        self.picture = Picture()
        super().__init__([self.bar, self.picture])
        self.add_class("course-trainer")
        self.draw()

    def add(self, entry: Mapping[str, float], sample: str = "") -> None:
        """Show one more entry of the log, and a text if there is one."""
        self.entries.append(dict(entry))
        if sample:
            self.samples.append((entry["step"], sample))
        self.bar.value = entry["step"]
        self.draw()

    def start(self) -> None:
        """Display the panel, before the training."""
        self.shown = display(self, display_id=True)

    def finish(self) -> None:
        """Say that the training is over, so that what is saved of the panel is its last picture."""
        if self.shown is not None:
            self.shown.update(self)

    def draw(self) -> None:
        """Draw what there is."""
        self.picture.value = training_view.training_html(self.entries, self.samples, steps=self.steps,
                                                         chance=self.chance)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return super()._repr_mimebundle_(**kwargs) | (self.still() if self.entries else {"text/plain": SAVED})

    def still(self) -> dict[str, str]:
        """What there is, without a kernel: the curve and the texts."""
        figure = training_view.training_figure(self.entries, chance=self.chance)
        still = bundle(figure, STILL.format(step=self.entries[-1]["step"], steps=self.steps))
        texts = "".join(f"\nstep {at:,}: {text}" for at, text in self.samples)
        return {"text/html": still["text/html"] + training_view.samples_html(self.samples),
                "text/plain": still["text/plain"] + texts}


def schedule_widget(share: float, *, schedule: Schedule = learning_rate, steps: int = 200,
                    seed: int = 0) -> SchedulePanel:
    """Peak, warm-up and decay of a learning rate, and what they do to one weight that learns from noise.

    Args:
        share: of the two outcomes that the weight has to learn, that of the first.
        schedule: gives the rate of a step, called as `course_lib.training.train.learning_rate` is.
        steps: of gradient descent.
        seed: of the outcomes, to begin with.
    """
    return SchedulePanel(share, schedule, steps, seed)


class SchedulePanel(Live):
    """What `schedule_widget` returns. Every change walks the whole way anew, in about a millisecond."""

    def __init__(self, share: float, schedule: Schedule, steps: int, seed: int) -> None:
        self.share, self.schedule, self.steps = share, schedule, steps
        self.knobs = {"peak_lr": slider(W.FloatSlider, 1.0, 0.05, 5.0, 0.05, "peak rate"),
                      "warmup_steps": slider(W.IntSlider, 20, 0, steps, 5, "warm-up"),
                      "decay_fraction": slider(W.FloatSlider, 0.5, 0.0, 1.0, 0.05, "decay"),
                      "seed": seed_field(seed)}
        self.picture, self.message = Picture(), Message()
        first = self.descent()
        self.update()
        for knob in self.knobs.values():
            knob.observe(self.update, "value")
        grid = W.GridBox(list(self.knobs.values()),
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(300px, 1fr))"))
        super().__init__([grid, self.message, self.picture],
                         figure=lambda: training_view.descent_figure(first), turn="peak rate, warm-up, decay and seed",
                         alt=f"A learning rate that rises, stays and falls, and a weight that follows it. "
                             f"{training_view.descent_summary(first)}")
        self.add_class("course-schedule")

    def descent(self) -> training_view.Descent:
        """The way of the weight as the knobs stand."""
        values = {name: round(knob.value, 6) for name, knob in self.knobs.items()}
        config = TrainConfig(steps=self.steps, **values)
        rates = [float(self.schedule(step, config)) for step in range(self.steps)]
        return training_view.descend(self.share, rates, config.seed)

    def update(self, change: Any = None) -> None:
        """Walk and draw."""
        with self.message:
            self.picture.value = training_view.descent_html(self.descent())
