"""A notebook as a whole: where it is."""

from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def notebook_of(number):
    """The path of a notebook, given its two digits."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path
