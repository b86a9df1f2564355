"""In how many digits training computes: ``precision="bf16"`` and where it can be had.

bfloat16 has the range of float32 and three digits.  With it, products and convolutions are computed
on rounded numbers and summed in float32; weights and optimizer stay what they are.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfl_lib import _check

PRECISIONS = ("full", "bf16")
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # as Linux calls them; the last is Arm's
PATIENCE = 120  # seconds for the trial

# The trial: a convolution and a product, forward and backward, in both precisions.
TRIAL = """
import json, time, torch
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(32, 64, 5), torch.nn.Flatten(), torch.nn.Linear(4096, 64))
net = net.to(memory_format=torch.channels_last)
x = torch.randn(32, 32, 12, 12).contiguous(memory_format=torch.channels_last)
def gradient(low):
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = net(x)
    out.float().square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    net.zero_grad()
    return flat
def seconds(low):
    began = time.perf_counter()
    gradient(low)
    return time.perf_counter() - began
a, b = gradient(False), gradient(True)
took = [[seconds(low) for low in (False, True)] for _ in range(8)]
full, low = (min(times) for times in zip(*took))
print(json.dumps({"error": float((a - b).norm() / a.norm()), "faster": full / low}))
"""


def in_precision(precision: str, device: torch.device, call: Callable, *args: Any) -> Any:
    """``call(*args)`` with its products and convolutions in that precision."""
    if precision == "full":
        return call(*args)
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        out: Tensor = call(*args)
    return out.float()


def checked_precision(precision: Any, dtype: torch.dtype, device: torch.device) -> str:
    """The precision, if this device can compute in it."""
    _check.one_of("precision", precision, PRECISIONS)
    if precision == "full":
        return precision
    if dtype != torch.float32:
        raise ValueError(f"precision must be 'full' with dtype={dtype}, got {precision!r}")
    why_not = ""
    if device.type == "cpu":
        why_not = str(bf16_trial().get("why not", ""))
    elif device.type == "cuda" and not torch.cuda.is_bf16_supported():
        why_not = f"{torch.cuda.get_device_name(device)} has no arithmetic in bfloat16"
    if why_not:
        raise ValueError(f"precision must be 'full' on this machine, got {precision!r}: {why_not}")
    return precision


@cache
def bf16_trial() -> dict[str, Any]:
    """A trial of bfloat16 on this processor: how much ``faster`` it is, or ``why not``.

    It runs in another process, since a virtual machine may claim instructions that crash it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", TRIAL], capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"why not": f"a trial in another process did not end ({error})"}
    if done.returncode < 0:
        return {
            "why not": f"the processor ends a process that tries it (signal {-done.returncode})"
        }
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return {"why not": f"a trial in another process failed: {last}"}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if not found["error"] < 0.05:
        return {"why not": f"a gradient came out wrong by {found['error']:.0%}"}
    return found


@cache
def bf16_claimed() -> bool:
    """Whether the processor claims to have instructions for bfloat16 (Linux only)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    lines = (line for line in text.splitlines() if line.lower().startswith(("flags", "features")))
    return bool({*INSTRUCTIONS} & {*next(lines, "").split()})


def precision_in_words(precision: str, dtype: torch.dtype, device: torch.device, network) -> str:
    """The words of ``plan`` about precision: what is used, or that bf16 may be faster."""
    if precision == "bf16":
        words = "products and convolutions in bfloat16"
        faster = bf16_trial()["faster"] if device.type == "cpu" else None
        if faster is not None:
            words += f" (a convolution ran {faster:.1f} times as fast when tried)"
        if faster is not None and faster < 1:
            words += "; precision='full' is faster here"
        elif network.dense is not None:
            words += "; for a dense network precision='full' is often faster"
        return words
    offered = network.convolutional and dtype == torch.float32 and device.type == "cpu"
    if offered and bf16_claimed():
        return "precision='bf16' may be faster: the processor says that it has instructions for it"
    return ""
