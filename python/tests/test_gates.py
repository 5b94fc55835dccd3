"""Gates: a script asks a fake agent before each stage, and proceeds without an answer when it has to."""

import time

from .test_loop import Case, FakeAgent

SCRIPT = """
import os, sys, time
import dovetail

@dovetail.on_checkpoint
def save(step):
    print("saved", step, flush=True)

for batch in dovetail.iterate(range(1000), total_steps=int(os.environ.get("TOTAL", "1000000"))):
    time.sleep(0.005)
    if os.environ.get("NET"):
        with dovetail.stage("net"):
            time.sleep(0.005)
print("done", flush=True)
"""


class GateAgent(FakeAgent):
    """An agent with gates. It answers those requests for which `allows(stage, step)` is true."""

    def __init__(self, folder, world, patience_ms=60_000, allows=None):
        self.allows = allows or (lambda stage, step: True)
        self.patience_ms = patience_ms
        self.is_gated = True
        super().__init__(folder, world)

    def received(self, connection, rank, message):
        rank = super().received(connection, rank, message)
        with self.changed:
            if "hello" in message and self.is_gated:
                self.send(rank, {"gates": {"on": True, "patience_ms": self.patience_ms}})
            elif "enter" in message and self.allows(**message["enter"]):
                self.send(rank, {"go": message["enter"]})
        return rank

    def gate_messages(self):
        """Returns the messages about gates, as tuples."""
        found = []
        for _, message in self.messages:
            for kind in ("enter", "leave", "pass"):
                if kind in message:
                    found.append((kind, message[kind].get("stage"), message[kind]["step"]))
        return found

    def wait_for_request(self, stage):
        """Waits until the script waits at a gate that this agent keeps closed; returns the step."""
        found = []

        def is_waiting():
            found[:] = self.gate_messages()[-1:]
            return bool(found) and found[0][:2] == ("enter", stage) and not self.allows(stage, found[0][2])

        self.wait_for(is_waiting)
        return found[0][2]

    def last_progress(self):
        return [message["progress"] for _, message in self.messages if "progress" in message][-1]


class GateCase(Case):
    """The patience of scripts is longer than a test may take, so that no test passes because it ends."""

    def setUp(self):
        super().setUp()
        begun = time.monotonic()
        self.addCleanup(lambda: self.assertLess(time.monotonic() - begun, 55, "a script waited until its patience ended"))


class Gates(GateCase):
    def agent(self, **more):
        agent = GateAgent(self.folder, 1, **more)
        self.addCleanup(agent.close)
        return agent

    def test_the_first_message_says_that_gates_are_understood(self):
        agent = self.agent()
        self.start(SCRIPT, agent=agent, TOTAL="1").wait()
        agent.wait_for(lambda: agent.messages)
        expected = {"hello": {"secret": "hush", "rank": 0, "world": 1, "gates": 1}}
        self.assertEqual(agent.messages[0], (0, expected))

    def test_while_gates_are_off_no_stage_is_announced(self):
        agent = self.agent()
        agent.is_gated = False
        self.start(SCRIPT, agent=agent, TOTAL="30").wait()
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        self.assertEqual(agent.gate_messages(), [])

    def test_each_step_asks_for_its_stages_from_its_beginning_on(self):
        agent = self.agent()
        child = self.start(SCRIPT, agent=agent, TOTAL="40", NET="1")
        self.assertEqual((child.communicate()[0], child.returncode), ("done\n", 0))
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        messages = agent.gate_messages()
        first = messages[0][2]
        expected = []
        for step in range(first, 41):
            for stage in ("data", "gpu", "net"):
                expected += [("enter", stage, step), ("leave", stage, step)]
            expected.append(("pass", None, step))
        self.assertEqual(messages, expected)
        self.assertLess(first, 40)
        leaves = [message["leave"] for _, message in agent.messages if "leave" in message]
        self.assertTrue(all(m["us"] >= 5_000 for m in leaves if m["stage"] != "data"), leaves)

    def test_the_wait_at_a_gate_counts_for_no_stage(self):
        opened = []

        def allows(stage, step):
            if stage == "gpu":
                time.sleep(0.03)
                opened.append(step)
            return True

        agent = self.agent(allows=allows)
        self.start(SCRIPT, agent=agent, TOTAL="60").wait()
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        progress = agent.last_progress()
        self.assertGreater(len(opened), 20)
        self.assertGreater(progress["gate_us"], 25_000)
        self.assertLess(progress["gpu_us"], 20_000)
        self.assertGreater(progress["step_us"], progress["gate_us"] + progress["gpu_us"])

    def test_a_script_without_an_answer_proceeds_when_its_patience_ends(self):
        agent = self.agent(patience_ms=100, allows=lambda stage, step: stage != "gpu" or step % 5)
        begun = time.monotonic()
        child = self.start(SCRIPT, agent=agent, TOTAL="60")
        self.assertEqual((child.communicate()[0], child.returncode), ("done\n", 0))
        self.assertGreater(time.monotonic() - begun, 0.5)
        passed = [step for kind, _, step in agent.gate_messages() if kind == "pass"]
        self.assertIn(60, passed)

    def test_a_late_answer_to_another_request_opens_no_gate(self):
        agent = self.agent(allows=lambda stage, step: stage != "gpu" or step < 10)
        child = self.start(SCRIPT, agent=agent, TOTAL="40")
        step = agent.wait_for_request("gpu")
        for answer in ({"stage": "gpu", "step": step - 1}, {"stage": "data", "step": step}, {}):
            agent.send(0, {"go": answer})
        time.sleep(0.2)
        self.assertEqual(agent.gate_messages()[-1], ("enter", "gpu", step))
        agent.allows = lambda stage, step: True
        agent.send(0, {"go": {"stage": "gpu", "step": step}})
        self.assertEqual(child.communicate()[0], "done\n")

    def test_a_waiting_script_proceeds_when_gates_are_switched_off(self):
        agent = self.agent(allows=lambda stage, step: stage != "gpu" or step < 10)
        child = self.start(SCRIPT, agent=agent, TOTAL="40")
        step = agent.wait_for_request("gpu")
        agent.send(0, {"gates": {"on": False}})
        self.assertEqual((child.communicate()[0], child.returncode), ("done\n", 0))
        self.assertEqual(agent.gate_messages()[-1], ("enter", "gpu", step), "nothing is sent after that")

    def test_a_waiting_script_proceeds_when_the_connection_is_lost(self):
        agent = self.agent(allows=lambda stage, step: step < 10)
        child = self.start(SCRIPT, agent=agent, TOTAL="40")
        agent.wait_for_request("data")
        agent.is_gated = False
        agent.close()
        self.assertEqual((child.communicate()[0], child.returncode), ("done\n", 0))

    def test_gates_are_off_after_a_reconnect_until_they_are_switched_on_again(self):
        agent = self.agent(allows=lambda stage, step: step < 10)
        child = self.start(SCRIPT, agent=agent)
        agent.wait_for_request("data")
        agent.is_gated = False
        agent.close()
        agent.messages = []
        agent.open()
        agent.wait_for_step(30)
        self.assertEqual(agent.gate_messages(), [])
        agent.allows = lambda stage, step: True
        agent.send(0, {"gates": {"on": True}})
        agent.wait_for(lambda: len(agent.gate_messages()) > 10)
        self.assertEqual(agent.gate_messages()[0][:2], ("enter", "data"))
        agent.stop()
        self.assertEqual((child.communicate()[0], child.returncode), ("saved %d\n" % agent.last_step, 75))

    def test_a_script_that_waits_for_its_next_step_can_be_stopped(self):
        agent = self.agent(allows=lambda stage, step: step < 10)
        child = self.start(SCRIPT, agent=agent)
        step = agent.wait_for_request("data")
        agent.stop()
        out, _ = child.communicate()
        self.assertEqual((out, child.returncode), ("saved %d\n" % (step - 1), 75))
        self.assertEqual(self.report(0), step - 1)

    def test_a_script_that_waits_inside_a_step_answers_and_stops_after_the_step(self):
        agent = self.agent(allows=lambda stage, step: stage != "gpu" or step < 10)
        child = self.start(SCRIPT, agent=agent)
        step = agent.wait_for_request("gpu")
        agent.stop()
        agent.wait_for(lambda: agent.at_step == {0: step})
        self.assertIsNone(child.poll())
        agent.send(0, {"go": {"stage": "gpu", "step": step}})
        self.assertEqual((child.communicate()[0], child.returncode), ("saved %d\n" % step, 75))

    def test_the_ranks_of_a_job_ask_one_by_one(self):
        agent = GateAgent(self.folder, 2)
        self.addCleanup(agent.close)
        ranks = [self.start(SCRIPT, agent=agent, TOTAL="30", RANK=str(r), WORLD_SIZE="2") for r in range(2)]
        self.assertEqual([rank.wait() for rank in ranks], [0, 0])
        for rank in range(2):
            steps = [message["pass"]["step"] for of, message in agent.messages if of == rank and "pass" in message]
            self.assertEqual(steps, list(range(steps[0], 31)))

    def test_a_loop_that_is_left_early_leaves_its_stage(self):
        script = """
import time
import dovetail
for n in dovetail.iterate(range(100)):
    time.sleep(0.01)
    if n == 30:
        break
time.sleep(0.1)
"""
        agent = self.agent()
        self.start(script, agent=agent).wait()
        agent.wait_for(lambda: ("pass", None, 31) in agent.gate_messages())
        self.assertEqual(agent.gate_messages()[-2:], [("leave", "gpu", 31), ("pass", None, 31)])
