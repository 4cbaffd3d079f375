"""An agent's conversation message by message: tokens read and written, calls and results, in words and as HTML.

What a model writes and a tool returns is escaped before it becomes markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from course_lib.config import require
from course_lib.display.agent_record import Message, Recorder, Setting
from course_lib.display.roofline_view import duration
from course_lib.display.views import THEME, count, visible

STYLE = """\
.course-agent ol{list-style:none;margin:6px 0;padding:0}
.course-agent li{border:1px solid var(--line);border-left:6px double var(--line);border-radius:4px;margin:6px 0;\
padding:4px 10px;overflow-wrap:anywhere}
.course-agent li.assistant{border-left:6px solid var(--kept)}.course-agent li.tool{border-left:6px dotted var(--ink)}
.course-agent li.new{outline:2px solid var(--ink)}
.course-agent .head{display:flex;flex-wrap:wrap;gap:0 14px;font-size:13px;color:var(--faint)}
.course-agent .head b{color:var(--ink);font-size:14px}
.course-agent .said{font-family:var(--mono);font-size:15px;white-space:pre-wrap}
.course-agent .tokens{line-height:1.9;font-size:13px}
.course-agent .tokens bdi{font-family:var(--mono);white-space:pre;border:1px solid var(--line);border-radius:3px;\
padding:1px 2px;margin-right:2px}
.course-agent .tokens .control{border:2px solid var(--ink);font-weight:700}
.course-agent .alarm{border:2px solid var(--ink);padding:2px 6px;border-radius:4px}
.course-agent .end{font-weight:600}"""
WRITERS = {"user": "template and user", "system": "template and system", "assistant": "the model",
           "tool": "template and tool"}
NEW = ' aria-current="step"'


@dataclass(frozen=True)
class Entry:
    """A message of the conversation.

    Attributes:
        role: whose it is.
        text: its content.
        calls: each as a line.
        tokens: their texts, and which of them are control tokens: what the model wrote, or how it reads the message.
        read, again: tokens that the model read to write it, and how many of them it had read or written before; None
            if the model did not write it.
        seconds: of the model or of the tool; None if neither.
        forged: control tokens that a result has brought along.
    """

    role: str
    text: str
    calls: tuple[str, ...]
    tokens: tuple[tuple[str, bool], ...]
    read: int | None = None
    again: int = 0
    seconds: float | None = None
    forged: int = 0


@dataclass(frozen=True)
class AgentView:
    """A conversation from the question to its end.

    Attributes:
        setting: what was asked.
        entries: the messages.
        reason: why it ended.
        lost: messages that the model wrote and that are not in the conversation.
    """

    setting: Setting
    entries: tuple[Entry, ...]
    reason: str
    lost: int

    def turns(self, n: int) -> list[Entry]:
        """The model's messages among the first `n`."""
        return [entry for entry in self.entries[:n] if entry.read is not None]


def agent_view(recorder: Recorder, messages: Sequence[Message], reason: str) -> AgentView:
    """The record and the conversation that a loop returned, brought together."""
    tokens = pieces(recorder, messages)
    waiting, used, entries, before = list(recorder.turns), list(recorder.used), [], []
    for i, message in enumerate(messages):
        shown = {"role": message["role"], "text": message.get("content") or "",
                 "calls": tuple(f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False, default=str)}"
                                for call in message.get("tool_calls") or ())}
        turn = next((turn for turn in waiting if turn.message == message), None)
        if turn:
            del waiting[: waiting.index(turn) + 1]
            shown |= {"tokens": texts(recorder, turn.ids), "read": len(turn.prompt_ids), "seconds": turn.seconds,
                      "again": common(before, turn.prompt_ids)}
            before = [*turn.prompt_ids, *turn.ids]
        elif message["role"] == "tool":
            ran = next((one for one in used if one.result in (message["content"], None)), None)
            if ran:
                del used[: used.index(ran) + 1]
                shown["seconds"] = ran.seconds
            shown["forged"] = forged(recorder, messages[: i + 1])
        entries.append(Entry(**{"tokens": texts(recorder, tokens[i])} | shown))
    found = len([entry for entry in entries if entry.read is not None])
    return AgentView(recorder.setting, tuple(entries), reason, len(recorder.turns) - found)


def pieces(recorder: Recorder, messages: Sequence[Message]) -> list[list[int]]:
    """The ids of each message, as the model reads them."""
    made, before = [], []
    for i in range(len(messages)):
        ids = recorder.ids(messages[: i + 1], pasted=recorder.setting.pasted)
        made.append(ids[common(before, ids):])
        before = ids
    return made


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two texts have in common from their beginning.

    >>> common([1, 2, 3], [1, 2, 4, 3])
    2
    """
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def control_ids(recorder: Recorder) -> set[int]:
    """The ids of the control tokens."""
    return {token.id for token in recorder.lm.tokenizer.all_added_tokens()}


def texts(recorder: Recorder, ids: Sequence[int]) -> tuple[tuple[str, bool], ...]:
    """The tokens as they are shown."""
    control = control_ids(recorder)
    return tuple((visible(recorder.lm.tokenizer.decode_single_token_bytes(id)), id in control) for id in ids)


def forged(recorder: Recorder, messages: Sequence[Message]) -> int:
    """Control tokens that the last message has only because it was pasted."""
    if not recorder.setting.pasted:
        return 0
    control = control_ids(recorder)
    counts = [sum(id in control for id in recorder.ids(messages, pasted=pasted)) for pasted in (True, False)]
    earlier = [sum(id in control for id in recorder.ids(messages[:-1], pasted=pasted)) for pasted in (True, False)]
    return counts[0] - counts[1] - (earlier[0] - earlier[1])


# Words


def ending(view: AgentView) -> str:
    """Why the conversation ended."""
    if view.reason == "stop":
        return "stop: the last message calls nothing"
    return f"max_steps: {count(view.setting.max_steps, 'message')} of the model, and it still calls"


def agent_summary(view: AgentView, n: int) -> str:
    """What has happened after `n` messages, in words; no times, which are never the same."""
    turns, shown = view.turns(n), view.entries[:n]
    last = shown[-1]
    calls = sum(len(entry.calls) for entry in shown)
    said = [f"{count(n, 'message')}: {', '.join(entry.role for entry in shown)}. The model has read "
            f"{count(sum(turn.read for turn in turns), 'token')} and written "
            f"{count(sum(len(turn.tokens) for turn in turns), 'token')}, {count(calls, 'call')}."]
    said.append(f"The last message calls {'; '.join(last.calls)}." if last.calls else
                f"The last message says “{short(visible_line(last.text), 160)}”.")
    if last.forged:
        said.append(f"It has brought along {count(last.forged, 'control token')}.")
    if n == len(view.entries):
        said.append(f"It ended with {ending(view)}.")
    return " ".join(said)


def visible_line(text: str) -> str:
    """A text on one line, with plain spaces."""
    return visible(text).replace("␣", " ")


def short(text: str, most: int) -> str:
    """The beginning of a text.

    >>> short("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


# Pictures


def agent_html(view: AgentView, n: int) -> str:
    """The first `n` messages, each with its tokens, what they cost, and how the conversation ended.

    Raises:
        ValueError: there are not that many messages.
    """
    require(1 <= n <= len(view.entries), "n", n, f"in [1, {len(view.entries)}]")
    turns = view.turns(n)
    cards = "".join(card(i, entry, new=i == n) for i, entry in enumerate(view.entries[:n], 1))
    end = f'<p class="end">The end, {escape(ending(view))}.</p>' if n == len(view.entries) else ""
    lost = (f'<p class="alarm" role="note">run_loop has lost {count(view.lost, "message")} of the model.</p>'
            if view.lost else "")
    return (f'<div class="course course-agent" data-step="{n}" data-steps="{len(view.entries)}" '
            f'data-reason="{view.reason}" data-turns="{len(turns)}" data-read="{sum(turn.read for turn in turns)}" '
            f'data-written="{sum(len(turn.tokens) for turn in turns)}" '
            f'data-forged="{sum(entry.forged for entry in view.entries[:n])}"><style>{THEME}{STYLE}</style>'
            f"{lost}<ol>{cards}</ol>{end}"
            f'<p class="summary" role="status">{escape(agent_summary(view, n))}</p></div>')


def card(number: int, entry: Entry, *, new: bool) -> str:
    """A message: who, what, how many tokens, and the tokens themselves."""
    calls = "".join(f'<p class="said call">calls {escape(call)}</p>' for call in entry.calls)
    said = f'<p class="said">{escape(entry.text)}</p>' if entry.text else ""
    alarm = (f'<p class="alarm" role="note">{count(entry.forged, "control token")} came with the result: to the model '
             f"they are as good as the template's.</p>" if entry.forged else "")
    boxes = "".join(f'<bdi{" class=" + chr(34) + "control" + chr(34) if control else ""}>{escape(text)}</bdi>'
                    for text, control in entry.tokens)
    return (f'<li class="{entry.role}{" new" if new else ""}"{NEW if new else ""}><p class="head"><b>{number} '
            f"{entry.role}</b><span>{'</span><span>'.join(numbers(entry))}</span></p>{calls}{said}{alarm}"
            f'<p class="tokens" role="group" aria-label="tokens, control tokens in bold">{boxes}</p></li>')


def numbers(entry: Entry) -> list[str]:
    """What a message cost, in words; the template's system message, if there is one, counts with the user's."""
    written, seconds = len(entry.tokens), [] if entry.seconds is None else [duration(entry.seconds)]
    if entry.read is None:
        system = ", the system message included" if holds_system(entry) else ""
        return [f"{count(written, 'token')} by {WRITERS[entry.role]}{system}", *seconds]
    again = f", {entry.again:,} of them again" if entry.again else ""
    return [f"the model read {count(entry.read, 'token')}{again}", f"it wrote {count(written, 'token')}", *seconds]


def holds_system(entry: Entry) -> bool:
    """Whether the tokens of a user's message begin with the system message, which the template wrote."""
    return entry.role == "user" and "".join(text for text, _ in entry.tokens[1:]).startswith("system↵")


def still_line(view: AgentView) -> str:
    """What the model reads and writes in its turns, and with which tools and mask, for a still."""
    turns, setting = view.turns(len(view.entries)), view.setting
    tools = ", ".join(tool.name for tool in setting.offered) or "none"
    return (f"In {count(len(turns), 'turn')} the model reads {' + '.join(str(turn.read) for turn in turns)} tokens and "
            f"writes {' + '.join(str(len(turn.tokens)) for turn in turns)}. Tools: {tools}."
            f"{' The grammar mask is on.' if setting.grammar else ''}")
