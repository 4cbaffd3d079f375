"""The widget *agent, message by message*: a question, tools, a dictionary that strangers may have edited, the mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from course_lib.config import require
from course_lib.display.agent_record import ADDED, MAX_STEPS, TOOLS, RunLoop, Setting, recorded
from course_lib.display.agent_still import FIRST, agent_drawing
from course_lib.display.agent_view import AgentView, agent_html, agent_summary, agent_view, still_line
from course_lib.display.widgets import LABELLED, Live, Message, Picture, slider
from course_lib.generate import LanguageModel

FLURBIN = "What does flurbin mean?"
EXAMPLES = {"a sum": Setting(), "a sum of long numbers": Setting("What is 12345678 + 8765432?"),
            "a word": Setting(FLURBIN), "a word that is not in the dictionary": Setting("What does blorp mean?"),
            "a forged message, pasted": Setting(FLURBIN, meanings="with a forged message", pasted=True),
            "a forged message, encoded apart": Setting(FLURBIN, meanings="with a forged message"),
            "a question in plain words": Setting(FLURBIN, meanings="with a question in plain words"),
            "a question that needs no tool": Setting("What is gravity?")}
NONE = ""  # of the examples
MAX_CHARACTERS = 300


def agent_widget(lm: LanguageModel, run_loop: RunLoop, *, question: str = "What is 1234 + 5678?",
                 tools: Sequence[str] = ("calculator", "dictionary"), grammar: bool = False,
                 max_steps: int = 4) -> AgentPanel:
    """Watch an agent's loop, message by message.

    Args:
        lm: writes the assistant's messages, greedily.
        run_loop: called with (reply, messages, tools, max_steps=n); returns (messages, reason). `reply` takes the
            messages so far and returns the model's next one; tools are functions of their arguments, by name.
        question: at first.
        tools: names of those that are offered at first, out of calculator and dictionary.
        grammar: whether the model may write only text, or one call that fits a tool, at first.
        max_steps: messages of the model at most, at first.

    Raises:
        ValueError: a setting cannot be, or `run_loop` returns what cannot be.
    """
    return AgentPanel(lm, run_loop, Setting(question, tuple(tools), grammar=grammar, max_steps=max_steps))


class AgentPanel(Live):
    """What `agent_widget` returns."""

    def __init__(self, lm: LanguageModel, run_loop: RunLoop, start: Setting) -> None:
        self.lm, self.run_loop = lm, run_loop
        self.choosing = False  # an example turns several knobs
        wide = {"style": LABELLED, "layout": W.Layout(width="auto")}
        self.example = W.Dropdown(options=[("choose one", NONE), *EXAMPLES.items()], value=NONE,
                                  description="examples", **wide)
        self.question = W.Text(start.question, description="question", continuous_update=False, **wide)
        self.tools = {name: W.Checkbox(name in start.tools, description=name, indent=False) for name in TOOLS}
        self.grammar = W.Checkbox(start.grammar, description="grammar mask", indent=False)
        self.meanings = W.Dropdown(options=list(ADDED), value=start.meanings, description="meanings", **wide)
        self.pasted = W.Dropdown(options=[("encoded apart, as data", False), ("pasted into the text", True)],
                                 value=start.pasted, description="results", **wide)
        self.max_steps = slider(W.IntSlider, start.max_steps, 1, MAX_STEPS, 1, "max_steps")
        self.shown = slider(W.IntSlider, 1, 1, 1, 1, "message", live=True)
        self.picture, self.message = Picture(), Message()
        first = self.update()
        self.knobs = [self.question, *self.tools.values(), self.grammar, self.meanings, self.pasted, self.max_steps]
        for knob in self.knobs:
            knob.observe(self.on_change, "value")
        self.example.observe(self.on_example, "value")
        self.shown.observe(self.on_shown, "value")
        switches = W.Box([*self.tools.values(), self.grammar], layout=W.Layout(flex_flow="row wrap"))
        for switch in switches.children:
            switch.layout = W.Layout(width="auto", margin="2px 18px 2px 4px")
        grid = W.GridBox([self.meanings, self.pasted, self.max_steps, self.shown],
                         layout=W.Layout(grid_template_columns="repeat(auto-fit, minmax(280px, 1fr))"))
        super().__init__([self.example, self.question, switches, grid, self.message, self.picture],
                         figure=lambda: agent_drawing(first), alt=agent_summary(first, min(FIRST, len(first.entries))),
                         shown=still_line(first),
                         turn="question, tools, meanings and mask, and step through the messages")
        self.add_class("course-agents")

    def update(self) -> AgentView:
        """Run the loop, and show the whole conversation.

        Raises:
            ValueError: there is no question, or the loop returns what cannot be.
        """
        n = len(self.question.value)
        require(n <= MAX_CHARACTERS, "len(question)", n, f"<= {MAX_CHARACTERS}")
        setting = Setting(self.question.value, tuple(name for name, box in self.tools.items() if box.value),
                          self.meanings.value, self.pasted.value, self.grammar.value, self.max_steps.value)
        self.view = agent_view(*recorded(self.lm, self.run_loop, setting))
        self.shown.max = len(self.view.entries)
        self.shown.value = self.shown.max
        self.draw()
        return self.view

    def draw(self) -> None:
        """The conversation up to the message that is chosen."""
        self.picture.value = agent_html(self.view, self.shown.value)

    def on_change(self, change: Any) -> None:
        """Another conversation; it is none of the examples any more."""
        if not self.choosing:
            self.example.value = NONE
            with self.message:
                self.update()

    def on_example(self, change: Any) -> None:
        """Its question, meanings and way of reading, in one go."""
        setting = self.example.value
        if setting == NONE:
            return
        self.choosing = True
        try:
            self.question.value, self.meanings.value = setting.question, setting.meanings
            self.pasted.value = setting.pasted
        finally:
            self.choosing = False
        with self.message:
            self.update()

    def on_shown(self, change: Any) -> None:
        """Another place in the same conversation."""
        with self.message:
            self.draw()
