"""What Prometheus reads at /metrics: the numbers that this server has, in vLLM's names and with vLLM's meanings.

A dashboard made for vLLM shows them. What it asks besides, such as the numbers of adapters, stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from course_lib.engine import EngineStats

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
LABELS = ("model_name", "engine")


class Metrics:
    """The numbers of one app, in a registry of their own.

    Args:
        model: the label `model_name`.
        stats: gives the engine's latest `EngineStats`.
    """

    def __init__(self, model: str, stats: Callable[[], EngineStats]) -> None:
        self.registry, labels = CollectorRegistry(), (model, "0")
        self.registry.register(EngineNumbers(stats, labels))

        def histogram(name: str, text: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
            return Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry).labels(*labels)

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(f"vllm:{name}", text, (*LABELS, *more), registry=self.registry)

        self.time_to_first_token = histogram("time_to_first_token_seconds", "From the request to its first token.")
        self.inter_token_latency = histogram("inter_token_latency_seconds", "From a token to the next.")
        self.e2e_latency = histogram("e2e_request_latency_seconds", "From the request to its last token.")
        self.queue_time = histogram("request_queue_time_seconds", "To the first token, without its passes.")
        self.prefill_time = histogram("request_prefill_time_seconds", "Of the passes up to the first token.")
        self.decode_time = histogram("request_decode_time_seconds", "From the first token to the last.")
        self.request_prompt_tokens = histogram("request_prompt_tokens", "Of a finished request.", TOKENS)
        self.request_generation_tokens = histogram("request_generation_tokens", "Of a finished request.", TOKENS)
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts that were read.").labels(*labels)
        self.generation_tokens = counter("generation_tokens", "Tokens that were generated.").labels(*labels)
        success = counter("request_success", "Requests that ended, by reason.", "finished_reason")
        self.success = {reason: success.labels(*labels, reason) for reason in ("stop", "length", "abort", "error")}


@dataclass(eq=False)
class RequestMetrics:
    """Counts one request while the engine works on it, whether or not anybody reads its answer.

    Args:
        metrics: where it counts.
        prompt_tokens: of the request.
        submitted_at: when it was; the times are of `time.perf_counter`.
    """

    metrics: Metrics
    prompt_tokens: int
    submitted_at: float
    tokens: int = 0
    prefill_seconds: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0

    def count(self, at: float, seconds: float) -> None:
        """A token has come, after passes that took this many seconds since the one before it."""
        if self.tokens == 0:
            self.first_at, self.prefill_seconds = at, seconds
            self.metrics.time_to_first_token.observe(at - self.submitted_at)
            self.metrics.prompt_tokens.inc(self.prompt_tokens)
        else:
            self.metrics.inter_token_latency.observe(at - self.last_at)
        self.tokens, self.last_at = self.tokens + 1, at
        self.metrics.generation_tokens.inc()

    def finish(self, reason: str) -> None:
        """The request is complete: "stop", "length", or "tool_calls", which is a stop to an engine."""
        self.metrics.e2e_latency.observe(self.last_at - self.submitted_at)
        self.metrics.queue_time.observe(max(0.0, self.first_at - self.submitted_at - self.prefill_seconds))
        self.metrics.prefill_time.observe(self.prefill_seconds)
        self.metrics.decode_time.observe(self.last_at - self.first_at)
        self.metrics.request_prompt_tokens.observe(self.prompt_tokens)
        self.metrics.request_generation_tokens.observe(self.tokens)
        self.metrics.success["length" if reason == "length" else "stop"].inc()


class EngineNumbers:
    """Reads the engine's numbers at the moment when somebody asks for them."""

    def __init__(self, stats: Callable[[], EngineStats], labels: tuple[str, str]) -> None:
        self.stats, self.labels = stats, labels

    def collect(self) -> Iterator[Metric]:
        """Gauges, and counters that begin again at 0 when a fresh engine takes the place of one that failed."""
        stats = self.stats()
        used = stats.blocks_used / stats.blocks_total
        gauges = {"num_requests_running": ("Requests in the batch.", stats.running),
                  "num_requests_waiting": ("Requests that wait for a place.", stats.waiting),
                  "kv_cache_usage_perc": ("Pages of the cache in use; 1 is all.", used)}
        counters = {"num_preemptions": ("Requests put back to make room.", stats.preemptions),
                    "prefix_cache_queries": ("Tokens of prompts looked up.", stats.prefix_queries),
                    "prefix_cache_hits": ("Tokens of prompts found in the cache.", stats.prefix_hits)}
        for kind, numbers in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
            for name, (text, value) in numbers.items():
                family = kind(f"vllm:{name}", text, labels=LABELS)
                family.add_metric(self.labels, value)
                yield family
