"""The workloads: each model is stopped half way and resumed, and its losses are those of a run without the stop."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

from . import interpreter
from .test_gates import GateAgent
from .test_loop import PACKAGE

WORKLOADS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "workloads"
MODELS = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0", "bert", "gpt2", "a2c", "dqn")
STEPS, HALF = 24, 12

#: Imports PyTorch once, and forks a process for each run. A line of input is a run, a line of output its process or its end.
STARTER = """
import json, os, runpy, sys, threading
sys.path.insert(0, sys.argv[1])
import torch

def write(**message):
    os.write(1, json.dumps(message).encode() + b"\\n")

def watch(number, child):
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    write(run=number, code=code)

for line in sys.stdin:
    run = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ.update(run["env"])
            os.chdir(run["folder"])
            for number in (1, 2):
                os.dup2(os.open(run["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            sys.argv = run["args"]
            sys.path.insert(0, os.path.dirname(run["args"][0]))
            torch.set_num_threads(1)
            runpy.run_path(run["args"][0], run_name="__main__")
            code = 0
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    threading.Thread(target=watch, args=(run["run"], child)).start()
"""


class Workloads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = interpreter.with_torch()
        if python is None:
            raise unittest.SkipTest("PyTorch is not installed")
        env = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL_")}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            env.pop(name, None)
        env.update(OMP_NUM_THREADS="1")
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.starter = subprocess.Popen([python, "-c", STARTER, PACKAGE], env=env, **pipes)
        cls.python, cls.runs, cls.codes = python, 0, {}

    @classmethod
    def tearDownClass(cls):
        cls.starter.stdin.close()
        cls.starter.wait()
        cls.starter.stdout.close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def begin(self, model, *args, folder, agent=None, **env):
        """Starts a run of a model and returns its number."""
        cls = type(self)
        cls.runs += 1
        folder = os.path.join(self.folder, folder)
        os.makedirs(os.path.join(folder, "reports"), exist_ok=True)
        env["DOVETAIL_CHECKPOINT_DIR"] = os.path.join(folder, "checkpoints")
        if agent is not None:
            env.update(DOVETAIL_JOB_ID="1", DOVETAIL_SOCKET=agent.path, DOVETAIL_SECRET="hush")
            env.update(DOVETAIL_REPORT_DIR=os.path.join(folder, "reports"))
        fixed = ["--model", model, "--size", "tiny", "--batch-size", 4, "--steps", STEPS, "--log-every", 1]
        command = [str(WORKLOADS / "train.py"), *map(str, fixed), "--deterministic", *map(str, args)]
        output = os.path.join(self.folder, "output.%d" % cls.runs)
        run = dict(run=cls.runs, args=command, env=env, folder=folder, output=output)
        cls.starter.stdin.write(json.dumps(run) + "\n")
        cls.starter.stdin.flush()
        return cls.runs

    def end(self, run):
        """Waits for a run. Returns its exit code, its losses by step, and its whole output."""
        cls = type(self)
        while run not in cls.codes:
            message = json.loads(cls.starter.stdout.readline())
            cls.codes[message["run"]] = message["code"]
        with open(os.path.join(self.folder, "output.%d" % run)) as file:
            text = file.read()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return cls.codes[run], {line["step"]: line["loss"] for line in lines if "loss" in line}, text

    def finish(self, run, code=0):
        """Waits for a run that ends with this code, and returns its losses."""
        found, losses, text = self.end(run)
        self.assertEqual(found, code, text)
        return losses

    def ranks(self, model, world, place, **more):
        """Starts all ranks of a gang; `place` gives the variables of the launcher for a rank."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        return [self.begin(model, **address, **place(rank, world), **more) for rank in range(world)]

    def stop_half_way(self, world, start):
        """Stops a run at the gate of a step; returns the last step and the losses before it."""
        agent = GateAgent(self.folder, world, allows=lambda stage, step: step <= HALF)
        self.addCleanup(agent.close)
        runs = start(agent)
        agent.wait_for(lambda: len(agent.connections) == world)
        agent.wait_for_request("data")
        agent.stop()
        losses = [self.finish(run, 75) for run in runs]
        self.assertLess(agent.last_step, STEPS)
        self.assertGreater(agent.last_step, 0)
        return agent.last_step, losses[0]

    def test_every_model_resumes_with_the_losses_of_an_uninterrupted_run(self):
        for model in MODELS:
            with self.subTest(model=model):
                whole = self.finish(self.begin(model, folder=model + "-whole"))
                self.assertEqual(sorted(whole), list(range(1, STEPS + 1)))
                step, before = self.stop_half_way(1, lambda agent: [self.begin(model, folder=model, agent=agent)])
                after = self.finish(self.begin(model, folder=model, DOVETAIL_RESUME_STEP=str(step)))
                self.assertEqual(min(after), step + 1)
                self.assertEqual({**before, **after}, whole)

    def test_gangs_of_torchrun_and_mpirun_resume_with_the_losses_of_an_uninterrupted_run(self):
        def torchrun(rank, world):
            return dict(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))

        def mpirun(rank, world):
            names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
            return dict({name: str(rank) for name in names}, OMPI_COMM_WORLD_SIZE=str(world))

        for model, place in (("resnet18", torchrun), ("a2c", mpirun), ("dqn", torchrun)):
            with self.subTest(model=model):
                whole = [self.finish(run) for run in self.ranks(model, 2, place, folder=model + "-whole")]
                self.assertEqual((len(whole[0]), whole[1]), (STEPS, {}))
                alone = self.finish(self.begin(model, folder=model + "-alone"))
                self.assertNotEqual(alone, whole[0])
                step, before = self.stop_half_way(
                    2, lambda agent: self.ranks(model, 2, place, folder=model, agent=agent)
                )
                resumed = self.ranks(model, 2, place, folder=model, DOVETAIL_RESUME_STEP=str(step))
                after = [self.finish(run) for run in resumed]
                self.assertEqual({**before, **after[0]}, whole[0])

    def test_a_resized_run_is_told_its_size_between_two_steps(self):
        agent = GateAgent(self.folder, 1, allows=lambda stage, step: step <= HALF)
        self.addCleanup(agent.close)
        run = self.begin("vgg16", folder="run", agent=agent)
        step = agent.wait_for_request("data")
        agent.send(0, {"resize": {"cpu_milli": 1500, "memory_mib": 2048}})
        agent.allows = lambda stage, step: True
        agent.send(0, {"go": {"stage": "data", "step": step}})
        code, losses, text = self.end(run)
        self.assertEqual((code, len(losses)), (0, STEPS), text)
        self.assertIn(json.dumps({"step": step, "cpus": 1.5, "memory_mib": 2048}), text.splitlines())

    def test_text_files_are_trained_on_and_the_loss_falls(self):
        with open(os.path.join(self.folder, "wiki.train.tokens"), "w") as file:
            file.write("the cat sat on the mat and the dog sat on the rug .\n" * 50)
        for model in ("gpt2", "bert"):
            run = self.begin(model, "--steps", 100, "--data", self.folder, folder=model)
            losses = self.finish(run)
            self.assertLess(losses[100], losses[1] * 0.6, model)

    def test_images_are_read_from_folders_of_classes(self):
        script = """
import sys
from PIL import Image
for label, color in (("cat", (250, 20, 20)), ("dog", (20, 20, 250))):
    for number in range(10):
        Image.new("RGB", (48 + number, 40), color).save("%s/train/%s/%d.JPEG" % (sys.argv[1], label, number))
"""
        for label in ("cat", "dog"):
            os.makedirs(os.path.join(self.folder, "images", "train", label))
        images = os.path.join(self.folder, "images")
        made = subprocess.run([self.python, "-c", script, images], capture_output=True, text=True)
        run = self.begin("resnet18", "--data", images, folder="run")
        if "No module named 'PIL'" in made.stderr:
            code, _, text = self.end(run)
            self.assertEqual((code, text), (2, "error: --data requires Pillow to decode images (apt-get install python3-pil)\n"))
            print("SKIPPED: Pillow is not installed (apt-get install python3-pil)", flush=True)
            return
        self.assertEqual(made.returncode, 0, made.stderr)
        losses = self.finish(run)
        self.assertLess(losses[STEPS], losses[1] * 0.5)

    def test_what_cannot_be_trained_is_a_clear_error(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        cases = [
            (("gpt2", "--data", empty), "found no file that ends with .txt, .tokens or .raw"),
            (("gpt2", "--data", "/nonexistent"), "expected a text file, or a folder of text files"),
            (("vgg16", "--data", empty), None),
            (("dqn", "--data", empty), "dqn plays a built-in game and reads no data"),
            (("vgg16", "--batch-size", "0"), "--batch-size: expected a whole number from 1 to 65536, found 0"),
            (("a2c", "--learning-rate", "nan"), "--learning-rate: expected a number greater than 0"),
        ]
        for (model, *args), text in cases:
            code, _, output = self.end(self.begin(model, *args, folder="run"))
            self.assertEqual(code, 2, output)
            self.assertIn(text or "error: --data", output)
        code, _, output = self.end(self.begin("a2c", folder="run", DOVETAIL_RESUME_STEP="7"))
        self.assertEqual(code, 2)
        self.assertIn("error: missing checkpoint of step 7", output)
        run = self.begin("a2c", folder="run", RANK="0", WORLD_SIZE="2")
        self.assertIn("error: missing address of rank 0: set MASTER_ADDR and MASTER_PORT", self.end(run)[2])
        missing = "error: --backend horovod requires Horovod, which is not installed (pip install horovod)\n"
        found = subprocess.run([self.python, "-c", "import horovod.torch"], capture_output=True).returncode == 0
        if not found:
            self.assertEqual(self.end(self.begin("a2c", "--backend", "horovod", folder="run"))[::2], (2, missing))

    def test_a_checkpoint_of_another_run_is_refused_and_old_ones_are_removed(self):
        self.finish(self.begin("a2c", "--checkpoint-every", 5, folder="run"))
        kept = sorted(os.listdir(os.path.join(self.folder, "run", "checkpoints")))
        self.assertEqual(kept, ["step-15", "step-20"])
        code, _, text = self.end(self.begin("a2c", "--seed", 2, folder="run", DOVETAIL_RESUME_STEP="20"))
        self.assertEqual(code, 2)
        self.assertIn("is of another run: expected", text)


if __name__ == "__main__":
    unittest.main()
