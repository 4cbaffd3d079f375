"""Files that lie beside these modules: templates, style sheets and scripts."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
TEMPLATES = Environment(loader=FileSystemLoader(HERE / "assets"), autoescape=True, undefined=StrictUndefined,
                        trim_blocks=True, lstrip_blocks=True)


def read(name: str) -> str:
    """The text of a file, named from this folder on, such as `assets/slides.css`."""
    return (HERE / name).read_text(encoding="utf-8")
