#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed of GPT-2 in PyTorch, for comparison on the same machine.

It does what PyTorch users do to train fast: bf16 autocast (or bf16 weights), scaled_dot_product_attention, torch.compile, fused AdamW,
gradient accumulation, clipping to norm 1, and DDP that reduces in the last micro-step only. A step has --batch times --micro-steps
sequences per rank. Prints one line with all settings, the median of the timed steps and the peak memory.

  python3 tests/torch_gpt2.py --size 124m --batch 32 --micro-steps 4 --device cuda --compile --sdpa cudnn --steps 12
  python3 tests/torch_gpt2.py --size 124m --batch 4 --device cpu --threads 1 --steps 3
  torchrun --nproc-per-node 2 tests/torch_gpt2.py --size tiny --batch 4 --device cpu

Exit code 77: PyTorch is not installed.
"""
import argparse
import contextlib
import os
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as missing:
    print(f"PyTorch cannot be imported: {missing}")
    sys.exit(77)

SIZES = {"tiny": (2, 2, 64), "quickstart": (4, 4, 128), "124m": (12, 12, 768), "350m": (24, 16, 1024), "774m": (36, 20, 1280), "1558m": (48, 25, 1600)}


class Block(nn.Module):
    """Attention and MLP of GPT-2, each after a layer norm."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, context, channels = x.shape
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(channels, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, context, channels))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with tied embeddings; forward returns the mean cross-entropy."""

    def __init__(self, layers, heads, channels, vocabulary, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.lnf(h))
        # Under autocast cross_entropy computes in fp32. The compiler fuses the conversion, so fp32 logits are not stored.
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), y.view(-1))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="124m", choices=SIZES)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a micro-step, per rank")
    parser.add_argument("--micro-steps", type=int, default=1, help="per optimizer step")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0, help="of each rank, on CPUs; default: PyTorch's choice")
    parser.add_argument("--steps", type=int, default=12, help="that are timed")
    parser.add_argument("--warmup", type=int, default=3, help="steps before those")
    parser.add_argument("--sdpa", default="default", choices=("default", "cudnn", "flash"), help="attention backend on GPUs")
    precision = parser.add_mutually_exclusive_group()
    precision.add_argument("--bf16-weights", action="store_true", help="weights, gradients and optimizer state in bf16, no autocast")
    precision.add_argument("--fp32", action="store_true", help="no bf16; TF32 in matrix products on GPUs")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.device == "cpu":
        options.sdpa = "default"
    return options


def attention_backend(name):
    if name == "default":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name])


class Trainer:
    """A model with its optimizer, and one optimizer step at a time."""

    def __init__(self, options, world, device):
        self.options, self.world, self.device = options, world, device
        layers, heads, channels = SIZES[options.size]
        self.model = GPT(layers, heads, channels, options.vocabulary, options.context).to(device)
        if options.bf16_weights:
            self.model.bfloat16()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.flops_per_token = 6 * self.parameters + 6 * layers * channels * options.context
        self.step_model = self.model
        if world > 1:
            ids = [device.index] if device.type == "cuda" else None
            self.step_model = nn.parallel.DistributedDataParallel(self.model, device_ids=ids, gradient_as_bucket_view=True)
        self.call = torch.compile(self.step_model) if options.compile else self.step_model
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-4,
                                           betas=(0.9, 0.95), fused=True)

    def cast(self):
        if self.options.fp32 or self.options.bf16_weights:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def batch(self):
        shape = (self.options.batch, self.options.context)
        return (torch.randint(0, self.options.vocabulary, shape, device=self.device) for _ in range(2))

    def step(self):
        micro_steps = self.options.micro_steps
        for micro_step in range(micro_steps):
            x, y = self.batch()
            reduces = self.world == 1 or micro_step == micro_steps - 1
            with contextlib.nullcontext() if reduces else self.step_model.no_sync():
                with self.cast():
                    loss = self.call(x, y)
                (loss / micro_steps).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_bytes(device):
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(trainer, options, device):
    """Returns the seconds of each timed step and the last loss."""
    for _ in range(options.warmup):
        loss = trainer.step()
    wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        loss = trainer.step()
        wait(device)
        seconds.append(time.perf_counter() - began)
    return seconds, loss.item()


def report(options, world, trainer, seconds, loss, device):
    step = statistics.median(seconds)
    rate = world * options.batch * options.micro_steps * options.context / step
    precision = "fp32" if options.fp32 else "bf16 weights" if options.bf16_weights else "bf16 autocast"
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu with {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__} on {name}, gpt2-{options.size}, {precision}, compile {'on' if options.compile else 'off'}, "
          f"sdpa {options.sdpa}, {world} rank{'s' * (world > 1)}, {options.micro_steps} x {options.batch} x {options.context} tokens: "
          f"{step * 1e3:.2f} ms/step, {rate:.0f} tokens/s, {rate * trainer.flops_per_token / world / 1e12:.4g} TFLOP/s per rank, "
          f"peak {peak_bytes(device) / 2**30:.2f} GiB, loss {loss:.4f}, {min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f} ms", flush=True)


def main():
    options = parse()
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if options.device == "cuda" else torch.device("cpu")
    torch.manual_seed(1 + rank)
    torch.set_float32_matmul_precision("high")
    if options.threads:
        torch.set_num_threads(options.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    trainer = Trainer(options, world, device)
    with attention_backend(options.sdpa):
        seconds, loss = measure(trainer, options, device)
    if rank == 0:
        report(options, world, trainer, seconds, loss, device)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
