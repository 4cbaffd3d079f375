"""The roofline's three numbers: which one counts, and the laws that follow for real models and machines."""

import pytest

from course_lib.analysis.roofline import (
    LLAMAS,
    MACHINES,
    Machine,
    bound,
    critical_batch,
    decode_seconds,
    dollars_per_million,
    prefill_seconds,
    regime,
)
from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, weight_bytes

SMALL = Machine("small", bytes_per_s=10e9, flops_per_s=100e9, overhead_s=1e-3, memory_bytes=8e9, dollars_per_hour=3.6)


@pytest.mark.parametrize("flops, nbytes, seconds, name", [
    (1e9, 1e6, 0.01, "compute"), (1e6, 1e9, 0.1, "memory"), (1e6, 1e6, 1e-3, "overhead")])
def test_the_slowest_of_three_counts(flops, nbytes, seconds, name):
    assert bound(flops, nbytes, SMALL) == seconds and regime(flops, nbytes, SMALL) == name


def test_several_machines_share_the_work_and_the_bill():
    eight = SMALL.times(8)
    assert eight == Machine("8 x small", 80e9, 800e9, 1e-3, 64e9, 28.8)
    assert eight.balance == SMALL.balance == 10
    assert Machine("unknown", 1, 1).times(2).dollars_per_hour is None


@pytest.mark.parametrize("bytes_per_weight, batch", [(4, 20), (2, 10), (0.5, 2.5)])
def test_at_the_critical_batch_reading_and_computing_take_as_long(bytes_per_weight, batch):
    """Up to the caches, norms and embedding rows, which the rule leaves out: together below 2 % here."""
    assert critical_batch(SMALL, bytes_per_weight) == batch
    free = Machine("free", SMALL.bytes_per_s, SMALL.flops_per_s)
    one = decode_seconds(LLAMA_3_8B, 1, free, bytes_per_weight=bytes_per_weight)
    for factor in (0.5, 1):
        rows = max(1, int(batch * factor))
        same = decode_seconds(LLAMA_3_8B, 1, free, batch_size=rows, bytes_per_weight=bytes_per_weight)
        assert same == pytest.approx(one, rel=0.02)
    many = decode_seconds(LLAMA_3_8B, 1, free, batch_size=8 * int(batch + 1), bytes_per_weight=bytes_per_weight)
    assert many / one == pytest.approx(8 * int(batch + 1) / batch, rel=0.02)


@pytest.mark.parametrize("name", MACHINES)
def test_prefill_is_bound_by_computing_and_decode_by_memory(name):
    """Claim 18, for models of this size: 2,000 tokens at once against one."""
    machine = MACHINES[name]
    for config in LLAMAS.values():
        per_read = prefill_seconds(config, 2000, machine) / 2000
        per_written = decode_seconds(config, 2000, machine)
        assert per_written > 5 * per_read
        assert prefill_seconds(config, 4000, machine) > 1.9 * prefill_seconds(config, 2000, machine)
        assert per_written == pytest.approx(weight_bytes(config) / machine.bytes_per_s, rel=0.1)


def test_known_numbers():
    """8 B weights in bfloat16 at 3.35 TB/s; a 70B model on eight; int4 reads a quarter of bfloat16."""
    h100 = MACHINES["H100 SXM"]
    assert 1 / decode_seconds(LLAMA_3_8B, 1, h100) == pytest.approx(3.35e12 / 15.01e9, rel=0.01)
    assert decode_seconds(LLAMA_3_70B, 1, h100.times(8)) == pytest.approx(139e9 / 26.8e12, rel=0.01)
    int4 = decode_seconds(LLAMA_3_8B, 1, h100, bytes_per_weight=0.5)
    assert decode_seconds(LLAMA_3_8B, 1, h100) / int4 == pytest.approx(4, rel=0.01)
    assert all(machine.source and machine.dollars_per_hour and machine.memory_bytes for machine in MACHINES.values())


def test_money():
    assert dollars_per_million(seconds=1.0, tokens=1000, machine=SMALL) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="dollars_per_hour = None"):
        dollars_per_million(1.0, 1, Machine("unknown", 1, 1))
    with pytest.raises(ValueError, match="tokens = 0"):
        dollars_per_million(1.0, 0, SMALL)


@pytest.mark.parametrize("change, named", [
    ({"bytes_per_s": 0}, "bytes_per_s = 0"), ({"flops_per_s": -1}, "flops_per_s"),
    ({"overhead_s": -1}, "overhead_s = -1")])
def test_a_machine_that_cannot_be_is_refused(change, named):
    with pytest.raises(ValueError, match=named):
        Machine(**{"name": "x", "bytes_per_s": 1, "flops_per_s": 1} | change)
