"""Each drawing as two files, for light and for dark paper: the theme of the site decides, not that of the system."""

from __future__ import annotations

import re
from pathlib import Path

from course_lib.config import require

DARK = re.compile(r"@media \(prefers-color-scheme: dark\)\{(.*?\})\}")


def two_papers(svg: str) -> tuple[str, str]:
    """A drawing of the course on light and on dark paper.

    Raises:
        ValueError: it has no colours for dark paper.

    >>> two_papers("<style>@media (prefers-color-scheme: dark){.f-ink{fill:#fff}}</style>")
    ('<style></style>', '<style>.f-ink{fill:#fff}</style>')
    """
    found = DARK.findall(svg)
    require(len(found) == 1, "colours for dark paper", len(found), "1 block")
    return DARK.sub("", svg), DARK.sub(lambda block: block[1], svg)


def write_drawings(source: Path, target: Path) -> None:
    """Every drawing of a folder as `x.svg` and `x.dark.svg`; other pictures are copied."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.suffix != ".svg":
            (target / path.name).write_bytes(path.read_bytes())
            continue
        light, dark = two_papers(path.read_text("utf-8"))
        (target / path.name).write_text(light, "utf-8")
        (target / f"{path.stem}.dark.svg").write_text(dark, "utf-8")
