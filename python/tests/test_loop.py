"""The loop outside of Dovetail, and with an agent that can be told to misbehave."""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

PACKAGE = str(pathlib.Path(__file__).resolve().parents[1])


class FakeAgent:
    """The agent's side of the socket: gathers what ranks say, tells them to stop together."""

    def __init__(self, folder, world):
        self.path = os.path.join(folder, "agent.sock")
        self.world = world
        self.said = []
        self.at_step = {}
        self.stops = False
        self.decided = None
        self.changed = threading.Condition()
        self.connections = {}
        self.open()

    def open(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(self.path)
        self.server.listen()
        threading.Thread(target=self.accept, args=(self.server,), daemon=True).start()

    def close(self):
        """As when the agent is killed."""
        with self.changed:
            self.server.close()
            for connection in self.connections.values():
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.connections = {}

    def accept(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("r") as lines:
            rank = None
            try:
                for line in lines:
                    rank = self.hear(connection, rank, json.loads(line))
            except OSError:
                pass

    def hear(self, connection, rank, word):
        with self.changed:
            if "hello" in word:
                rank = word["hello"]["rank"]
                self.connections[rank] = connection
                if self.stops:
                    self.say(rank, {"stop": {"reason": "preempted"}})
            elif "at_step" in word:
                self.at_step[rank] = word["at_step"]["step"]
                if len(self.at_step) == self.world and self.decided is None:
                    self.decided = max(self.at_step.values())
                if self.decided is not None:
                    for other in self.connections:
                        self.say(other, {"stop_at": {"step": self.decided}})
            self.said.append((rank, word))
            self.changed.notify_all()
        return rank

    def say(self, rank, word):
        self.connections[rank].sendall(json.dumps(word).encode() + b"\n")

    def stop(self):
        with self.changed:
            self.stops = True
            for rank in self.connections:
                self.say(rank, {"stop": {"reason": "preempted"}})

    def wait_for(self, look):
        with self.changed:
            if not self.changed.wait_for(look, timeout=60):
                raise AssertionError("waited in vain; heard: %r" % self.said[-5:])

    def wait_for_step(self, step):
        def reached():
            return any(w.get("progress", {}).get("step", 0) >= step for _, w in self.said)

        self.wait_for(reached)


class Barrier:
    """Stands for the collective operation in each step: nobody leaves it before all have come."""

    def __init__(self, world):
        self.barrier = threading.Barrier(world)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            while connection.recv(1):
                self.barrier.wait()
                connection.sendall(b".")


TRAINER = """
import os, socket, sys, time
import dovetail

gather = socket.create_connection(("127.0.0.1", int(sys.argv[1]))) if len(sys.argv) > 1 else None

@dovetail.on_checkpoint
def save(step):
    print("saved", step, flush=True)

done = dovetail.resume_step()
for batch in dovetail.iterate(range(7), total_steps=int(os.environ.get("TOTAL", "1000000"))):
    if gather:
        gather.sendall(b".")
        gather.recv(1)
    else:
        time.sleep(0.001)
    done += 1
print("done", done, flush=True)
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "reports"))
        os.mkdir(os.path.join(self.folder, "checkpoints"))

    def start(self, script=TRAINER, agent=None, args=(), **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL_")}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            env.pop(name, None)
        env["PYTHONPATH"] = PACKAGE
        if agent:
            env.update(
                DOVETAIL_JOB_ID="1",
                DOVETAIL_SOCKET=agent.path,
                DOVETAIL_SECRET="hush",
                DOVETAIL_REPORT_DIR=os.path.join(self.folder, "reports"),
                DOVETAIL_CHECKPOINT_DIR=os.path.join(self.folder, "checkpoints"),
            )
        env.update(more)
        command = [sys.executable, "-c", script, *map(str, args)]
        child = subprocess.Popen(command, env=env, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        return child

    def report(self, rank):
        with open(os.path.join(self.folder, "reports", "checkpoint.%d" % rank)) as file:
            return int(file.read())


class OutsideOfDovetail(Case):
    def test_it_is_a_plain_loop(self):
        script = """
import dovetail, os
print(list(dovetail.iterate([1, 2, 3])), list(dovetail.iterate([1, 2], total_steps=5)))
print(dovetail.rank(), dovetail.world_size(), dovetail.resume_step(), dovetail.stopping())
dovetail.checkpointed(3)
print(os.path.basename(dovetail.checkpoint_dir()))
"""
        out, _ = self.start(script).communicate()
        self.assertEqual(out, "[1, 2, 3] [1, 2, 1, 2, 1]\n0 1 0 None\ncheckpoints\n")

    def test_a_checkpoint_comes_every_so_many_steps(self):
        script = """
import dovetail
for _ in dovetail.iterate(range(10), checkpoint=lambda step: print(step), checkpoint_every=4):
    pass
"""
        out, _ = self.start(script).communicate()
        self.assertEqual(out, "4\n8\n")

    def test_a_loader_without_batches_is_an_error(self):
        child = self.start("import dovetail\nfor _ in dovetail.iterate([], total_steps=2): pass")
        self.assertNotEqual(child.wait(), 0)


class UnderAnAgent(Case):
    def test_progress_and_the_end_are_reported(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent, TOTAL="20", DOVETAIL_RESUME_STEP="5")
        out, _ = child.communicate()
        self.assertEqual((out, child.returncode), ("done 20\n", 0))
        agent.wait_for(lambda: (0, {"finished": {"step": 20}}) in agent.said)
        last = [w["progress"] for _, w in agent.said if "progress" in w][-1]
        self.assertEqual((last["step"], last["total"]), (20, 20))
        self.assertGreater(last["step_us"], 0)

    def test_a_stop_gives_a_checkpoint_and_the_special_code(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent)
        agent.wait_for_step(3)
        agent.stop()
        out, _ = child.communicate()
        self.assertEqual(child.returncode, 75)
        self.assertEqual(out, "saved %d\n" % agent.decided)
        self.assertEqual(self.report(0), agent.decided)

    def test_all_ranks_stop_after_the_same_step(self):
        world = 4
        for attempt in range(3):
            agent = FakeAgent(self.folder, world)
            barrier = Barrier(world)
            ranks = [
                self.start(agent=agent, args=(barrier.port,), RANK=str(r), WORLD_SIZE=str(world))
                for r in range(world)
            ]
            agent.wait_for(lambda: len(agent.connections) == world)
            agent.wait_for_step(random.randrange(1, 50))
            # The notice reaches ranks one by one, far apart compared with a step.
            with agent.changed:
                agent.stops = True
            for rank in random.sample(range(world), world):
                with agent.changed:
                    agent.say(rank, {"stop": {"reason": "preempted"}})
                threading.Event().wait(random.random() * 0.05)
            outs = [rank.communicate()[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [75] * world)
            self.assertEqual(set(outs), {"saved %d\n" % agent.decided}, "attempt %d" % attempt)
            agent.close()

    def test_an_agent_that_comes_back_is_found_again(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent)
        agent.wait_for_step(2)
        agent.close()
        agent.said = []
        agent.open()
        agent.wait_for(lambda: any("hello" in w for _, w in agent.said))
        agent.stop()
        out, _ = child.communicate()
        self.assertEqual((child.returncode, out), (75, "saved %d\n" % agent.decided))

    def test_a_rank_that_waits_for_word_hears_it_from_the_next_agent(self):
        agent = FakeAgent(self.folder, 2)
        child = self.start(agent=agent, WORLD_SIZE="2", RANK="0")
        agent.wait_for_step(2)
        agent.stop()
        agent.wait_for(lambda: 0 in agent.at_step)
        agent.close()
        with agent.changed:
            agent.at_step = {1: 0}
        agent.open()
        out, _ = child.communicate()
        self.assertEqual((child.returncode, out), (75, "saved %d\n" % agent.decided))

    def test_without_an_agent_the_loop_goes_on(self):
        agent = FakeAgent(self.folder, 1)
        agent.close()
        child = self.start(agent=agent, TOTAL="5")
        self.assertEqual((child.communicate()[0], child.returncode), ("done 5\n", 0))


if __name__ == "__main__":
    unittest.main()
