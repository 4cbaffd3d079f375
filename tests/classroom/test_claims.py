"""A finding is printed, and stops the notebook where it does not hold; of other weights it is only reported."""

from types import SimpleNamespace

import pytest

from course_lib.classroom.claims import claim


def test_what_does_not_hold_stops_the_notebook():
    with pytest.raises(AssertionError, match="does not hold: pigs fly"):
        claim(False, "pigs fly")


def test_a_finding_about_pocket_is_asserted(capsys):
    pocket = SimpleNamespace(name="pocket")
    claim(True, "it knows capitals", pocket)
    assert capsys.readouterr().out == "Holds: it knows capitals.\n"
    with pytest.raises(AssertionError, match="does not hold: it knows capitals"):
        claim(False, "it knows capitals", pocket)


@pytest.mark.parametrize("name", ["pocket-draft", "/models/Qwen3-0.6B"])
def test_of_other_weights_a_finding_is_reported(capsys, name):
    claim(False, "it knows capitals", SimpleNamespace(name=name))
    assert capsys.readouterr().out.startswith("Does not hold: it knows capitals (reported, not asserted")


def test_a_tensor_is_no_truth():
    with pytest.raises(TypeError, match="holds = 1 is not allowed: must be a bool"):
        claim(1, "one is true")
