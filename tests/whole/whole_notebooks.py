"""A notebook as a whole: where it is, and what its cells wrote."""

from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def notebook_of(number):
    """The path of a notebook, given its two digits."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


def printed(cell):
    """What a code cell wrote to stdout and stderr."""
    return "".join(output.get("text", "") for output in cell.outputs)
