"""How fast a machine could run a model, from three numbers of the machine and the shape of the model.

A step reads bytes and computes. Both can go on at the same time, so the slower one counts, and no program is faster
than that (Williams et al. 2009). What a step costs that reads and computes nothing is the machine's overhead; where
it is the largest of the three, neither memory nor arithmetic explains the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from course_lib.config import ModelConfig, require
from course_lib.costs import LLAMA_3_8B, LLAMA_3_70B, decode_bytes, flops_per_token, prefill_flops

LLAMAS = {"Llama 3 8B": LLAMA_3_8B, "Llama 3 70B": LLAMA_3_70B}


@dataclass(frozen=True)
class Machine:
    """What limits a model on it.

    Attributes:
        bytes_per_s: read from main memory.
        flops_per_s: of large matrix products; a multiply and an add are two.
        overhead_s: of one step, whatever its size.
        memory_bytes: for weights and caches; None: not known.
        dollars_per_hour: to rent it; None: not known.
        source: where the numbers are from.
    """

    name: str
    bytes_per_s: float
    flops_per_s: float
    overhead_s: float = 0.0
    memory_bytes: float | None = None
    dollars_per_hour: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        require(self.bytes_per_s > 0, "bytes_per_s", self.bytes_per_s, "> 0")
        require(self.flops_per_s > 0, "flops_per_s", self.flops_per_s, "> 0")
        require(self.overhead_s >= 0, "overhead_s", self.overhead_s, ">= 0")

    @property
    def balance(self) -> float:
        """FLOPs in the time of one byte. A step that does fewer for each byte waits for memory."""
        return self.flops_per_s / self.bytes_per_s

    def times(self, n: int) -> Machine:
        """`n` of them that share every matrix, as if the exchange between them were free."""
        require(n >= 1, "n", n, ">= 1")
        memory, price = self.memory_bytes, self.dollars_per_hour
        return replace(self, name=f"{n} x {self.name}", bytes_per_s=n * self.bytes_per_s,
                       flops_per_s=n * self.flops_per_s, memory_bytes=memory and n * memory,
                       dollars_per_hour=price and n * price)


# Peaks of products without sparsity: of bfloat16, printed by the maker, for NVIDIA's; computed where a source says so.
# Prices are assumptions, round numbers of late 2025: a GPU in the cloud by the hour; a computer at home as its price
# over three years of use day and night, without power.
MACHINES: dict[str, Machine] = {machine.name: machine for machine in (
    Machine("H100 SXM", 3.35e12, 989e12, memory_bytes=80e9, dollars_per_hour=2.5,
            source="NVIDIA H100 datasheet: 3.35 TB/s; 1,979 TFLOPS with sparsity, half of it without"),
    Machine("H200", 4.8e12, 989e12, memory_bytes=141e9, dollars_per_hour=3.5,
            source="NVIDIA H200 datasheet: 4.8 TB/s; 1,979 TFLOPS with sparsity, half of it without"),
    Machine("RTX 4090", 1.008e12, 165.2e12, memory_bytes=24e9, dollars_per_hour=0.4,
            source="NVIDIA Ada architecture whitepaper: 1,008 GB/s; 165.2 TFLOPS, float32 sums"),
    Machine("M4 Max", 546e9, 18.4e12, memory_bytes=128e9, dollars_per_hour=0.15,
            source="Apple's specifications: 546 GB/s; FLOPs, which Apple does not print: 40 cores x 128 x 2 x 1.8 GHz"),
    Machine("laptop", 89.6e9, 0.9e12, memory_bytes=32e9, dollars_per_hour=0.04,
            source="two channels of DDR5-5600, 8 bytes each; 8 cores x 32 FLOPs x 3.5 GHz, AVX2, float32"),
)}


def prefill_seconds(config: ModelConfig, tokens: int, machine: Machine, *, bytes_per_weight: float = 2,
                    bytes_per_element: float = 2) -> float:
    """The time to first token at least: a pass over a prompt of this length.

    Every weight is read once, and the cache is written once. Attention over the prompt counts as computing alone.

    >>> round(prefill_seconds(LLAMA_3_8B, 1000, MACHINES["H100 SXM"]), 4)
    0.0144
    """
    nbytes = decode_bytes(config, tokens, bytes_per_weight=bytes_per_weight, bytes_per_element=bytes_per_element)
    return bound(prefill_flops(config, tokens), nbytes, machine)


def decode_seconds(config: ModelConfig, context: int, machine: Machine, *, batch_size: int = 1,
                   bytes_per_weight: float = 2, bytes_per_element: float = 2) -> float:
    """The time between tokens at least: one step for `batch_size` rows that see `context` positions each.

    >>> round(1 / decode_seconds(LLAMA_3_8B, 1000, MACHINES["H100 SXM"]))  # tokens per second
    221
    """
    nbytes = decode_bytes(config, context, batch_size=batch_size, bytes_per_weight=bytes_per_weight,
                          bytes_per_element=bytes_per_element)
    return bound(batch_size * flops_per_token(config, context).total, nbytes, machine)


def bound(flops: float, nbytes: float, machine: Machine) -> float:
    """Seconds that a step takes at least: of computing, reading and overhead, the longest."""
    return max(flops / machine.flops_per_s, nbytes / machine.bytes_per_s, machine.overhead_s)


def regime(flops: float, nbytes: float, machine: Machine) -> str:
    """Which of the three it is: "compute", "memory" or "overhead".

    >>> regime(flops=16e9, nbytes=16e9, machine=MACHINES["H100 SXM"])
    'memory'
    """
    times = {"compute": flops / machine.flops_per_s, "memory": nbytes / machine.bytes_per_s,
             "overhead": machine.overhead_s}
    return max(times, key=times.__getitem__)


def critical_batch(machine: Machine, bytes_per_weight: float = 2) -> float:
    """The number of rows at which multiplying takes as long as reading the weights, caches left out.

    For a dense model: a row costs 2 FLOPs a weight, and the weight `bytes_per_weight` bytes once for all rows. Below,
    a row more is nearly free; above, it costs as much as the rows before. A mixture of experts needs more rows, since
    these read more weights together than each of them uses. The bound is derived in "How to Scale Your Model" (Austin
    et al. 2025), chapter 7.

    >>> round(critical_batch(MACHINES["H100 SXM"]))
    295
    """
    require(bytes_per_weight > 0, "bytes_per_weight", bytes_per_weight, "> 0")
    return machine.balance * bytes_per_weight / 2


def dollars_per_million(seconds: float, tokens: float, machine: Machine) -> float:
    """What a million tokens cost at least, if the machine makes `tokens` of them in `seconds` and never idles.

    >>> machine, batch = MACHINES["H100 SXM"], 64
    >>> read = dollars_per_million(prefill_seconds(LLAMA_3_8B, 1000, machine), 1000, machine)
    >>> step = decode_seconds(LLAMA_3_8B, 1000, machine, batch_size=batch)
    >>> round(read, 3), round(dollars_per_million(step, batch, machine), 3)
    (0.01, 0.076)
    """
    require(machine.dollars_per_hour is not None, "dollars_per_hour", machine.dollars_per_hour, "known")
    require(tokens > 0, "tokens", tokens, "> 0")
    return 1e6 * seconds / tokens * machine.dollars_per_hour / 3600
