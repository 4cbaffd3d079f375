"""Watching an agent: every message is shown with its tokens, on any loop, and a loop that goes wrong is told of."""

import json
import re
from functools import lru_cache
from types import SimpleNamespace

import pytest
from diagrams.well_drawn import check, rects, words
from saved_form import picture_of, still_of

from course_lib import load
from course_lib.agent import run
from course_lib.classroom.answers import answer
from course_lib.display import agent_record
from course_lib.display.agent_record import ADDED, MAX_RUNS, Recorder, Setting, recorded, with_functions
from course_lib.display.agent_still import agent_drawing
from course_lib.display.agent_view import agent_html, agent_summary, agent_view, common, still_line
from course_lib.display.agent_widget import EXAMPLES, agent_widget
from course_lib.tools import CALCULATOR, dictionary_tool

FLURBIN = {"question": "What does flurbin mean?"}
run_loop = answer("16.2")
FORGED = {**FLURBIN, "meanings": "with a forged message"}


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu")


def view_of(lm, loop=run_loop, **settings):
    return agent_view(*recorded(lm, loop, Setting(**settings)))


@lru_cache
def shown(lm, **settings):
    """The same for what does not change the model; made once."""
    return view_of(lm, **settings)


def scripted(lm, monkeypatch, *written):
    """The same model, but its messages are these texts, tags as control tokens, and the last one for ever."""
    turns = iter(written)
    last = [None]

    def decode_steps(lm, prompt_ids, params):
        last[0] = next(turns, last[0])
        for i, id in enumerate([*lm.tokenizer.encode(last[0], allowed_special="all"), 4091]):
            yield SimpleNamespace(token_id=id, positions=len(prompt_ids) if i == 0 else 1, seconds=0.001)

    monkeypatch.setattr(agent_record, "decode_steps", decode_steps)
    return lm


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


# --- the record ---------------------------------------------------------------------------------

@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize("question", ["What is 1234 + 5678?", FLURBIN["question"], "What is gravity?"])
def test_the_conversation_is_that_of_the_library(lm, question, grammar):
    view = shown(lm, question=question, grammar=grammar)
    theirs = run(lm, [{"role": "user", "content": question}],
                 [CALCULATOR, dictionary_tool(agent_record.MEANINGS)], grammar=grammar)
    assert [(entry.role, entry.text) for entry in view.entries] == [
        (message["role"], message["content"] or "") for message in theirs.messages]
    assert [(turn.read, len(turn.tokens)) for turn in view.turns(99)] == [
        (step.turn.prompt_tokens, step.turn.tokens) for step in theirs.steps if step.turn]
    assert view.reason == theirs.finish_reason and view.lost == 0


def test_tokens_are_what_the_model_read_and_wrote(lm):
    recorder, messages, reason = recorded(lm, run_loop, Setting())
    view = agent_view(recorder, messages, reason)
    first, second = recorder.turns
    assert [text for text, _ in view.entries[1].tokens][:2] == ["<tool_call>", "↵"]
    assert second.prompt_ids[: len(first.prompt_ids) + len(first.ids)] == first.prompt_ids + first.ids
    assert (first.message, view.entries[1].again, view.entries[3].again) == (messages[1], 0, 37 + 29)
    assert [entry.read for entry in view.entries] == [None, 37, None, 81]
    assert [len(entry.tokens) for entry in view.entries] == [34, 29, 11, 18]
    assert [sum(control for _, control in entry.tokens) for entry in view.entries] == [4, 3, 4, 1]
    assert view.entries[1].seconds > 0 and view.entries[2].seconds > 0 and view.entries[0].seconds is None


def test_common_beginnings():
    assert (common([], [1]), common([1, 2], [1, 2, 3]), common([1, 2], [2])) == (0, 2, 0)


@pytest.mark.parametrize("settings, forged, answer", [
    (FORGED, 0, None), ({**FORGED, "pasted": True}, 5, "That is Paris."), ({**FLURBIN, "pasted": True}, 0, None),
    ({**FLURBIN, "meanings": "with a question in plain words"}, 0, "The capital of France is Paris."),
    ({**FLURBIN, "meanings": "with a question in plain words", "pasted": True}, 0, "The capital of France is Paris.")])
def test_what_a_stranger_adds(lm, settings, forged, answer):
    view = shown(lm, **settings)
    assert [entry.forged for entry in view.entries] == [0, 0, forged, 0]
    assert answer in (None, view.entries[-1].text)
    assert ("Paris" in view.entries[-1].text) == (answer is not None)
    assert view.entries[2].text.endswith(ADDED[view.setting.meanings])
    assert ("came with the result" in agent_html(view, 3)) == bool(forged)


def test_only_offered_tools_exist(lm):
    assert set(Recorder(lm, Setting()).functions()) == {"calculator", "dictionary", "invalid"}
    assert set(Recorder(lm, Setting(tools=())).functions()) == {"invalid"}
    alone = shown(lm, tools=())
    assert [entry.role for entry in alone.entries] == ["user", "assistant"]
    assert "by template and user</span>" in agent_html(alone, 1), "without tools there is no system message"


def test_a_dictionary_without_the_word_is_asked_until_the_bound(lm):
    view = shown(lm, question="What does blorp mean?", max_steps=3)
    assert view.reason == "max_steps" and [entry.role for entry in view.entries] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert "error" in view.entries[2].text and view.entries[2].seconds is not None
    assert "It ended with max_steps: 3 messages of the model, and it still calls." in agent_summary(view, 6)


def test_a_call_that_cannot_be_read_comes_back_as_a_result(lm, monkeypatch):
    view = view_of(scripted(lm, monkeypatch, "Wait.<tool_call>{'name'}</tool_call>", "Sorry."))
    assert view.entries[1].text == "Wait." and view.entries[1].calls[0].startswith("invalid {")
    assert view.entries[2].text.startswith("error: no JSON") and view.entries[3].text == "Sorry."


def test_two_calls_and_the_same_call_again(lm, monkeypatch):
    two = call("calculator", expression="1 + 1") + call("calculator", expression="2 + 2")
    view = view_of(scripted(lm, monkeypatch, two, two, "4."))
    assert [entry.text for entry in view.entries] == ["What is 1234 + 5678?", "", "2", "4", "", "2", "4", "4."]
    assert len(view.turns(99)) == 3 and all(entry.seconds is not None for entry in view.entries[1:])
    assert "3 messages: user, assistant, tool." in agent_summary(view, 3)


# --- loops that go wrong ------------------------------------------------------------------------

def forgets_the_result(reply, messages, tools, max_steps):
    return [*messages, reply(messages)], "stop"


def loses_a_message(reply, messages, tools, max_steps):
    reply(messages)
    return [*messages, {"role": "assistant", "content": "Hi"}], "stop"


def no_bound(reply, messages, tools, max_steps):
    while True:
        try:
            reply(messages)
        except Exception:
            continue


def runs_on(reply, messages, tools, max_steps):
    while True:
        try:
            tools["calculator"]({"expression": "1"})
        except Exception:
            continue


@pytest.mark.parametrize("loop, said", [
    (no_bound, "asks for message 5 of the model, and max_steps is 4"), (runs_on, f"has run {MAX_RUNS} calls"),
    (lambda *_, **__: None, r"run_loop\(…\)"), (lambda *_, **__: ([], "stop"), "messages of run_loop"),
    (lambda *_, **__: ([{"role": "user", "content": "?"}], "done"), 'reason "stop" or "max_steps"'),
    (lambda *_, **__: ([{"role": "bot", "content": "?"}], "stop"), r"messages\[0\] of run_loop"),
    (lambda reply, *_, **__: reply([{"role": "user"}, "Hi"]), r"messages\[1\] of reply"),
    (lambda reply, *_, **__: reply([{"role": "assistant", "tool_calls": ["f"]}]), r"a call in messages\[0\]")])
def test_what_a_loop_does_wrong_is_said(lm, monkeypatch, loop, said):
    with pytest.raises(ValueError, match=said):
        view_of(scripted(lm, monkeypatch, "Hi"), loop)


def test_a_loop_that_stops_too_soon_or_loses_a_message_is_shown(lm, monkeypatch):
    lm = scripted(lm, monkeypatch, call("calculator", expression="1 + 1"))
    view = view_of(lm, forgets_the_result)
    assert [entry.role for entry in view.entries] == ["user", "assistant"] and view.lost == 0
    lost = view_of(lm, loses_a_message)
    assert lost.lost == 1 and "run_loop has lost 1 message of the model." in agent_html(lost, 2)
    assert lost.entries[1].read is None and lost.entries[1].text == "Hi"


def test_messages_get_the_key_that_templates_want():
    told = [{"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": 1}}]}]
    assert with_functions(told, "it")[0]["tool_calls"] == [{"function": {"name": "f", "arguments": {"x": 1}}}]
    assert "function" not in told[0]["tool_calls"][0], "the caller's messages stay as they were"


# --- pictures -----------------------------------------------------------------------------------

def test_a_step_shows_the_messages_so_far_and_marks_the_last(lm):
    view = shown(lm)
    for n in range(1, 5):
        html = agent_html(view, n)
        assert html.count("<li ") == n and html.count('aria-current="step"') == 1
        assert re.findall(r"<b>(\d \w+)</b>", html) == ["1 user", "2 assistant", "3 tool", "4 assistant"][:n]
        assert ('class="end"' in html) == (n == 4) and agent_summary(view, n) in html.replace("&quot;", '"')
    assert "the model read 81 tokens, 66 of them again" in html and "it wrote 18 tokens" in html
    assert 'data-read="118"' in html and 'data-written="47"' in html and "11 tokens by template and tool" in html
    assert "34 tokens by template and user, the system message included" in html
    assert html.count('class="control"') == 12
    with pytest.raises(ValueError, match="is not allowed"):
        agent_html(view, 5)


def test_what_is_written_never_becomes_markup(lm, monkeypatch):
    html = agent_html(view_of(scripted(lm, monkeypatch, "<b>bold</b> & <script>"), question="<i>?"), 2)
    assert "&lt;b&gt;bold" in html and "<script>" not in html and "<i>" not in html


def test_messages_differ_in_shape_and_not_only_in_colour(lm):
    html = agent_html(shown(lm), 4)
    assert all(style in html for style in ("6px solid", "6px dotted", "6px double", "font-weight:700"))


@pytest.mark.parametrize("settings", [{}, {**FORGED, "pasted": True}, FORGED,
                                      {"question": "What does blorp mean?", "max_steps": 6}])
def test_the_still_has_a_square_for_each_token(lm, settings):
    view = shown(lm, **settings)
    drawing = check(lambda: agent_drawing(view))
    first = view.entries[:8]
    small = [rect for fill in ("ink", "mark", "paper") for rect in rects(drawing, fill) if rect[3] == 12]
    assert len(small) == sum(len(entry.tokens) for entry in first)
    assert len([r for r in rects(drawing, "ink") if r[3] == 12]) == sum(c for entry in first for _, c in entry.tokens)
    assert drawing.description == agent_summary(view, len(first))
    assert ("and 4 messages more" in words(drawing)) == (len(view.entries) == 12)


def test_the_still_says_what_each_turn_cost_and_where_the_system_message_is(lm):
    assert "34 tokens, with the system message" in words(agent_drawing(shown(lm)))
    assert "with the system message" not in "".join(words(agent_drawing(shown(lm, tools=()))))
    assert still_line(shown(lm)) == ("In 2 turns the model reads 37 + 81 tokens and writes 29 + 18. "
                                     "Tools: calculator, dictionary.")
    alone = still_line(shown(lm, tools=(), grammar=True))
    assert alone.startswith("In 1 turn the model reads ") and alone.endswith("Tools: none. The grammar mask is on.")


# --- the panel ----------------------------------------------------------------------------------

def test_knobs_change_what_they_say(lm, monkeypatch):
    asked = []

    def loop(reply, messages, tools, max_steps):
        asked.append((messages[0]["content"], set(tools), max_steps))
        return run_loop(reply, messages, tools, max_steps)

    panel = agent_widget(lm, loop)
    assert asked == [("What is 1234 + 5678?", {"calculator", "dictionary", "invalid"}, 4)]
    assert [box.description for box in panel.tools.values()] == ["calculator", "dictionary"]
    panel.question.value = "What does flurbin mean?"
    assert "a small lamp" in panel.picture.value and panel.shown.value == panel.shown.max == 4
    panel.meanings.value = "with a forged message"
    panel.pasted.value = True
    assert "That is Paris." in panel.picture.value and 'data-forged="5"' in panel.picture.value
    panel.grammar.value = True
    assert panel.view.setting.grammar
    panel.max_steps.value = 1
    assert 'data-reason="max_steps"' in panel.picture.value
    panel.tools["dictionary"].value = False
    assert asked[-1] == ("What does flurbin mean?", {"calculator", "invalid"}, 1)
    assert panel.message.value == "" and "course-agents" in panel._dom_classes


def test_an_example_turns_its_knobs_and_asks_once(lm, monkeypatch):
    asked = []
    panel = agent_widget(scripted(lm, monkeypatch, "Hi"),
                         lambda *args, **kwargs: asked.append(1) or run_loop(*args, **kwargs))
    for n, setting in enumerate(EXAMPLES.values(), 2):
        panel.example.value = setting
        assert panel.view.setting == setting and len(asked) == n
    panel.pasted.value = True
    assert panel.example.label == "choose one" and len(asked) == n + 1 and panel.view.setting.pasted


def test_stepping_asks_nobody_anew(lm):
    asked = []
    panel = agent_widget(lm, lambda *args, **kwargs: asked.append(1) or run_loop(*args, **kwargs))
    before = panel.view
    for n in (1, 3, 4):
        panel.shown.value = n
        assert f'data-step="{n}"' in panel.picture.value
    assert len(asked) == 1 and panel.view is before


def test_what_a_loop_does_wrong_is_said_and_the_panel_goes_on(lm):
    loops = {"now": run_loop}
    panel = agent_widget(lm, lambda *args, **kwargs: loops["now"](*args, **kwargs))
    before = panel.picture.value
    for loop, said in ((no_bound, "message 5"), (lambda *_, **__: 1, "run_loop(…)")):
        loops["now"] = loop
        panel.grammar.value = not panel.grammar.value
        assert "Not updated." in panel.message.value and said in panel.message.value and panel.picture.value == before
    for error in (ZeroDivisionError, KeyboardInterrupt):
        def broken(reply, messages, tools, max_steps, error=error):
            reply(messages)
            raise error
        loops["now"] = broken
        with pytest.raises(error):  # to the log, with its traceback
            panel.grammar.value = not panel.grammar.value
        assert error.__name__ in panel.message.value and panel.picture.value == before
    loops["now"] = run_loop
    panel.max_steps.value = 5
    assert panel.message.value == "" and 'data-written="47"' in panel.picture.value, "the model is as it was"


def test_an_interrupt_between_two_tokens_leaves_the_model_as_it_was(lm, monkeypatch):
    first = shown(lm)
    real = agent_record.decode_steps

    def interrupted(*args):
        for i, step in enumerate(real(*args)):
            if i == 5:
                raise KeyboardInterrupt
            yield step

    with monkeypatch.context() as patched:
        patched.setattr(agent_record, "decode_steps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            view_of(lm)
    again = view_of(lm)
    assert [entry.tokens for entry in again.entries] == [entry.tokens for entry in first.entries]


@pytest.mark.parametrize("wrong", [{"question": " "}, {"question": "x" * 301}, {"tools": ("shell",)}, {"max_steps": 0},
                                   {"max_steps": 9}])
def test_a_panel_that_cannot_be_is_refused(lm, wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        agent_widget(lm, run_loop, **wrong)


def test_an_empty_question_is_refused_and_the_picture_stays(lm):
    panel = agent_widget(lm, run_loop)
    before = panel.picture.value
    panel.question.value = ""
    assert "question" in panel.message.value and panel.picture.value == before


def test_what_is_saved_is_a_picture_of_the_first_setting_without_times(lm):
    panel = agent_widget(lm, run_loop)
    first = picture_of(panel)
    assert "1234 plus 5678 is 6912." in still_of(panel) and still_line(shown(lm)) in first
    panel.question.value = "What is gravity?"
    assert picture_of(panel) == first == picture_of(agent_widget(lm, run_loop))
    assert not re.search(r"\d (ms|µs|s)\b", first)
