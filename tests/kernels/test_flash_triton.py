"""The Triton kernel passes the tests of every tiled attention, on a GPU or interpreted, and compiles for GPUs."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here; `make test-kernels` installs it and runs these")

from attention_cases import AttentionCases, assert_close, expected, tensors

from course_lib.analysis.attention_time import attention_calls, attention_inputs, fastest
from course_lib.costs import LLAMA_3_8B
from course_lib.flash_triton import fitting_block, flash_attention_triton, interpreted

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


class TestTritonKernel(AttentionCases):
    """The cases of `course_lib.flash.flash_attention`."""

    DTYPES = (torch.float32, torch.bfloat16, torch.float16)
    BLOCKS = ((16, 32), (64, 16))
    DEVICE = DEVICE
    attend = staticmethod(flash_attention_triton)


def test_these_tests_run_the_kernel():
    assert interpreted() == (not GPU or os.environ.get("TRITON_INTERPRET") == "1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("Dh", [1, 32, 100, 128, 256])
def test_blocks_chosen_for_the_head(dtype, Dh):
    q, k, v = (x.to(DEVICE) for x in tensors(1, 2, 1, 19, 70, Dh, dtype))
    assert_close(flash_attention_triton(q, k, v, causal=True), expected(q, k, v, True),
                 2e-2 if dtype == torch.bfloat16 else 1e-5)


def test_products_in_float32_get_smaller_blocks():
    def block(dtype, Dh):
        return fitting_block(torch.empty(1, 1, 1, Dh, dtype=dtype))

    assert [block(torch.float32, Dh) for Dh in (1, 32, 64, 80, 128, 256)] == [64, 64, 64, 32, 32, 16]
    assert {block(torch.bfloat16, Dh) for Dh in (32, 128, 256)} == {64}


@pytest.mark.parametrize("change, message", [
    (lambda q, k, v: (q.double(), k.double(), v.double()), r"q\.dtype = torch\.float64 .* one of torch\.float32"),
    (lambda q, k, v: (q, k, v[..., :4]), r"v\.shape = \(2, 3, 5, 4\) .* that of k"),
    (lambda q, k, v: (q, k.mT.contiguous().mT, v), r"k\.stride\(3\) = 5"),
    (lambda q, k, v: [torch.zeros(1, 1, 2, 300, device=DEVICE)] * 3, r"v\.shape = \(1, 1, 2, 300\) .* Dh <= 256"),
    (lambda q, k, v: (q, k, v.to("meta")), r"v\.device = .*meta.* that of q"),
])
def test_what_the_kernel_is_not_written_for_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        flash_attention_triton(*change(*(x.to(DEVICE) for x in tensors(2, 6, 3, 4, 5, 8, torch.float32))), causal=True)


@pytest.mark.parametrize("block", [8, 48, 512, True])
def test_a_block_is_a_power_of_two_from_16(block):
    q, k, v = (x.to(DEVICE) for x in tensors(2, 6, 3, 4, 5, 8, torch.float32))
    with pytest.raises(ValueError, match=rf"block_k = {block} .* one of \(16, 32, 64, 128, 256\)"):
        flash_attention_triton(q, k, v, causal=True, block_k=block)


def in_a_process_without_the_interpreter(code):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env=environment | {"PYTHONPATH": path})


def test_a_cpu_without_the_interpreter_is_told_what_to_set():
    run = in_a_process_without_the_interpreter(
        "import torch; from course_lib.flash_triton import flash_attention_triton; x = torch.ones(1, 1, 2, 16)\n"
        "flash_attention_triton(x, x, x, causal=True)")
    assert "ValueError: q.device = device(type='cpu') is not allowed: must be a GPU" in run.stderr
    assert "TRITON_INTERPRET=1" in run.stderr


COMPILE = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from course_lib.flash_triton import attention_tile

TYPES = {"fp32": tl.float32, "bf16": tl.bfloat16, "fp16": tl.float16}
for capability, name, Dh, block in %r:
    constants = {"CAUSAL": True, "DOT": TYPES[name], "BLOCK_Q": block, "BLOCK_K": block, "BLOCK_D": Dh}
    types = {"q": "*" + name, "k": "*" + name, "v": "*" + name, "out": "*" + name, "scale": "fp32"}
    signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in attention_tile.arg_names}
    compiled = triton.compile(ASTSource(attention_tile, signature, constants), target=GPUTarget("cuda", capability, 32))
    print(capability, name, Dh, compiled.metadata.shared, "mma" in compiled.asm["ptx"], len(compiled.asm["cubin"]) > 0)
"""
TARGETS = [(80, "bf16", 32, 64), (80, "fp16", 256, 64), (80, "fp32", 64, 64), (80, "fp32", 256, 16),
           (90, "bf16", 128, 64), (90, "fp32", 128, 32)]


def test_the_compiler_accepts_it_for_gpus_that_are_not_here():
    """An A100 (8.0) and an H100 (9.0): machine code, 16 bits on tensor cores, and tiles that fit shared memory."""
    run = in_a_process_without_the_interpreter(COMPILE % (TARGETS,))
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [(int(row[0]), row[1], int(row[2])) for row in rows] == [target[:3] for target in TARGETS]
    for _, name, _, shared, tensor_cores, code in rows:
        assert int(shared) <= 163_840 and code == "True" and tensor_cores == str(name != "fp32")


@pytest.mark.skipif(not GPU, reason="times say something on a GPU only")
def test_on_a_gpu_it_is_faster_than_three_steps():
    """Of Llama 3 8B, 8,192 tokens: three steps move 34 GB. Run pytest with -s to see the times."""
    calls = attention_calls(*attention_inputs(LLAMA_3_8B, 8192, device="cuda", dtype=torch.bfloat16))
    assert_close(calls["Triton"]().double(), calls["SDPA"]().double(), 2e-2)
    seconds = fastest(calls, rounds=10)
    print("\n" + ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in seconds.items()), torch.cuda.get_device_name())
    assert seconds["Triton"] < seconds["three steps"] / 2
