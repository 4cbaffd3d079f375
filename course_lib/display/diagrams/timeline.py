"""Generation as a scheme: what goes into each run of the model, what comes out, and the cache that grows beneath."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width

LEFT = 28
TOKEN, NARROW, GAP, SKIPPED = 54, 54, 12, 52  # widths: of a token of the prompt, of a run that decodes, and between
OUT, RUN, SLICES = (100, 38), (182, 48), (246, 15)  # top and height: of a token made, of a run, of a slice
DEEPEST = 13  # slices that there is room for


def timeline(prompt: Sequence[str], answer: Sequence[str], last: str, *, runs: int) -> Drawing:
    """One wide run reads the prompt, narrow ones read a token each, and the cache keeps what was read.

    Args:
        prompt: texts of the prompt's tokens, at most five.
        answer: texts of the first tokens of the answer, three to five; every one but the last is seen to go in again.
        last: the token that the last run reads, after which the answer ends.
        runs: all of them, prefill included.
    """
    check(prompt, answer, last, runs)
    held = len(prompt) + runs - 1
    drawing = Drawing("Generation: one run for the prompt, then one for each token",
                      in_words(prompt, answer, runs, held), height=SLICES[0] + SLICES[1] * DEEPEST + 64)
    places = all_runs(len(prompt), len(answer) - 1)
    phases(drawing, places, len(prompt), runs)
    reads = [prompt, *([token] for token in answer[:-1]), [last]]
    for i, (area, read, written) in enumerate(zip(places, reads, [*answer, "end"])):
        final = i == len(places) - 1
        one_run(drawing, area, read, written, ended=final)
        cache(drawing, area, held if final else len(prompt) + i, new=1 if i else len(prompt))
    for before, after in zip(places, places[1:-1]):
        back(drawing, before, after)
    for y in (sum(OUT) - 12, RUN[0] + 30, SLICES[0] + 60):
        drawing.text((places[-2].right + places[-1].left) / 2, y, "…", size=24)
    drawing.text(LEFT, drawing.height - 18, "KV cache, in tokens, after each run", size=SMALL, anchor="start",
                 bold=True)
    return drawing


def check(prompt: Sequence[str], answer: Sequence[str], last: str, runs: int) -> None:
    """Raise a ValueError unless the scheme can be drawn."""
    require(0 < len(prompt) <= 5, "prompt", prompt, "1 to 5 tokens")
    require(3 <= len(answer) <= 5, "answer", answer, "3 to 5 tokens")
    require(runs > len(answer) + 1, "runs", runs, f"above {len(answer) + 1}")
    for token in (*prompt, *answer, last):
        require(text_width(shown(token), SMALL, mono=True) < TOKEN, "token", token, "at most five letters or so")


def in_words(prompt: Sequence[str], answer: Sequence[str], runs: int, held: int) -> str:
    """The scheme for a reader who cannot see it."""
    return (f"Runs of the model from left to right. Prefill, one wide box, reads the {len(prompt)} tokens of the "
            f"prompt at once and makes one token, “{answer[0].strip()}”. {runs - 1} narrow boxes, decode, follow: "
            f"each reads the token made before it and makes the next, until the end. Beneath each box the KV cache: "
            f"{len(prompt)} slices after prefill, one more after each run, {held} at the end.")


def shown(token: str) -> str:
    """A token with its space made visible."""
    return token.replace(" ", "␣")


def all_runs(tokens: int, decode: int) -> list[Area]:
    """Where prefill is, the first runs that decode, and the last one."""
    edge = LEFT + TOKEN * tokens
    places = [Area(LEFT, RUN[0], edge, sum(RUN))]
    places += [run_after(edge + GAP + (NARROW + GAP) * i) for i in range(decode)]
    return [*places, run_after(places[-1].right + SKIPPED)]


def run_after(left: float) -> Area:
    """Where a run that decodes is."""
    return Area(left, RUN[0], left + NARROW, sum(RUN))


def phases(drawing: Drawing, places: Sequence[Area], tokens: int, runs: int) -> None:
    """Prefill and decode over their runs."""
    for name, numbers, left, right in (
            ("prefill", f"1 run reads {tokens} tokens", places[0].left, places[0].right),
            ("decode", f"{runs - 1} runs read 1 token each", places[1].left, places[-1].right)):
        drawing.text(left, 36, name, bold=True, anchor="start")
        drawing.text(left, 61, numbers, size=SMALL, role="faint", anchor="start")
        drawing.path([(left + 2, 83), (left + 2, 75), (right - 2, 75), (right - 2, 83)], thick=1.8)


def one_run(drawing: Drawing, area: Area, read: Sequence[str], written: str, *, ended: bool) -> None:
    """A run with the tokens that it reads, and over its end the token that it makes."""
    drawing.rect(area, fill="plain", stroke="ink")
    pitch = (area.right - area.left) / len(read)
    for i, token in enumerate(read):
        drawing.text(area.left + pitch * (i + 0.5), area.top + 30, shown(token), size=SMALL, mono=True)
    made = Area(area.right - NARROW, OUT[0], area.right, sum(OUT))
    drawing.rect(made, fill="paper" if ended else "mark", stroke="ink", dashed=ended)
    drawing.text((made.left + made.right) / 2, made.bottom - 13, shown(written), size=SMALL, mono=not ended)
    drawing.arrow(((made.left + made.right) / 2, area.top - 3), ((made.left + made.right) / 2, made.bottom + 4))


def back(drawing: Drawing, before: Area, after: Area) -> None:
    """What a run made goes into the next one."""
    x, y = after.left + 10, sum(OUT)
    drawing.path([(before.right + 1, y - 6), (x + 4, y - 2), (x, RUN[0] - 40), (x, RUN[0] - 4)], curved=True,
                 arrow=True, stroke="faint", thick=1.8)


def cache(drawing: Drawing, area: Area, held: int, *, new: int) -> None:
    """A slice for each token that is kept, what is new in full colour; if there are too many, some are left out."""
    top, high = SLICES
    for i in range(min(held, DEEPEST)):
        fresh = i >= min(held, DEEPEST) - new
        if held > DEEPEST and i == DEEPEST // 2:
            drawing.text((area.left + area.right) / 2, top + high * i + 10, "…", role="cache", size=22)
            continue
        drawing.rect(Area(area.left + 1, top + high * i, area.right - 1, top + high * (i + 1)), fill="cache",
                     tint=0.8 if fresh else 0.3, stroke="paper", thick=1.4, radius=0)
    drawing.text((area.left + area.right) / 2, top + high * min(held, DEEPEST) + 22, str(held), size=SMALL, bold=True)
