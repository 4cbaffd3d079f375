"""One colour code: a role looks the same in drawings, plots and widgets, and can be told from the others."""

import re
from itertools import combinations
from pathlib import Path

from course_lib.display import plots, views
from course_lib.display.colors import ROLES
from course_lib.display.diagrams import drawing

FOLDER = Path(plots.__file__).parent


def luminance(color):
    """Relative luminance of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(a, b):
    """The ratio of WCAG 2, from 1 to 21."""
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


def test_the_strong_hues_are_those_of_okabe_and_ito():
    palette = {color.lower() for color in plots.OKABE_ITO.values()}
    assert {ROLES[role].light for role in ("query", "key", "value", "cache")} <= palette


def test_roles_differ_and_can_be_seen_on_their_paper():
    for side, paper in ((0, ROLES["paper"].light), (1, ROLES["paper"].dark)):
        roles = [ROLES[role][side] for role in ("query", "key", "value", "cache", "weights", "ink")]
        assert len(set(roles)) == len(roles)
        assert min(contrast(color, paper) for color in roles) >= 2.5
        assert contrast(ROLES["ink"][side], paper) > 12 and contrast(ROLES["faint"][side], paper) > 4.5
    assert all(a != b for a, b in combinations([ROLES[r].light for r in ("cost", "latency", "memory", "quality")], 2))


def test_widgets_and_drawings_take_their_roles_from_here():
    for role in views.SHOWN:
        assert f"--{role}:{ROLES[role].light};" in views.THEME and f"--{role}:{ROLES[role].dark};" in views.THEME
    assert drawing.ROLES is ROLES


def test_no_other_module_writes_the_colour_of_a_role():
    """`--kept` and the tokens' borders are colours of their own: what is kept is solid, whatever its hue."""
    own = {"cache": ROLES["cache"], "value": ROLES["value"]}
    for path in FOLDER.rglob("*.py"):
        if path.name not in ("colors.py", "plots.py", "tokenizer_view.py"):
            written = {color.lower() for color in re.findall(r"#[0-9a-fA-F]{6}\b", path.read_text())}
            assert not written & {color for shade in own.values() for color in shade}, path
