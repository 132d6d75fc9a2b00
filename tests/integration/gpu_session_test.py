# SPDX-License-Identifier: Apache-2.0
"""tests/gpu_session.sh without a real GPU: whole stages on emulated GPUs with a model that takes seconds, and all failures with a fake
program."""
import glob
import os
import re
import signal
import subprocess
import time
import unittest

from harness import HERE, TRIREME, TrainingTest

SCRIPT = os.path.join(HERE, "..", "gpu_session.sh")
# A fake trireme that prints the lines that the script reads. NEEDS is a key without which it fails. The run named HANGS never ends, nor do
# its children, one of which has its own process session.
STAND_IN = r"""#!/bin/bash
[ -z "${BROKEN:-}" ] || { echo "trireme: error while loading shared libraries: $BROKEN: cannot open shared object file" >&2; exit 127; }
case $1 in
  --version) echo "trireme 0.0.0"; exit ;;
  speed) exit 2 ;;
esac
[ -z "${NO_GPU:-}" ] || { echo "error: CUDA: find a GPU on node failed: no NVIDIA driver is installed"; exit 3; }
[[ " $* " == *" ${NEEDS:-$1} "* ]] || { echo "error: cuDNN refuses"; exit 4; }
[[ " $* " != *gpu.attention=* ]] || { echo "command line:1:2: error: gpu.attention: unknown key: known keys are: graphs"; exit 2; }
if [[ -n ${HANGS:-} && " $* " == *" run.name=$HANGS "* ]]; then
  trap '' TERM
  setsid sleep 1000 &
  sleep 1000 &
  echo "waits for ever"
  sleep 1000
fi
[[ " $* " != *"gpt2-124m.yaml "* || " $* " == *" ${GPT2_NEEDS:-$1} "* ]] || { echo "error: cuBLASLt refuses"; exit 4; }
for step in 1 2 3 4; do echo "step      $step/4  loss 5.${step}000  grad norm 1  lr 0.001  $((100 + step)) k tokens/s  0.1 TFLOP/s"; done
"""
# A fake profiler or sanitizer, which only runs the program after its options.
TOOL = r"""#!/bin/bash
while [ ! -x "$1" ] || [ -d "$1" ]; do
  [ "$1" != --log-file ] || echo '"ID","Kernel Name"' >"$2"
  shift
done
exec "$@"
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class SessionTest(TrainingTest):
    """Runs the script with a build tree and reads the files in its output folder."""

    def setUp(self):
        super().setUp()
        self.out = self.path("out")
        self.tree = self.path("tree")
        os.mkdir(self.tree)
        write_program(os.path.join(self.tree, "trireme"), STAND_IN)

    def words(self, *words, tree=None):
        return ["bash", SCRIPT, *words, "--tiny", "--tree", tree or self.tree, "--out", self.out]

    def environment(self, **variables):
        # The unit tests check leaks. Test shards that load libraries by name would report leaks of those libraries.
        return {**os.environ, "TMPDIR": self.folder, "ASAN_OPTIONS": "detect_leaks=0", **variables}

    def session(self, *words, tree=None, **variables):
        """The exit code, and the verdict on each item."""
        self.done = subprocess.run(self.words(*words, tree=tree), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                   timeout=600, check=False, env=self.environment(**variables))
        return self.done.returncode, self.verdicts()

    def read(self, name):
        path = os.path.join(self.out, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def left_over(self):
        """Remaining processes of this test's items, recognized by their temporary folder."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    variables = file.read()
            except OSError:
                continue
            if b"TRIREME_GPU_ITEM=" in variables and self.folder.encode() in variables:
                found.append(path)
        return found

    def verdicts(self):
        return dict(re.findall(r"^ *\d+ s  (\S+) +(passed|FAILED|skipped|no time)\b", self.read("results.txt"), re.MULTILINE))

    def listed(self, stage):
        return subprocess.run(["bash", SCRIPT, stage, "--list"], capture_output=True, text=True, timeout=60, check=True).stdout.split()


class GpuSessionFailures(SessionTest):
    """All failures, with the fake program."""

    def test_a_missing_library_ends_the_session_at_once(self):
        self.assertEqual(self.session("first", BROKEN="libnccl.so.2"), (3, {"version": "FAILED"}))
        self.assertIn("libnccl.so.2: cannot open", self.read("results.txt"))

    def test_a_missing_program_is_an_error(self):
        self.assertEqual(self.session("first", "--bundle", self.path("none.tar.xz"), tree=self.path("none"))[0], 3)

    def test_without_a_gpu_it_is_skipped(self):
        self.assertEqual(self.session("first", NO_GPU="1"), (77, {"version": "passed", "smoke": "FAILED"}))

    def test_the_first_key_that_helps_is_used_afterwards(self):
        code, verdicts = self.session("first", "gpt2-124m*", NEEDS="gpu.graphs=false")
        self.assertEqual(code, 1, self.done.stdout)
        expected = {"smoke": "FAILED", "smoke-try-again": "FAILED", "smoke-try-fp32": "FAILED", "smoke-try-without-graphs": "passed",
                    "gpt2-124m": "passed", "gpt2-124m-own-attention": "skipped"}
        self.assertEqual({name: verdicts[name] for name in expected}, expected)
        self.assertNotIn("smoke-try-gelu-apart", verdicts)
        self.assertIn("all later runs have gpu.graphs=false", self.read("results.txt"))
        self.assertRegex(self.read("speed.txt"), r"gpt2-124m +103000 tokens/s .* loss 5\.4000 at step 4")

    def test_gpt2_has_a_ladder_of_its_own(self):
        code, verdicts = self.session("first", "train-cpu", "gpt2-124m", "gpt2-124m-again", GPT2_NEEDS="gpu.fused_gelu=false")
        expected = {"smoke": "passed", "train-cpu": "passed", "gpt2-124m": "FAILED", "gpt2-124m-try-gelu-apart": "passed",
                    "gpt2-124m-again": "passed"}
        self.assertEqual(code, 1, self.done.stdout)
        self.assertEqual({name: verdicts[name] for name in expected}, expected)
        verdicts = self.session("first", "train-cpu", "gpt2-124m", "gpt2-124m-again", GPT2_NEEDS="none")[1]
        self.assertEqual((verdicts["train-cpu"], verdicts["gpt2-124m-again"]), ("passed", "skipped"))

    def test_without_any_key_that_helps_what_does_not_train_still_runs(self):
        write_program(os.path.join(self.tree, "test_device"), "#!/bin/bash\necho a case\n")
        code, verdicts = self.session("first", "train-cpu", "test-device", NEEDS="none")
        self.assertEqual((code, verdicts["train-cpu"], verdicts["test-device"]), (1, "skipped", "passed"))
        self.assertEqual(verdicts["smoke-try-own-attention"], "FAILED")

    def test_an_unknown_option_fails_with_its_name(self):
        code, verdicts = self.session("first", "train-cpu", tree=os.path.dirname(TRIREME), OPTIONS="model.wrong=1")
        self.assertEqual((code, verdicts["smoke"], verdicts["train-cpu"]), (1, "FAILED", "skipped"), self.done.stdout)
        self.assertIn("model.wrong", self.read("results.txt"))

    def test_a_hanging_item_is_ended_with_its_processes(self):
        code, verdicts = self.session("first", "gpt2-124m", "gpt2-124m-again", "--limit", "2", HANGS="gpt2-124m")
        self.assertEqual(code, 1, self.done.stdout)
        self.assertEqual((verdicts["gpt2-124m"], verdicts["gpt2-124m-again"]), ("FAILED", "passed"))
        self.assertRegex(self.read("results.txt"), "gpt2-124m +FAILED +.* no end within 2 s")
        self.assertIn("[gpt2-124m] waits for ever", self.read("log.txt"))
        self.assertEqual(self.left_over(), [])

    def test_items_after_the_limit_have_no_time(self):
        code, verdicts = self.session("first", "gpt2-124m*", "--minutes", "0.2", HANGS="gpt2-124m")
        self.assertEqual(code, 1, self.done.stdout)
        self.assertEqual((verdicts["gpt2-124m"], verdicts["gpt2-124m-again"]), ("FAILED", "no time"))
        self.assertEqual(self.session("first", "gpt2-124m", "--minutes", "0.01")[0], 75)

    def test_a_signal_ends_the_items(self):
        words = self.words("first", "gpt2-124m")
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=self.environment(HANGS="gpt2-124m")) as running:
            until = time.monotonic() + 60
            while "waits for ever" not in self.read("log.txt") and time.monotonic() < until:
                time.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            self.assertEqual(running.wait(60), 143, running.stdout.read())
        self.assertIn("interrupted by signal 15; running were: gpt2-124m", self.read("results.txt"))
        self.assertEqual(self.left_over(), [])

    def test_no_item_of_a_name_is_an_error(self):
        self.assertNotEqual(self.session("first", "no-such-item")[0], 0)


class GpuSession(SessionTest):
    """Whole stages on emulated GPUs."""

    def rehearse(self, stage):
        tools = self.path("tools")
        os.mkdir(tools)
        for name in ("ncu", "compute-sanitizer"):
            write_program(os.path.join(tools, name), TOOL)
        code, verdicts = self.session(stage, tree=os.path.dirname(TRIREME), TRIREME_EMULATED_GPUS="3", PATH=f"{tools}:{os.environ['PATH']}")
        self.assertEqual(code, 0, self.done.stdout)
        self.assertEqual(sorted(verdicts), sorted(self.listed(stage)))
        for line in re.findall(r"^.* skipped .*$", self.read("results.txt"), re.MULTILINE):
            self.assertRegex(line, "PyTorch cannot be imported")
        self.assertLessEqual(len(os.listdir(self.out)), 8)
        return verdicts

    def test_first_stage(self):
        self.rehearse("first")
        self.assertRegex(self.read("speed.txt"), r"gpt2-124m-again +\d+ tokens/s")
        self.assertIn("Kernel Name", self.read("ncu.csv"))

    def test_second_stage(self):
        self.rehearse("second")
        self.assertIn("fc.forward", self.read("ops.json"))


if __name__ == "__main__":
    unittest.main()
