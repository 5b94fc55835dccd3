"""The example without dependencies, as one process and as a gang, stopped and resumed."""

import json
import os
import pathlib
import socket
import unittest

from .test_loop import Case, FakeAgent

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "trainers" / "linear.py"


class Linear(Case):
    def run_example(self, *args, agent=None, **more):
        return self.start(EXAMPLE.read_text(), agent=agent, args=args, **more)

    def checkpoint(self):
        with open(os.path.join(self.folder, "checkpoints", "linear.json")) as file:
            return json.load(file)

    def test_the_loss_falls_and_a_checkpoint_is_made(self):
        out, _ = self.run_example("--steps", 200).communicate()
        losses = [float(line.split()[-1]) for line in out.splitlines() if " loss " in line]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0] / 10)
        self.assertEqual(out.splitlines()[-1], "done after step 200")

    def test_a_stopped_and_resumed_run_ends_like_an_uninterrupted_one(self):
        self.run_example("--steps", 300).communicate()
        whole = self.checkpoint()
        agent = FakeAgent(self.folder, 1)
        child = self.run_example("--steps", 300, "--pause", 0.01, agent=agent)
        agent.wait_for_step(20)
        agent.stop()
        child.communicate()
        self.assertEqual(child.returncode, 75)
        step = self.report(0)
        self.assertEqual((self.checkpoint()["step"], step < 300), (step, True))
        out, _ = self.run_example("--steps", 300, DOVETAIL_RESUME_STEP=str(step)).communicate()
        self.assertIn("resumed after step %d" % step, out)
        self.assertEqual(self.checkpoint(), whole)

    def test_a_gang_averages_its_gradients(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        place = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="3")
        ranks = [self.run_example("--steps", 100, RANK=str(r), **place) for r in range(3)]
        outs = [rank.communicate()[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0])
        self.assertTrue(outs[0].endswith("done after step 100\n"))
        self.assertEqual(outs[1:], ["", ""])


if __name__ == "__main__":
    unittest.main()
