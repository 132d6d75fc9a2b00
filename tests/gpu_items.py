# SPDX-License-Identifier: Apache-2.0
"""The table of items that tests/gpu_session.py runs: commands, time limits, and how results are checked.

The order of table() is the order in which items run. SWITCHES, SIZES and RUNGS are lists that are meant to be edited.
"""
import glob
import math
import os
import re
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

# Deck keys that may make training faster. Each is measured with gpt2-124m: name, stages, keys.
# A key that the build does not know gives the verdict "skipped".
SWITCHES = [
    ("unordered-attention", "first all", "gpu.deterministic_attention=false"),
    ("own-attention", "first all", "gpu.attention=own"),
    ("micro-64", "first all", "batch.micro_sequences={twice}"),
    ("timed-products", "first all", "gpu.timed_products=true"),
    ("product-workspace-128", "first all", "gpu.product_workspace=128"),
    ("bias-in-products", "first all", "gpu.fused_bias_gradients=true"),
    ("gelu-apart", "all", "gpu.fused_gelu=false"),
    ("gelu-backward-apart", "all", "gpu.fused_gelu_backward=false"),
    ("loss-rows-256", "all", "model.loss_rows=256"),
    ("without-graphs", "all", "gpu.graphs=false"),
    ("micro-64-recompute-gelu", "all", "batch.micro_sequences={twice} model.recompute=gelu"),
]

# GPT-2 sizes: micro-batch, sequences per step, steps, and the goal on one H100 in tokens/s.
SIZES = {"124m": (32, 128, 24, 560e3), "350m": (32, 256, 10, 217e3), "774m": (16, 128, 8, 100e3), "1558m": (16, 128, 8, 55e3)}

# When the first run of the quickstart's model or of gpt2-124m fails, these are tried in order. The keys of the first that passes are used
# in all later runs.
# The rung fp32 only tells where to look: it is used when nothing else passes.
RUNGS = [
    ("again", ""),  # for example, libraries were read from a slow disk the first time
    ("fp32", "run.precision=fp32"),
    ("without-graphs", "gpu.graphs=false"),
    ("gelu-apart", "gpu.fused_gelu=false gpu.fused_gelu_backward=false"),
    ("unordered-attention", "gpu.deterministic_attention=false"),
    ("own-attention", "gpu.attention=own"),
    ("all-of-them", "gpu.graphs=false gpu.fused_gelu=false gpu.fused_gelu_backward=false gpu.attention=own"),
]

GPU_CASES = "*cuda*:*Gpu*:*GPU*:Nvrtc*:CublasLt*"
# In these bf16 attention cases, cuDNN's kernels run. The sanitizers check only our own.
CUDNN_CASES = "*AttentionTest.A*bf16*:*AttentionTest.Se*bf16*:*AttentionTest.Sh*bf16*:*AttentionTest.DoesNot*bf16*:*AttentionTest.Takes*bf16*"
THREE_SUITES = "*CrossEntropyTest*cuda_bf16:*LayerNormTest*cuda_bf16:*EmbeddingTest*cuda_bf16"
# Lets ranks share a GPU: NCCL allows this only if each rank claims to be on a separate host.
SHARED_GPU = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
              "NCCL_RAS_ENABLE": "0"}
OWN_HOST = 'export NCCL_HOSTID=rank${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$PMI_RANK}}; exec "$@"'
NO_SAVING = ["checkpoint.every_steps=0", "evaluate.every_steps=0", "sample.every_steps=0"]
TINY = {"input/quickstart.yaml": "model.layers=1 model.heads=1 model.channels=16 model.context=8 batch.sequences=6 batch.micro_sequences=1",
        "input/gpt2-124m.yaml": "model.preset=none model.layers=1 model.heads=1 model.channels=16 model.context=8 data.train.synthetic=20000"}


class Failure(Exception):
    """A check that does not hold."""


class Skip(Exception):
    """An item that cannot run on this machine."""


@dataclass
class Item:
    """One command with a verdict."""
    name: str
    stages: str  # the stages that it belongs to
    limit: int  # seconds
    words: Callable  # session -> the command
    check: Callable | None = None  # session, item -> remark; raises Failure
    together: bool = False  # may run at the same time as its neighbours in the table
    needs: tuple = ()  # items whose results it is compared with
    trains: str = ""  # the deck that it trains: left out when no way to train it was found
    keys: str = ""  # deck keys that are under test
    executable: str = ""  # the test executable that it runs
    environment: dict = field(default_factory=dict)


# ---- Places: a build tree or an unpacked bundle


class Place:
    """Paths of programs and decks, and the commands to start them."""

    def __init__(self, root, tree):
        self.root = root
        if tree is None:  # a bundle
            run = os.path.join(root, "run.sh")
            self.tests, self.text, self.program = os.path.join(root, "tests", "bin"), "text", os.path.join(root, "bin", "trireme")
            self.trireme, self.with_libraries = [run], [run, "--exec"]
            self.launch = [run, "--exec", "mpirun", "--bind-to", "none", "--oversubscribe"]
        else:
            self.tests, self.text, self.program = tree, "src", os.path.join(tree, "trireme")
            self.trireme, self.with_libraries = [self.program], []
            self.launch = ["bash", os.path.join(root, "jobs", "mpirun.sh")]


def nvidia_tool(name):
    folders = ["/usr/local/cuda/bin", *sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)]
    found = shutil.which(name) or shutil.which(name, path=":".join(folders))
    if found is None:
        raise Skip(f"{name} is not on this machine")
    return found


# ---- Reading results


def read(session, name):
    path = session.output_of(name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def last_lines(text, count):
    """The last lines of an item's output, without the launcher's message between lines of dashes."""
    lines = [line for line in text.splitlines() if line.strip()]
    dashes = next((place for place, line in enumerate(lines) if line.startswith("-" * 60)), len(lines))
    return lines[:dashes or len(lines)][-count:]


def logged_losses(text):
    return [(int(step), float(loss)) for step, loss in re.findall(r"step +(\d+)/\d+ +loss ([0-9.]+|nan|inf)", text)]


def losses(session, name):
    """Steps and losses of a run: all steps and exact if h5py is installed, otherwise those in the log."""
    try:
        import h5py
        with h5py.File(os.path.join(session.scratch, "runs", name, "run.h5"), "r") as file:
            return list(zip(file["steps/step"][:].tolist(), file["steps/loss"][:].tolist())), "exact"
    except (ImportError, OSError, KeyError):
        return logged_losses(read(session, name)), "4 decimals"


def agrees_with(other, within, first=None):
    """Checks that the losses of the first steps (or of all) agree with those of another item."""
    def check(session, item):
        mine, theirs = losses(session, item.name), losses(session, other)
        if not mine[0] or mine[1] != theirs[1] or [step for step, _ in mine[0]] != [step for step, _ in theirs[0]]:
            raise Failure(f"no losses of {item.name} and {other} to compare")
        differences = [abs(a - b) for (_, a), (_, b) in zip(mine[0][:first], theirs[0])]
        worst = max(differences, key=lambda difference: (math.isnan(difference), difference))
        said = f"{len(differences)} losses ({mine[1]}) differ by {worst:.3g} at most from those of {other}; allowed: {within:g}"
        if not worst <= within:
            raise Failure(said)
        return said
    return check


def speed_row(session, item, size):
    """Appends the median speed after the warm-up to speed.txt."""
    text = read(session, item.name)
    steps = logged_losses(text)
    if not steps or not math.isfinite(steps[-1][1]):
        raise Failure("no step was logged, or the loss is not finite")
    run = os.path.join(session.scratch, "runs", item.name)
    told = session.ask([*session.place.trireme, "speed", run, "--warmup", str(steps[-1][0] // 4)])
    row = re.search(r" (\d+) by \d+ x (\d+) +(\d+) +(\d+) to (\d+) .* ([0-9.]+ [KMGT]?i?B)\s*$", told, re.MULTILINE)
    if row:
        tokens, (rate, low, high) = int(row[1]) * int(row[2]), (float(row[i]) for i in (3, 4, 5))
        detail = f"{1e3 * tokens / rate:9.2f} ms/step  half of the steps {low:.0f} to {high:.0f}  memory {row[6]}"
    else:
        rates = re.findall(r"([0-9.]+) ?([kMG]?) tokens/s", text)[steps[-1][0] // 4:]
        if not rates:
            raise Failure("no speed was logged")
        rate, detail = statistics.median(float(n) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit] for n, unit in rates), "(from the log)"
    session.rates[item.name] = rate
    base, goal = session.rates.get(f"gpt2-{size}"), SIZES[size][3]
    said = f"{rate:9.0f} tokens/s {detail}  loss {steps[-1][1]:.4f} at step {steps[-1][0]}  {rate / goal:.3f} of the goal"
    if base and base != rate:
        said += f"  {rate / base:.3f} x gpt2-{size}"
    session.add_speed(f"{item.name:<32} {said}")
    return f"{rate:.0f} tokens/s"


def peer_row(session, item):
    row = re.search(r"^torch .*?([0-9.]+) tokens/s.*$", read(session, item.name), re.MULTILINE)
    if not row:
        raise Failure("no speed was printed")
    ours = session.rates.get("gpt2-124m")
    ratio = f"  (gpt2-124m: {ours / float(row[1]):.3f} x)" if ours else ""
    session.add_speed(f"{item.name:<32} {float(row[1]):9.0f} tokens/s {ratio} {row[0]}")
    return f"{row[1]} tokens/s"


# ---- Kinds of items


def deck(session, path, name, keys, more):
    """A deck with keys. A deck rejects duplicate keys, so later values replace earlier ones here."""
    run = [f"run.directory={os.path.join(session.scratch, 'runs', name)}", f"run.name={name[:19]}"]
    small = TINY[path].split() if session.tiny else []
    values = dict(key.split("=", 1) for key in [*NO_SAVING, *run, *keys, *small, *session.options, *more])
    return [path, *("=".join(pair) for pair in values.items())]


def quick_words(session, name, ranks, keys):
    words = deck(session, "input/quickstart.yaml", name, [f"data.train.text=[{session.place.text}]", f"data.cache={session.scratch}/tokens",
                                                          "run.threads=1"], keys.split())
    if ranks == 1:
        return [*session.place.trireme, *words]
    return [*session.place.launch, "-n", str(ranks), "bash", "-c", OWN_HOST, "-", session.place.program, *words]


def train(name, stages, keys, like=None, within=0.0, first=None, ranks=1, limit=60, steps=20, together=True, test=""):
    """A run of the quickstart's model. Compares its losses with those of the item `like`."""
    # The warm-up lasts all steps. With the full rate from the first step, rounding errors grow from 1e-7 to 1e-3 within 20 steps on some
    # texts, on CPUs as well; this way losses on one, two and three CPU ranks differ by less than 1e-6. In bf16 a spike of the loss can make
    # that 0.13 in a step after the tenth (CPU and GPU alike), so bf16 is compared with fp32 over the `first` ten steps.
    keys = f"run.steps={steps} optimizer.schedule.warmup_steps={steps} {keys} {test}"
    return Item(name, stages, limit, lambda s: quick_words(s, name, ranks, keys), agrees_with(like, within, first) if like else None, together,
                (like,) if like else (), "quickstart", test, environment=SHARED_GPU if ranks > 1 else {})


def smoke(name, keys):
    item = train(name, "first second all", "run.device=cuda run.precision=bf16", steps=3, limit=60, together=False, test=keys)
    item.environment = {"CUDNN_LOGERR_DBG": "1", "CUDNN_LOGDEST_DBG": "stderr"}
    item.trains = ""
    return item


def gpt2_words(session, size, name, keys):
    micro, sequences, steps, _ = (2, 8, 4, 0) if session.tiny else SIZES[size]
    usual = [f"model.preset=gpt2-{size}", "data.train.text=[]", "data.train.synthetic=20000000", "data.validation_fraction=0",
             "run.device=cuda", "run.precision=bf16", f"run.steps={steps}", f"batch.sequences={sequences}", f"batch.micro_sequences={micro}",
             "optimizer.schedule.warmup_steps=2", "record.spans=false"]
    return deck(session, "input/gpt2-124m.yaml", name, usual, keys.format(twice=2 * micro, micro=micro).split())


def speed(name, stages, size, keys="", limit=45):
    return Item(name, stages, limit, lambda s: [*s.place.trireme, *gpt2_words(s, size, name, keys)], lambda s, i: speed_row(s, i, size),
                trains="gpt2", keys=keys)


def bench(name, stages, limit, words):
    return Item(name, stages, limit, lambda s: [*s.place.trireme, "bench", *words(s)])


def without_run(words):
    """Removes keys of run directories, which benches do not have."""
    return [word for word in words[1:] if not word.startswith(("run.directory", "run.name", "run.steps"))]


def reduce_words(session):
    return ["reduce", "--transport", "nccl", "--bytes", str(1 << (16 if session.tiny else 26)), "--repetitions", "5"]


def matmul_words(session):
    return ["matmul", *without_run(quick_words(session, "bench-matmul", 1, "run.device=cuda")), "--repetitions", "2"]


def ops_words(session):
    keys = "batch.sequences={micro}"
    return ["ops", *without_run(["", *gpt2_words(session, "124m", "bench-ops", keys)]), "--repetitions", "3", "--json",
            os.path.join(session.out, "ops.json")]


def ncu_words(session):
    metrics = ("gpu__time_duration.sum,dram__bytes.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__grid_size,"
               "launch__registers_per_thread")
    # Two layers are enough: a kernel takes 0.4 s in the profiler, and all layers run the same ones.
    profiler = [nvidia_tool("ncu"), "--target-processes", "all", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw",
                "--log-file", os.path.join(session.out, "ncu.csv"), "-c", "220", "--metrics", metrics]
    keys = "run.steps=1 optimizer.schedule.warmup_steps=0 gpu.graphs=false batch.sequences={micro}"
    if not session.tiny:
        keys += " model.preset=none model.layers=2 model.heads=12 model.channels=768 model.context=1024 model.vocabulary=50304"
    return [*session.place.with_libraries, *profiler, session.place.program, *gpt2_words(session, "124m", "ncu", keys)]


def peer(name, stages, sdpa, *more, compiled=True):
    def words(session):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_gpt2.py")
        shape = ["--size", "tiny", "--batch", "2", "--context", "16", "--device", "cpu"] if session.tiny else \
            ["--size", "124m", "--batch", "32", "--device", "cuda"]
        compiler = ["--compile"] if compiled and not session.tiny else []
        return [sys.executable, script, *shape, *compiler, "--micro-steps", "4", "--sdpa", sdpa, "--steps", "3" if session.tiny else "12", *more]
    return Item(name, stages, 100, words, peer_row)


def unit(name, stages, executable, limit=80, ranks=1, shard=0, shards=1, together=False, cases=GPU_CASES):
    """GPU cases of a test executable. Each shard is a process, because an error makes the CUDA context unusable for later cases."""
    def words(session):
        path = os.path.join(session.place.tests, executable)
        if not os.path.exists(path):
            raise Skip(f"{executable} was not built")
        start = session.place.with_libraries if ranks == 1 else [*session.place.launch, "-n", str(ranks)]
        parts = shards * (24 if session.tiny and ranks == 1 else 1)  # a rehearsal runs one part in 24
        return [*start, "env", f"GTEST_TOTAL_SHARDS={parts}", f"GTEST_SHARD_INDEX={shard}", path, "--gtest_brief=1", f"--gtest_filter={cases}"]
    return Item(name, stages, limit, words, together=together, executable=executable, environment={"TRIREME_REQUIRE_CUDA": "1"})


def sanitize(name, stages, tool, cases, limit=90):
    def words(session):
        path, checker = os.path.join(session.place.tests, "test_ops"), nvidia_tool("compute-sanitizer")
        chosen = THREE_SUITES.split(":")[0] if session.tiny else cases
        return [*session.place.with_libraries, checker, "--tool", tool, "--error-exitcode", "9", path, "--gtest_brief=1", f"--gtest_filter={chosen}"]
    # The sanitizer instruments every kernel that is loaded, so only those that run should be.
    environment = {"TRIREME_REQUIRE_CUDA": "1"}
    return Item(name, stages, limit, words, executable="test_ops", environment=environment)


# ---- The table

FP32, BF16, BUCKETS = "run.device=cuda run.precision=fp32", "run.device=cuda run.precision=bf16", "parallel.bucket_elements=200000"
NCCL_2 = f"{FP32} {BUCKETS}"


def version():
    return Item("version", "first second all", 30, lambda s: [*s.place.trireme, "--version"])


def correctness():
    near = {"like": "train-cuda-bf16", "within": 0.01, "first": 10}
    return [
        train("train-cpu", "first all", "run.device=cpu run.precision=fp32"),
        train("train-cuda-fp32", "first all", FP32, "train-cpu", 1e-5),
        train("train-cuda-bf16", "first all", BF16, "train-cpu", 0.01, 10),
        train("train-again", "first all", BF16, "train-cuda-bf16"),
        train("train-again-fp32", "first all", FP32, "train-cuda-fp32"),
        train("train-without-graphs", "first all", BF16, "train-cuda-bf16", test="gpu.graphs=false"),
        train("train-own-attention", "first all", BF16, **near, test="gpu.attention=own"),
        train("train-unordered-attention", "first all", BF16, **near, test="gpu.deterministic_attention=false"),
    ]


def more_correctness():
    near = {"like": "train-cuda-bf16", "within": 0.01, "first": 10}
    cases = [("gelu-apart", "gpu.fused_gelu=false"), ("gelu-backward-apart", "gpu.fused_gelu_backward=false"),
             ("bias-in-products", "gpu.fused_bias_gradients=true"), ("loss-rows", "model.loss_rows=256"),
             ("timed-products", "gpu.timed_products=true parallel.product_blocks=64")]
    return [*(train(f"train-{name}", "second all", BF16, **near, test=keys) for name, keys in cases),
            train("train-cpu-dropout", "second all", "run.device=cpu run.precision=fp32 model.dropout=0.1"),
            train("train-dropout-fp32", "second all", f"{FP32} model.dropout=0.1", "train-cpu-dropout", 1e-5),
            train("train-dropout", "second all", f"{BF16} model.dropout=0.1", "train-cpu-dropout", 0.01, 10)]


def units():
    alone = [unit("test-device", "first all", "test_device", 40), unit("test-reduce", "first all", "test_reduce", 40)]
    shards = [("ops", 6), ("model", 4), ("session", 2), ("optim", 1)]
    return alone + [unit(f"test-{name}" + (f"-{i + 1}" if n > 1 else ""), "first all", f"test_{name}", shard=i, shards=n, together=True)
                    for name, n in shards for i in range(n)]


def shared_gpu():
    """Items with ranks that share one GPU through NCCL."""
    alone = {"together": False}
    items = [train("train-nccl-2", "second all", NCCL_2, "train-cpu", 1e-5, ranks=2, **alone),
             train("train-nccl-2-unsharded", "second all", f"{NCCL_2} parallel.shard=none", "train-nccl-2", ranks=2, **alone)]
    items += [unit(f"nccl-{room}-2", "second all", f"test_{room}_nccl", 60, 2, cases="*") for room in ("comm", "reduce", "optim")]
    items += [train("train-nccl-3", "all", NCCL_2, "train-cpu", 1e-5, ranks=3, **alone)]
    return items + [unit(f"nccl-{room}-3", "all", f"test_{room}_nccl", 60, 3, cases="*") for room in ("comm", "reduce")]


def attempt(failed, rung, keys):
    """Repeats the failed item with the keys of a rung."""
    name = f"{failed}-try-{rung}"
    return smoke(name, keys) if failed == "smoke" else speed(name, "", "124m", keys)


def table():
    ours = f"*cuda*:-*Matmul*:{CUDNN_CASES}"
    return [
        version(),
        smoke("smoke", ""),
        *correctness(),
        speed("gpt2-124m", "first second all", "124m", limit=75),
        speed("gpt2-124m-spans", "first all", "124m", "record.spans=true"),  # where the time goes, and the ceiling of matrix products
        Item("ncu", "first second all", 90, ncu_words, trains="gpt2"),
        *(speed(f"gpt2-124m-{name}", stages, "124m", keys) for name, stages, keys in SWITCHES),
        speed("gpt2-124m-again", "first all", "124m"),
        peer("torch-cudnn", "first all", "cudnn"),
        train("train-nccl-1", "first all", f"{FP32} {BUCKETS} parallel.transport=nccl", "train-cuda-fp32", together=False),
        bench("bench-reduce", "first all", 40, reduce_words),
        *units(),
        peer("torch-flash", "first all", "flash"),
        peer("torch-cudnn-bf16-weights", "all", "cudnn", "--bf16-weights"),
        peer("torch-not-compiled", "all", "cudnn", compiled=False),
        bench("bench-ops", "second all", 80, ops_words),
        *(speed(f"gpt2-{size}", "second all", size, limit=75) for size in SIZES if size != "124m"),
        *shared_gpu(),
        *more_correctness(),
        sanitize("racecheck-suites", "second", "racecheck", THREE_SUITES),
        sanitize("memcheck-suites", "second", "memcheck", THREE_SUITES),
        bench("bench-pool", "all", 60, lambda s: ["pool", "--device", "cuda", "--repetitions", "5"]),
        bench("bench-matmul", "all", 60, matmul_words),
        *(sanitize(tool, "all", tool, ours, 300) for tool in ("memcheck", "racecheck", "initcheck")),
    ]
