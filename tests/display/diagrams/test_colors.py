"""One colour code: drawings, plots and widgets say the same with the same colour."""

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb

from course_lib.display import colors, plots, views
from course_lib.display.diagrams import drawing

DISPLAY = Path(colors.__file__).parent
HUES = {"query": "blue", "key": "vermilion", "value": "green", "cache": "purple"}


def contrast(one, other):
    """The ratio of WCAG 2, from 1 to 21."""
    def light(color):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts))
    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_drawings_have_no_colours_of_their_own():
    assert drawing.ROLES is colors.ROLES
    for path in DISPLAY.glob("diagrams/*.py"):
        assert re.findall(r"#[0-9a-fA-F]{6}", path.read_text()) == [], path.name


def test_the_strong_hues_are_those_of_plots():
    assert {role: plots.OKABE_ITO[name].lower() for role, name in HUES.items()} \
        == {role: colors.ROLES[role].light for role in HUES}


def test_a_widget_that_names_a_role_gives_it_the_colour_of_the_role():
    for path in DISPLAY.glob("*.py"):
        for role, color in re.findall(r"--(query|key|value|cache|weights):\s*(#[0-9a-fA-F]{6})", path.read_text()):
            assert color.lower() in colors.ROLES[role], (path.name, role)


def test_every_widget_has_the_colours_of_the_roles_that_widgets_show():
    for role in views.SHOWN:
        assert f"--{role}:{colors.ROLES[role].light};" in views.THEME
        assert f"--{role}:{colors.ROLES[role].dark};" in views.THEME


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_type_is_readable_on_all_that_it_is_written_on(paper):
    shade = {role: pair[paper] for role, pair in colors.ROLES.items()}
    for ground in ("paper", "plain", "mark", *colors.LEVERS):
        assert contrast(shade["ink"], shade[ground]) > 4.5, ground
    for ground in ("paper", "plain", "mark"):
        assert contrast(shade["faint"], shade[ground]) > 3.5, ground
    for role in HUES:
        assert contrast(shade[role], shade["paper"]) > 2.8, role
