"""Times of the static step at the published shapes: a table for the log, on a GPU machine.

python -m tests.gpu_step_times [--contexts 2048 8192] [--k 4]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import torch

from engine.decoding.static import StaticRound
from engine.kernels.sweep import read_bandwidth
from engine.models.shapes import SHAPES
from engine.models.synthetic import Plan, hard_norm, synthetic_decoder

VOCABULARY, BUDGET, FAMILIES = 151_936, 64, 16


def spread(times):
    """Median and median absolute deviation."""
    middle = statistics.median(times)
    return middle, statistics.median(abs(t - middle) for t in times)


def timed(action, repeats=60, warmup=10):
    """Milliseconds on the stream of an action, by events: median and MAD."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for _ in range(warmup):
        action()
    marks[0].record()
    for mark in marks[1:]:
        action()
        mark.record()
    torch.cuda.synchronize()
    return spread([a.elapsed_time(b) for a, b in itertools.pairwise(marks)])


def generate(rounds, prompt, logits):
    """Host seconds of a generation after its first token, and its rounds."""
    rounds.begin(len(prompt), logits, BUDGET)
    torch.cuda.synchronize()
    began = time.perf_counter()
    rounds.run(BUDGET)
    seconds = time.perf_counter() - began
    torch.cuda.synchronize()
    return seconds, len(rounds.finish()[0])


def prefill_times(prefill, cache=None, repeats=9):
    """Milliseconds of a prefill, host included: median and MAD, without the first two."""
    times = []
    for _ in range(repeats):
        if cache is not None:
            cache.trim(0)
        torch.cuda.synchronize()
        began = time.perf_counter()
        prefill()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return spread(times[2:])


def compare_prefill(contexts):
    """The same prefill by transformers, with random weights and the cache that generate uses."""
    try:
        import transformers
    except ImportError:
        return print("transformers is not installed: its prefill was not measured")
    shape = {key: value for key, value in SHAPES["qwen2.5-1.5b"].items() if key != "model_type"}
    config = transformers.Qwen2Config(
        **shape, vocab_size=VOCABULARY, attn_implementation="sdpa", dtype=torch.bfloat16
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.Qwen2ForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    for context in contexts:
        tokens = torch.randint(VOCABULARY, (1, context - BUDGET), device="cuda")
        middle, deviation = prefill_times(
            lambda tokens=tokens: model(
                tokens,
                past_key_values=transformers.DynamicCache(config=config),
                use_cache=True,
                logits_to_keep=1,
            )
        )
        print(
            f"prefill of {context - BUDGET} tokens by transformers {transformers.__version__}: "
            f"{middle:.1f} ms (mad {deviation:.1f})",
            flush=True,
        )


def measure(target, draft, plan, context, k, peak):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    capacity = context + k + 1
    caches = [model.new_cache(capacity) for model in (target, draft)]
    kv = sum(cache.nbytes for cache in caches)
    began = time.perf_counter()
    plain = StaticRound(target, caches[0], 0, BUDGET)
    spec = StaticRound(target, caches[0], k, BUDGET, draft=draft, draft_cache=caches[1])
    plain.capture("round", "verify")
    spec.capture("round", "propose", "verify", "commit")
    torch.cuda.synchronize()
    mib = (torch.cuda.max_memory_allocated() - before - kv) / 2**20
    print(
        f"---- {context} tokens; kernels and graphs in {time.perf_counter() - began:.2f} s, "
        f"{mib:.1f} MiB beside weights and caches"
    )
    prompt = plan.prompt(0, 0, context - BUDGET).cuda()
    middle, deviation = prefill_times(lambda: target.prefill(prompt, caches[0], 2048), caches[0])
    caches[0].trim(0)
    logits = target.prefill(prompt, caches[0], 2048)
    draft.prefill(prompt, caches[1], 2048)
    mib = (torch.cuda.max_memory_allocated() - before - kv) / 2**20
    print(f"prefill {middle:.1f} ms (mad {deviation:.1f}); with it {mib:.1f} MiB")
    tokens = {}
    for name, rounds in (("ar", plain), ("spec", spec)):
        walls = []
        for _ in range(8):
            wall, count = generate(rounds, prompt, logits)
            walls.append(wall / count * 1e3)
        ks, ms = rounds.finish()
        tokens[name] = rounds.committed()
        said = plan.continuation(0, 0, BUDGET).tolist()
        right = sum(a == b for a, b in zip(tokens[name], said, strict=True))
        print(
            "{}: {} rounds of {:.4f} ms (mad {:.4f}), host included; accepted {}/{}, {}/{} as "
            "designed".format(name, count, *spread(walls), sum(ms), sum(ks), right, BUDGET)
        )
    print("tokens of both equal:", tokens["ar"] == tokens["spec"])
    floors = {
        "AR step": target.step_bytes(context) / peak * 1e3,
        "verification": target.step_bytes(context) / peak * 1e3,
        "draft chain": k * draft.step_bytes(context) / peak * 1e3,
    }
    actions = {"AR step": plain, "verification": spec, "draft chain": spec}
    plain.begin(len(prompt), logits, BUDGET)
    spec.begin(len(prompt), logits, BUDGET)
    step = None
    for name, rounds in actions.items():
        part = "propose" if name == "draft chain" else "verify"
        middle, deviation = timed(lambda part=part, rounds=rounds: rounds.replay(part))
        step = step or middle
        print(
            f"{name:14s} {middle:.4f} ms (mad {deviation:.4f}), floor {floors[name]:.4f}, "
            f"{floors[name] / middle:.3f} of the swept bandwidth, {middle / step:.3f} AR steps",
            flush=True,
        )


def compare_hard(draft, plan, context, k):
    """Tokens of AR and speculation on a target with near-ties, over all families."""
    norm = hard_norm(1536, VOCABULARY)
    target = synthetic_decoder(
        SHAPES["qwen2.5-1.5b"], plan.target_successors, 3, "cuda", torch.bfloat16, norm
    )
    capacity = context + k + 1
    caches = [model.new_cache(capacity) for model in (target, draft)]
    plain = StaticRound(target, caches[0], 0, BUDGET)
    spec = StaticRound(target, caches[0], k, BUDGET, draft=draft, draft_cache=caches[1])
    for rounds in (plain, spec):
        rounds.capture("round")
    equal = followed = 0
    for family in range(FAMILIES):
        prompt = plan.prompt(family, 0, context - BUDGET).cuda()
        for cache in caches:
            cache.trim(0)
        logits = target.prefill(prompt, caches[0], 2048)
        draft.prefill(prompt, caches[1], 2048)
        tokens = []
        for rounds in (plain, spec):
            generate(rounds, prompt, logits)
            tokens.append(rounds.committed())
        equal += tokens[0] == tokens[1]
        followed += tokens[0] == plan.continuation(family, 0, BUDGET).tolist()
    print(
        f"hard target: tokens equal in {equal} of {FAMILIES} families, "
        f"{followed} of which only follow the permutation"
    )


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--k", type=int, default=4)
    arguments = parser.parse_args()
    special = range(151_643, VOCABULARY)
    plan = Plan.draw(VOCABULARY, FAMILIES, (0.54, 0.52, 0.49), arguments.k, 0.05, special)
    began = time.perf_counter()
    target, draft = (
        synthetic_decoder(SHAPES[shape], successors, seed, "cuda", torch.bfloat16)
        for shape, successors, seed in (
            ("qwen2.5-1.5b", plan.target_successors, 1),
            ("qwen2.5-0.5b", plan.draft_successors, 2),
        )
    )
    torch.cuda.synchronize()
    made = time.perf_counter() - began
    peak = read_bandwidth()
    torch.cuda.empty_cache()
    print(f"both models made in {made:.2f} s; read-only sweep {peak / 1e12:.3f} TB/s")
    for context in arguments.contexts:
        measure(target, draft, plan, context, arguments.k, peak)
    compare_hard(draft, plan, arguments.contexts[0], arguments.k)
    compare_prefill(arguments.contexts)


if __name__ == "__main__":
    main()
