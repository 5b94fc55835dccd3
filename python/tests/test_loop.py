"""The loop without Dovetail, and with a fake agent that can disconnect and restart."""

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
    """The agent's side of the socket: records messages, and stops all ranks after the same step."""

    def __init__(self, folder, world):
        self.path = os.path.join(folder, "agent.sock")
        self.world = world
        self.messages = []
        self.at_step = {}
        self.is_stopping = False
        self.last_step = None
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
        """Closes all connections, as if the agent was killed."""
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
                    rank = self.received(connection, rank, json.loads(line))
            except OSError:
                pass

    def received(self, connection, rank, message):
        with self.changed:
            if "hello" in message:
                rank = message["hello"]["rank"]
                self.connections[rank] = connection
                if self.is_stopping:
                    self.send(rank, {"stop": {"reason": "preempted"}})
            elif "at_step" in message:
                self.at_step[rank] = message["at_step"]["step"]
                if len(self.at_step) == self.world and self.last_step is None:
                    self.last_step = max(self.at_step.values())
                if self.last_step is not None:
                    for other in self.connections:
                        self.send(other, {"stop_at": {"step": self.last_step}})
            self.messages.append((rank, message))
            self.changed.notify_all()
        return rank

    def send(self, rank, command):
        self.connections[rank].sendall(json.dumps(command).encode() + b"\n")

    def stop(self):
        with self.changed:
            self.is_stopping = True
            for rank in self.connections:
                self.send(rank, {"stop": {"reason": "preempted"}})

    def wait_for(self, condition):
        with self.changed:
            if not self.changed.wait_for(condition, timeout=60):
                raise AssertionError("timed out; last messages: %r" % self.messages[-5:])

    def wait_for_step(self, step):
        def reached():
            return any(m.get("progress", {}).get("step", 0) >= step for _, m in self.messages)

        self.wait_for(reached)


class Barrier:
    """Stands for the collective operation in each step: no rank leaves it before all have entered."""

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

    def start(self, script=TRAINER, agent=None, args=(), python=sys.executable, **more):
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
        command = [python, "-c", script, *map(str, args)]
        child = subprocess.Popen(command, env=env, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        return child

    def report(self, rank):
        with open(os.path.join(self.folder, "reports", "checkpoint.%d" % rank)) as file:
            return int(file.read())


class WithoutDovetail(Case):
    def test_iterate_is_a_plain_loop(self):
        script = """
import dovetail, os
print(list(dovetail.iterate([1, 2, 3])), list(dovetail.iterate([1, 2], total_steps=5)))
print(dovetail.rank(), dovetail.world_size(), dovetail.resume_step(), dovetail.stopping())
dovetail.checkpointed(3)
print(os.path.basename(dovetail.checkpoint_dir()))
"""
        out, _ = self.start(script).communicate()
        self.assertEqual(out, "[1, 2, 3] [1, 2, 1, 2, 1]\n0 1 0 None\ncheckpoints\n")

    def test_checkpoints_are_made_at_the_interval(self):
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


class WithAgent(Case):
    def test_progress_and_the_end_are_reported(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent, TOTAL="20", DOVETAIL_RESUME_STEP="5")
        out, _ = child.communicate()
        self.assertEqual((out, child.returncode), ("done 20\n", 0))
        agent.wait_for(lambda: (0, {"finished": {"step": 20}}) in agent.messages)
        last = [m["progress"] for _, m in agent.messages if "progress" in m][-1]
        self.assertEqual((last["step"], last["total"]), (20, 20))
        self.assertGreater(last["step_us"], 0)

    def test_a_stopped_script_makes_a_checkpoint_and_exits_with_75(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent)
        agent.wait_for_step(3)
        agent.stop()
        out, _ = child.communicate()
        self.assertEqual(child.returncode, 75)
        self.assertEqual(out, "saved %d\n" % agent.last_step)
        self.assertEqual(self.report(0), agent.last_step)

    def test_all_ranks_stop_after_the_same_step(self):
        world = 4
        for repetition in range(3):
            agent = FakeAgent(self.folder, world)
            barrier = Barrier(world)
            ranks = [
                self.start(agent=agent, args=(barrier.port,), RANK=str(r), WORLD_SIZE=str(world))
                for r in range(world)
            ]
            agent.wait_for(lambda: len(agent.connections) == world)
            agent.wait_for_step(random.randrange(1, 50))
            # The command reaches ranks one by one, far apart compared with the length of a step.
            with agent.changed:
                agent.is_stopping = True
            for rank in random.sample(range(world), world):
                with agent.changed:
                    agent.send(rank, {"stop": {"reason": "preempted"}})
                threading.Event().wait(random.random() * 0.05)
            outs = [rank.communicate()[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [75] * world)
            self.assertEqual(set(outs), {"saved %d\n" % agent.last_step}, "repetition %d" % repetition)
            agent.close()

    def test_the_script_reconnects_to_a_restarted_agent(self):
        agent = FakeAgent(self.folder, 1)
        child = self.start(agent=agent)
        agent.wait_for_step(2)
        agent.close()
        agent.messages = []
        agent.open()
        agent.wait_for(lambda: any("hello" in m for _, m in agent.messages))
        agent.stop()
        out, _ = child.communicate()
        self.assertEqual((child.returncode, out), (75, "saved %d\n" % agent.last_step))

    def test_a_waiting_rank_gets_the_last_step_from_a_restarted_agent(self):
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
        self.assertEqual((child.returncode, out), (75, "saved %d\n" % agent.last_step))

    def test_the_loop_continues_without_an_agent(self):
        agent = FakeAgent(self.folder, 1)
        agent.close()
        child = self.start(agent=agent, TOTAL="5")
        self.assertEqual((child.communicate()[0], child.returncode), ("done 5\n", 0))


if __name__ == "__main__":
    unittest.main()
