"""The drawings of the notebooks that need no run of the reader's, as files: `python -m course_lib drawings`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from course_lib.classroom.course_map import CHAPTERS, notebooks_folder
from course_lib.config import ModelConfig
from course_lib.display.diagrams.attention import Example, attention_by_hand
from course_lib.display.diagrams.block import block
from course_lib.display.diagrams.choosing import unit_interval
from course_lib.display.diagrams.drawing import Drawing
from course_lib.display.diagrams.heads import shared_heads, splitting_heads
from course_lib.display.diagrams.induction import induction_circuit
from course_lib.display.diagrams.learning import loss_valley, shifted_labels
from course_lib.display.diagrams.pipeline import strip
from course_lib.display.diagrams.positions import Hand, clock_hands, turning_pairs
from course_lib.display.diagrams.tokens import merge_tree, one_hot_product

# The shape of pocket, as far as drawings show it.
POCKET = ModelConfig(vocab_size=4096, hidden_size=256, intermediate_size=640, num_hidden_layers=10,
                     num_attention_heads=8, num_key_value_heads=2)
STATIONS = [(chapter.file[:2], chapter.title) for chapter in CHAPTERS]
WORDS = Example(["Time", "flies", "fast"], x=[[1, 0, 0, 2, 0], [0, 1, 0, 0, 2], [0, 0, 1, 0, 1]],
                queries=[[0, 2, 0, 2], [2, 0, 2, 0], [0, 4, 1, 0]],
                keys=[[1, 0, 2, 0], [0, 1, 0, 2], [0, 0, 0, 1]],
                values=[[2, 0, 0, 1], [0, 0, 5, 0], [0, 1, 2, 0]])

DRAWINGS: dict[str, Callable[[], Drawing]] = {
    **{f"{number}_strip": lambda number=number: strip(STATIONS, number) for number, _ in STATIONS},
    "01_merge_tree": lambda: merge_tree("banana bandana", [(97, 110), (256, 97), (98, 256)]),
    "02_one_hot": lambda: one_hot_product([[1, 2, 3], [10, 20, 30], [4, 5, 6], [40, 50, 60], [7, 8, 9]], [3, 1, 3]),
    "02_turning": lambda: turning_pairs((2, 1), (3, 1), math.pi / 2),
    "02_speeds": lambda: clock_hands([Hand(pair, 10_000 ** (-pair / 16)) for pair in (0, 5, 10, 15)], (1, 32, 1024)),
    "03_attention_by_hand": lambda: attention_by_hand(WORDS),
    "03_splitting_heads": lambda: splitting_heads(3),
    "03_shared_heads": lambda: shared_heads(POCKET, 1024),
    "03_induction": lambda: induction_circuit("Diego", "Anya", early="layer 1, head 0", late="layer 3, head 4"),
    "04_block": lambda: block(POCKET.hidden_size, POCKET.intermediate_size, POCKET.num_attention_heads),
    "05_labels": lambda: shifted_labels([str(i) for i in range(100, 109)]),
    "05_valley": lambda: loss_valley(0.6, (0.2, 3, 10), start=-3.0, steps=40),
    "07_unit_interval": lambda: unit_interval([(f"id {i}", p) for i, p in enumerate((0.4, 0.3, 0.2, 0.1))], 0.642),
}


def write_drawings(folder: Path) -> list[Path]:
    """Write every drawing as an SVG file; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in DRAWINGS.items():
        files.append(folder / f"{name}.svg")
        files[-1].write_text(draw().svg(), encoding="utf-8")
    return files


def main() -> int:
    """Write the drawings into the notebooks' folder of images."""
    for file in write_drawings(notebooks_folder() / "images"):
        print(file)
    return 0
