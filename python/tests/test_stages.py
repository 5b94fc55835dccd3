"""Stages of steps, logged metrics and resizes, reported to a fake agent by real scripts."""

import json
import os

from .test_loop import Case, FakeAgent


class StageCase(Case):
    def progress_of(self, body, loader="range(1)"):
        """Runs one step and returns its report. In the script, `work` takes the given milliseconds."""
        script = """
import time, threading, os
import dovetail

def work(millis):
    time.sleep(millis / 1e3)

def slow_loader():
    work(30)
    yield 0

for batch in dovetail.iterate(%s, total_steps=1):
%s
# The session may connect late.
work(150)
""" % (loader, "\n".join("    " + line for line in body.strip().splitlines()))
        agent = FakeAgent(self.folder, 1)
        self.addCleanup(agent.close)
        child = self.start(script, agent=agent)
        self.assertEqual((child.communicate()[0], child.returncode), ("", 0))
        agent.wait_for_step(1)
        return [message["progress"] for _, message in agent.messages if "progress" in message][-1]

    def assert_millis(self, body, loader="range(1)", **stages):
        """Checks how long each stage of a step takes. A stage that is too long may be due to a busy machine: then it is measured again."""
        for attempt in range(8):
            progress = self.progress_of(body, loader)
            self.assertEqual(progress["gate_us"], 0)
            excess = 0
            for name in ("data", "gpu", "net"):
                more = progress[name + "_us"] / 1e3 - stages.get(name, 0)
                self.assertGreaterEqual(more, 0, (name, progress))
                excess = max(excess, more)
            if excess < 15:
                return progress
        self.fail("a stage is too long by %d ms: expected %r, found %r" % (excess, stages, progress))


class Stages(StageCase):
    def test_the_wait_for_the_loader_is_data_and_the_body_is_gpu(self):
        progress = self.assert_millis("work(60)", "slow_loader()", data=30, gpu=60)
        self.assertGreaterEqual(progress["step_us"], 90_000)

    def test_with_gpu_blocks_only_the_blocks_count_even_in_the_first_step(self):
        progress = self.assert_millis("""
work(60)
with dovetail.stage("gpu"):
    work(40)
work(60)
with dovetail.stage("gpu"):
    work(40)
""", gpu=80)
        self.assertGreaterEqual(progress["step_us"], 200_000)

    def test_a_net_block_ends_the_implicit_gpu_stage(self):
        self.assert_millis("""
work(40)
with dovetail.stage("net"):
    work(60)
work(80)
""", gpu=40, net=60)

    def test_the_implicit_gpu_stage_continues_after_a_data_block(self):
        self.assert_millis("""
with dovetail.stage("data"):
    work(50)
work(70)
""", data=50, gpu=70)

    def test_of_nested_blocks_the_inner_one_counts_and_then_the_outer_one_continues(self):
        self.assert_millis("""
with dovetail.stage("gpu"):
    work(30)
    with dovetail.stage("net"):
        work(50)
    work(30)
    with dovetail.stage("gpu"):
        work(10)
""", gpu=70, net=50)

    def test_a_block_that_raises_ends_its_stage(self):
        self.assert_millis("""
try:
    with dovetail.stage("net"):
        work(40)
        raise OSError
except OSError:
    work(60)
""", net=40)

    def test_blocks_of_other_threads_and_of_child_processes_do_not_count(self):
        self.assert_millis("""
def load():
    with dovetail.stage("net"):
        work(40)
thread = threading.Thread(target=load)
thread.start()
thread.join()
child = os.fork()
if child == 0:
    load()
    os._exit(0)
os.waitpid(child, 0)
""", gpu=80)

    def test_an_unknown_stage_is_an_error_that_names_the_accepted_ones(self):
        script = """
import dovetail
for name in ("cpu", None):
    try:
        dovetail.stage(name)
    except ValueError as error:
        print(error)
"""
        out, _ = self.start(script).communicate()
        expected = 'unknown stage "%s": expected one of data, gpu, net\n'
        self.assertEqual(out, expected % "cpu" + expected % None)

    def test_outside_of_a_loop_and_without_dovetail_a_stage_does_nothing(self):
        script = """
import dovetail
def train():
    with dovetail.stage("gpu"), dovetail.stage("net"):
        print("in stage")
train()
for _ in dovetail.iterate(range(1)):
    train()
train()
"""
        for agent in (None, FakeAgent(self.folder, 1)):
            child = self.start(script, agent=agent)
            self.assertEqual((child.communicate()[0], child.returncode), ("in stage\n" * 3, 0))

    def test_a_loop_that_is_left_early_ends_its_stages(self):
        script = """
import dovetail
for _ in dovetail.iterate(range(9)):
    break
from dovetail import stages
print(stages.active())
for step in dovetail.iterate(range(2)):
    for inner in dovetail.iterate(range(2)):
        with dovetail.stage("net"):
            print(step, inner)
"""
        child = self.start(script, agent=FakeAgent(self.folder, 1))
        self.assertEqual((child.communicate()[0], child.returncode), ("None\n0 0\n0 1\n1 0\n1 1\n", 0))


class Metrics(Case):
    def test_metrics_are_sent_with_the_next_report_and_only_once(self):
        script = """
import time
import dovetail
for step in dovetail.iterate(range(3)):
    dovetail.log(loss=0.5 - step, rate=7)
    time.sleep(0.8)
"""
        agent = FakeAgent(self.folder, 1)
        child = self.start(script, agent=agent)
        self.assertEqual(child.wait(), 0)
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        sent = [m["progress"].get("metrics") for _, m in agent.messages if "progress" in m]
        values = [metrics for metrics in sent if metrics]
        self.assertEqual(values[-1], {"loss": -1.5, "rate": 7.0})
        self.assertLessEqual(len(values), 3)

    def test_invalid_metrics_are_errors(self):
        script = """
import math
import dovetail
wrong = [{"loss": math.nan}, {"loss": math.inf}, {"loss": "3"}, {"loss": None}, {"loss": 10 ** 400}, {"": 1}, {"x" * 65: 1}, {"\u00e9": 1}]
for metrics in wrong:
    try:
        dovetail.log(**metrics)
        print("accepted", metrics)
    except ValueError as error:
        assert "invalid" in str(error), error
dovetail.log(**{"x%d" % i: i for i in range(32)})
try:
    dovetail.log(one_more=1)
except ValueError as error:
    print(error)
dovetail.log(x0=2)
"""
        child = self.start(script)
        expected = "too many metrics: expected at most 32 different names, found 33\n"
        self.assertEqual((child.communicate()[0], child.returncode), (expected, 0))

    def test_the_longest_report_fits_in_one_message_of_the_agent(self):
        script = """
import time
import dovetail
for _ in dovetail.iterate(range(1), total_steps=1):
    dovetail.log(**{"x" * 62 + "%02d" % i: -1.2345678901234567e-300 for i in range(32)})
    time.sleep(0.2)
"""
        agent = FakeAgent(self.folder, 1)
        self.start(script, agent=agent).wait()
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        longest = max(len(json.dumps(message)) for _, message in agent.messages)
        self.assertGreater(longest, 2_500)
        self.assertLess(longest, 4_096)


RESIZED = """
import os, threading, time
import dovetail

main = threading.get_ident()

@dovetail.on_resize
def resize(cpus, memory_mib):
    assert threading.get_ident() == main and isinstance(cpus, float)
    print("size", cpus, memory_mib, flush=True)

for step in dovetail.iterate(range(100)):
    if step in (2, 5):
        print("step", flush=True)
        while not os.path.exists("continue.%d" % step):
            time.sleep(0.005)
        time.sleep(0.2)
    if step == 6:
        break
"""


SLOWER = """
import time
import dovetail

length = 0.005

@dovetail.on_resize
def resize(cpus, memory_mib):
    global length
    length = 0.1
    print("slower", flush=True)

slow = 0
for _ in dovetail.iterate(range(10_000)):
    time.sleep(length)
    slow += length == 0.1
    if slow == 12:
        break
"""


class Resize(Case):
    def test_the_newest_size_is_delivered_once_between_two_steps(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(RESIZED, agent=agent)
        self.assertEqual(child.stdout.readline(), "step\n")
        agent.wait_for(lambda: 0 in agent.connections)
        for cpus in (1000, 2500, 4000):
            agent.send(0, {"resize": {"cpu_milli": cpus, "memory_mib": 8192}})
        open(os.path.join(self.folder, "continue.2"), "w").close()
        self.assertEqual(child.stdout.readline(), "size 4.0 8192\n")
        self.assertEqual(child.stdout.readline(), "step\n")
        agent.send(0, {"resize": {"cpu_milli": 500, "memory_mib": 256}})
        open(os.path.join(self.folder, "continue.5"), "w").close()
        self.assertEqual(child.communicate()[0], "size 0.5 256\n")

    def test_steps_after_a_resize_are_averaged_without_those_before(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(SLOWER, agent=agent)
        agent.wait_for_step(20)
        agent.send(0, {"resize": {"cpu_milli": 500, "memory_mib": 256}})
        self.assertEqual(child.stdout.readline(), "slower\n")
        child.communicate()
        progress = [message["progress"] for _, message in agent.messages if "progress" in message]
        slow = [report["step_us"] for report in progress if report["step_us"] > 20_000]
        self.assertGreater(min(slow), 95_000)

    def test_a_message_that_is_no_command_does_not_end_the_session(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent)
        agent.wait_for_step(2)
        for message in ({"resize": {}}, {"resize": {"cpu_milli": None, "memory_mib": 1}}, {"gates": 1}, [], {"unknown": {}}):
            agent.send(0, message)
        agent.connections[0].sendall(b"not JSON\n")
        agent.stop()
        self.assertEqual((child.communicate()[0], child.returncode), ("saved %d\n" % agent.last_step, 75))
