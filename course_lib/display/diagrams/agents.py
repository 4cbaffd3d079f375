"""A conversation with a tool: the loop that it goes through, and the one text that the model sees of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.tool_calls import parse_tool_calls

AUTHORS = {"template": "paper", "user": "latency", "model": "mark", "tool": "quality"}  # who writes, and its colour
LEFT, RIGHT, ROW, TOP = 16, 436, 78, 50  # of a message in the strip, how high it is, and where the first one is
SQUARE = 11.6  # of a token
COLUMNS, WIDE = (456, 596), 108  # where the columns of the two turns begin, and how wide they are
APART, BETWEEN = 8, 50  # from one message to the next, and from a call to its result
LINE, EDGE = 37, 20  # of a raw text: how far lines are apart, and where they begin
CONTROL = re.compile(r"(<\|im_start\|>|<\|im_end\|>|</?tool_call>|</?tool_response>)")

Talk = Sequence[tuple[str, str, int]]  # who wrote it, the text, and in how many tokens


class Told(NamedTuple):
    """A message of a conversation.

    Attributes:
        role: whose it is.
        text: without control tokens.
        tokens: of each, who wrote it.
    """

    role: str
    text: str
    tokens: list[str]

    @property
    def calls(self) -> bool:
        """Whether it calls a tool."""
        return self.text.startswith("calls ")


def messages_of(talk: Talk) -> list[Told]:
    """The messages: each begins with the template's <|im_start|> and the role.

    >>> messages_of([("template", "<|im_start|>user\\n", 3), ("user", "Hi", 1), ("template", "<|im_end|>\\n", 2)])
    [Told(role='user', text='Hi', tokens=['template', 'template', 'template', 'user', 'template', 'template'])]
    """
    made: list[Told] = []
    for author, text, n in talk:
        if text.startswith("<|im_start|>"):
            role, _, rest = text.removeprefix("<|im_start|>").partition("\n")
            made.append(Told(role, CONTROL.sub("", rest).strip(), []))
        elif author != "template":
            calls = [f"{call.name}: {' '.join(map(str, call.arguments.values()))}"
                     for call in parse_tool_calls(text).calls]
            made[-1] = made[-1]._replace(text=f"calls {calls[0]}" if calls else CONTROL.sub("", text))
        made[-1].tokens.extend([author] * n)
    return made


class Turn(NamedTuple):
    """What the model does for one of its messages: where that is, and tokens read and written."""

    place: int
    read: int
    written: int


def turns_of(messages: Sequence[Told]) -> list[Turn]:
    """The model's turns: each reads everything before it, the opening of its own message included."""
    turns, before = [], 0
    for i, message in enumerate(messages):
        if "model" in message.tokens:
            turns.append(Turn(i, before + message.tokens.index("model"), message.tokens.count("model")))
        before += len(message.tokens)
    return turns


def agent_loop(talk: Talk) -> Drawing:
    """A question through the loop: the messages, who wrote their tokens, and what the model reads in each turn.

    Args:
        talk: with a call, its result and an answer.
    """
    messages = messages_of(talk)
    turns = turns_of(messages)
    require([one.role for one in messages] == ["system", "user", "assistant", "tool", "assistant"], "talk", talk,
            "tools, a question, a call, its result and an answer")
    require(messages[2].calls and not messages[4].calls, "talk", talk, "one call")
    tops = [TOP + (ROW + APART) * i + (BETWEEN - APART) * (i > 2) for i in range(5)]
    drawing = Drawing("One question through the loop of an agent", told_loop(messages, turns),
                      height=tops[-1] + ROW + 92)
    drawing.text(LEFT, 32, "messages, a square for each token", size=SMALL, role="faint", anchor="start")
    for top, message in zip(tops, messages):
        draw_message(drawing, top, message)
    for i, (x, turn) in enumerate(zip(COLUMNS, turns)):
        drawing.text(x + WIDE / 2, 32, f"turn {i + 1}", bold=True)
        draw_turn(drawing, x, tops[turn.place], turn)
    tool_runs(drawing, tops, messages)
    drawing.text(704, tops[-1] + ROW + 24, "no call: the end", size=SMALL, bold=True, anchor="end")
    x: float = LEFT
    for author, role in AUTHORS.items():
        x = key(drawing, x, tops[-1] + ROW + 70, role, author)
    drawing.text(704, tops[-1] + ROW + 70, f"read {' + '.join(str(turn.read) for turn in turns)}, "
                 f"written {' + '.join(str(turn.written) for turn in turns)}", size=SMALL, anchor="end")
    return drawing


def key(drawing: Drawing, x: float, y: float, role: str, words: str) -> float:
    """A square of a colour and what it means. Returns where the next one begins."""
    drawing.rect(Area(x, y - 14, x + 16, y + 2), fill=role, stroke="ink", thick=1.2, radius=2)
    drawing.text(x + 24, y, words, size=SMALL, anchor="start")
    return x + 40 + text_width(words, SMALL)


def draw_message(drawing: Drawing, top: float, message: Told) -> None:
    """A message: its role, its text, and its tokens in the colours of those who wrote them."""
    drawing.rect(Area(LEFT, top, RIGHT, top + ROW), fill="plain", stroke="line", thick=1.4)
    drawing.text(LEFT + 10, top + 22, message.role, size=SMALL, role="faint", anchor="start")
    drawing.text(RIGHT - 10, top + 22, f"{len(message.tokens)} tokens", size=SMALL, role="faint", anchor="end")
    drawing.text(LEFT + 10, top + 46, message.text, size=SMALL, anchor="start", bold="model" in message.tokens)
    for i, author in enumerate(message.tokens):
        x = LEFT + 10 + SQUARE * i
        drawing.rect(Area(x, top + 57, x + SQUARE - 1.6, top + 57 + 12), fill=AUTHORS[author],
                     stroke="faint" if author == "template" else "ink", thick=1, radius=1)


def draw_turn(drawing: Drawing, left: float, top: float, turn: Turn) -> None:
    """A turn: a tall bar over all that is read, and the message that is written."""
    drawing.rect(Area(left, TOP, left + WIDE, top + 26), fill="plain", stroke="ink")
    middle = (TOP + top + 26) / 2
    words = ["reads", *["all again"] * (left > COLUMNS[0]), str(turn.read)]
    for i, text in enumerate(words):
        drawing.text(left + WIDE / 2, middle + 7 + 25 * (i - (len(words) - 1) / 2), text, bold=text.isdigit())
    drawing.rect(Area(left, top + 28, left + WIDE, top + ROW), fill="mark", stroke="ink")
    drawing.text(left + WIDE / 2, top + 60, f"writes {turn.written}")
    drawing.arrow((left - 2, top + 53), (RIGHT + 3, top + 53))


def tool_runs(drawing: Drawing, tops: Sequence[float], messages: Sequence[Told]) -> None:
    """From the call to its result, and back to the beginning of the next turn."""
    name = messages[2].text.removeprefix("calls ").partition(":")[0]
    x, top = 120, tops[2] + ROW
    drawing.arrow((x, top + 2), (x, tops[3] - 3))
    drawing.text(x + 16, top + 31, f"the loop runs {name}", size=SMALL, anchor="start")
    y, lane = tops[3] + ROW / 2, (COLUMNS[0] + WIDE + COLUMNS[1]) / 2
    drawing.path([(RIGHT + 3, y), (lane, y), (lane, 26), (COLUMNS[1] + 14, 26)], arrow=True)


def told_loop(messages: Sequence[Told], turns: Sequence[Turn]) -> str:
    """The description of the loop."""
    first, second = turns
    return (f"5 messages from top to bottom, a square for each token. System: the tools. User: {messages[1].text} "
            f"Turn 1 of the model reads these {first.read} tokens and writes {first.written}: it "
            f"{messages[2].text}. The loop runs the tool, the result {messages[3].text} joins the conversation, and an "
            f"arrow leads back to the top: turn 2 reads everything again, {second.read} tokens, and writes "
            f"{second.written}: {messages[4].text} No call: the end.")


def raw_text(talk: Talk, control: Mapping[str, int]) -> Drawing:
    """The same conversation as the model sees it: one text, in which control tokens are blocks with one id.

    Args:
        talk: of the template and the others.
        control: names of control tokens, and their ids.
    """
    lines = written_lines(talk)
    tokens, blocks = sum(n for *_, n in talk), sum(text in control for line in lines for _, text in line)
    drawing = Drawing("The conversation as the model sees it",
                      f"One text of {tokens} tokens in {len(lines)} lines. Control tokens are blocks with one id each, "
                      f"{blocks} of them: im_start and the role begin a message, im_end ends it. What the model wrote "
                      f"is marked: a call between the blocks tool_call and /tool_call, with JSON between them, and the "
                      f"answer. Everything else it only reads, the tool's result between tool_response and "
                      f"/tool_response included.", height=24 + LINE * len(lines) + 48)
    for i, line in enumerate(lines):
        x = EDGE
        if line[0][0] == "model":
            drawing.rect(Area(EDGE - 10, 18 + LINE * i, EDGE - 5, 14 + LINE * (i + 1)), fill="ink", radius=0)
        for author, text in line:
            x = draw_text(drawing, x, 18 + LINE * i, author, text, control)
        require(x <= drawing.width, "talk", "".join(text for _, text in line), "of shorter lines")
    y = 18 + LINE * len(lines)
    x = drawing.tag(EDGE, y + 28, "control token", stroke="ink", radius=5)
    drawing.text(x, y + 28, "with its id", size=SMALL, anchor="start")
    drawing.rect(Area(390, y + 10, 395, y + 36), fill="ink", radius=0)
    x = drawing.tag(398, y + 28, "marked", role="mark", radius=0)
    drawing.text(x, y + 28, "the model wrote it", size=SMALL, anchor="start")
    return drawing


def written_lines(talk: Talk) -> list[list[tuple[str, str]]]:
    """Lines of the text, in pieces: who wrote each, and a control token or a text without one."""
    lines: list[list[tuple[str, str]]] = [[]]
    for author, text, _ in talk:
        for i, part in enumerate(text.split("\n")):
            if i:
                lines.append([])
            lines[-1] += [(author, piece) for piece in CONTROL.split(part) if piece]
    return [line for line in lines if line]


def draw_text(drawing: Drawing, x: float, top: float, author: str, text: str, control: Mapping[str, int]) -> float:
    """A control token as a block with its id, or a piece of text. Returns where the next piece begins."""
    width = text_width(text, SMALL, mono=True)
    fill = "mark" if author == "model" else None
    if text not in control:
        if fill:
            drawing.rect(Area(x, top + 3, x + width + 4, top + LINE - 6), fill=fill, radius=0)
        drawing.text(x + 2, top + 22, text, size=SMALL, mono=True, anchor="start")
        return x + width + 8
    number = text_width(str(control[text]), SMALL)
    end = x + width + number + 22
    drawing.rect(Area(x, top, end, top + LINE - 4), fill=fill or "plain", stroke="ink", thick=1.8, radius=5)
    drawing.text(x + 7, top + 22, text, size=SMALL, mono=True, anchor="start", bold=True)
    drawing.text(end - 7, top + 22, str(control[text]), size=SMALL, role="faint", anchor="end")
    return end + 4
