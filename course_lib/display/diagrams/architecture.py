"""The rooms of the library: what lies on what, who imports from whom, and the stages of the pipeline in levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width

LEFT, RIGHT, GAP = 18, 702, 30  # where floors begin and end, and the stairs between two of them
ROOM, LINE, MARGIN = 76, 23, 14  # heights of a room and of a line of names, and the margin of a level


class Room(NamedTuple):
    """A room: its name, what is in it in a few words, and how many floors it lies above the pipeline."""

    name: str
    holds: str
    floor: int


ROOMS = (Room("classroom", "exercises, checks, the map", 3), Room("display", "figures and widgets", 3),
         Room("analysis", "what parts do, what things cost", 2), Room("training", "how the weights came to be", 1),
         Room("front", "load, stream; commands", 1))
STAIRS = (("classroom", "analysis"), ("display", "analysis"), ("analysis", "training"), ("training", "pipeline"),
          ("front", "pipeline"))
LEVELS = {
    4: "speculative drafts scheduler engine batch chat_models agent server",
    3: "hf_config hf_pattern merge_list hf_tokenizer weights quantized_files few_rows joined fast_layer compiled "
       "quantize checkpoint generate",
    2: "model",
    1: "added_tokens tokenizer template_limits chat_template detokenize layers kv_cache sampling flash costs "
       "flash_triton published rounding gptq quantized_linear quantized_cache paging paged_cache patterns automaton "
       "byte_regex plain_schema json_schema structural_tag tool_calls tool_messages token_mask grammar calculator "
       "tools",
    0: "config device threads command_line",
}


def architecture(rooms: Sequence[Room], stairs: Sequence[tuple[str, str]], levels: Mapping[int, str]) -> Drawing:
    """Floors with one or two rooms each, and below them the pipeline.

    Args:
        rooms: from the top floor down; those of a floor lie side by side.
        stairs: (upper, lower), the imports that are drawn; what lies deeper may be imported as well.
        levels: names of modules by level, 0 at the bottom.
    """
    floors = {floor: [room for room in rooms if room.floor == floor] for floor in {room.floor for room in rooms}}
    require(all(1 <= len(side) <= 2 for side in floors.values()), "rooms", len(rooms), "1 or 2 on each floor")
    lines = {level: lines_of(names.split()) for level, names in levels.items()}
    top = 18 + (ROOM + GAP) * len(floors)
    bottom = top + 44 + sum(LINE * len(each) + MARGIN + 8 for each in lines.values())
    drawing = Drawing("The rooms of the library", told(rooms, levels), height=bottom + 56)
    areas = {"pipeline": Area(LEFT, top, RIGHT, bottom)}
    for place, floor in enumerate(sorted(floors, reverse=True)):
        areas |= one_floor(drawing, floors[floor], 18 + (ROOM + GAP) * place)
    for upper, lower in stairs:
        step(drawing, areas[upper], areas[lower])
    pipeline(drawing, areas["pipeline"], lines)
    drawing.text(360, bottom + 32, "an arrow: imports from there, and from everything below", size=SMALL,
                 role="faint")
    return drawing


def told(rooms: Sequence[Room], levels: Mapping[int, str]) -> str:
    """The description."""
    names = {floor: " and ".join(room.name for room in rooms if room.floor == floor and room.name != "front")
             for floor in sorted({room.floor for room in rooms}, reverse=True)}
    count = sum(len(names.split()) for names in levels.values())
    return (f"A house. From the top floor down: {', '.join(names.values())}; each arrow of imports goes down. At the "
            f"bottom lies the pipeline, {count} modules on {len(levels)} levels: {levels[0].replace(' ', ', ')} at the "
            f"very bottom, model on its own in the middle, engine, agent and server on top. The front door, load and "
            f"stream, leads straight into it.")


def lines_of(names: Sequence[str]) -> list[str]:
    """Names as lines that fit between the number of the level and the right edge."""
    lines = [""]
    for name in names:
        longer = f"{lines[-1]} · {name}" if lines[-1] else name
        if text_width(longer, SMALL) > RIGHT - LEFT - 64:
            lines.append(name)
        else:
            lines[-1] = longer
    return lines


def one_floor(drawing: Drawing, rooms: Sequence[Room], top: float) -> dict[str, Area]:
    """The rooms of a floor side by side, and where they lie."""
    width = (RIGHT - LEFT - 12 * (len(rooms) - 1)) / len(rooms)
    areas = {}
    for i, room in enumerate(rooms):
        left = LEFT + i * (width + 12)
        area = areas[room.name] = Area(left, top, left + width, top + ROOM)
        drawing.rect(area, fill="plain", stroke="ink")
        middle = (area.left + area.right) / 2
        drawing.text(middle, top + 32, room.name, size=NORMAL, bold=True)
        drawing.text(middle, top + 58, room.holds, size=SMALL, role="faint")
    return areas


def step(drawing: Drawing, upper: Area, lower: Area) -> None:
    """An arrow from the upper room straight down to the lower one, through what both stand over."""
    x = (max(upper.left, lower.left) + min(upper.right, lower.right)) / 2
    drawing.arrow((x, upper.bottom + 2), (x, lower.top - 3))


def pipeline(drawing: Drawing, area: Area, lines: Mapping[int, Sequence[str]]) -> None:
    """The ground floor: a band for each level, the upper ones import from the lower ones."""
    drawing.rect(area, fill="paper", stroke="query", thick=2.5)
    drawing.text((area.left + area.right) / 2, area.top + 30, "the pipeline, level by level", bold=True)
    y = area.top + 44
    for level in sorted(lines, reverse=True):
        height = LINE * len(lines[level]) + MARGIN
        band = Area(area.left + 8, y, area.right - 8, y + height)
        drawing.rect(band, fill="query", tint=0.1, radius=4)
        drawing.text(band.left + 14, y + height / 2 + 6, str(level), bold=True, role="faint", size=SMALL)
        for i, line in enumerate(lines[level]):
            drawing.text(band.left + 34, y + LINE * (i + 1) + 1, line, size=SMALL, anchor="start")
        y += height + 8
