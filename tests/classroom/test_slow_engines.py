"""Each slow engine has one limit, which its table shows and no other engine's table does."""

import pytest

from course_lib.analysis.roofline import regime
from course_lib.classroom.checks.nb09 import EVIDENCE, diagnosis
from course_lib.classroom.slow_engines import HALVED, LIMITS, SUSPECTS, after_halving
from course_lib.costs import decode_bytes, flops_per_token, kv_bytes_per_token, weight_bytes

TABLE = {"A": (0.50, 0.99, 1.00), "B": (0.56, 0.56, 0.94), "C": (1.00, 1.00, 1.00), "D": (0.99, 0.99, 0.51)}


@pytest.mark.parametrize("letter", SUSPECTS)
def test_the_table_of_an_engine(letter):
    row = [after_halving(SUSPECTS[letter], what) for what in HALVED]
    assert row == pytest.approx(TABLE[letter], abs=0.005)


@pytest.mark.parametrize("letter", SUSPECTS)
def test_the_limit_of_an_engine_is_its_diagnosis(letter):
    config, machine, rows, context, bits = engine = SUSPECTS[letter]
    assert weight_bytes(config, bits / 8) + rows * context * kv_bytes_per_token(config) < machine.memory_bytes
    nbytes = decode_bytes(config, context, batch_size=rows)
    limit = regime(rows * flops_per_token(config, context).total, nbytes, machine)
    if limit == "memory":
        cache = rows * context * kv_bytes_per_token(config)
        limit = "cache" if cache > weight_bytes(config, bits / 8) else "weights"
    assert limit == diagnosis()[letter] and engine.seconds() > 0


def test_every_limit_has_an_engine_and_evidence():
    assert sorted(diagnosis().values()) == sorted(LIMITS)
    assert set(EVIDENCE) == set(diagnosis()) == set(SUSPECTS)
    with pytest.raises(ValueError, match="what = 'price'"):
        after_halving(SUSPECTS["A"], "price")
