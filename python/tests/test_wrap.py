"""Wrapped PyTorch models: gradients of two gloo processes, and the stages that they report."""

import json
import socket
import unittest

from . import interpreter
from .test_gates import GateAgent, GateCase
from .test_loop import Case, FakeAgent

GRADIENTS = """
import json
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import dovetail, dovetail.pytorch

dovetail.pytorch.BUCKET_BYTES = 200
torch.set_num_threads(1)
rank, world = dovetail.rank(), dovetail.world_size()
dist.init_process_group("gloo", rank=rank, world_size=world)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.of_rank_1 = nn.Linear(3, 3)
        self.never = nn.Linear(3, 3)
        self.wide = nn.Parameter(torch.ones(100))

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x))) * self.wide.mean()
        return self.of_rank_1(y) if rank == 1 else y

def train(kind, accumulate):
    # Ranks start with different parameters, which the first operation makes equal.
    torch.manual_seed(7 + rank)
    model = Net()
    if kind != "plain":
        model = DDP(model, find_unused_parameters=True, gradient_as_bucket_view=kind == "views")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if kind != "reference":
        model, optimizer, loader = dovetail.wrap(model, optimizer, range(4))
    draw = torch.Generator().manual_seed(rank)
    history = []
    for step in range(4):
        optimizer.zero_grad()
        for part in range(3 if accumulate else 1):
            x = torch.randn(5, 6, generator=draw)
            if accumulate == "no_sync" and part < 2 and kind != "plain":
                with model.no_sync():
                    model(x).square().mean().backward()
            else:
                model(x).square().mean().backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        grads = {n.replace("module.", ""): p.grad for n, p in model.named_parameters()}
        history.append({n: None if g is None else g.tolist() for n, g in sorted(grads.items())})
        optimizer.step()
    history.append([p.tolist() for p in model.parameters()])
    return history

def difference(a, b):
    if isinstance(a, float):
        return abs(a - b)
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    pairs = [(a[k], b[k]) for k in a] if isinstance(a, dict) else list(zip(a, b))
    assert len(a) == len(b)
    return max([difference(x, y) for x, y in pairs], default=0.0)

for accumulate in (None, "sync", "no_sync"):
    reference = train("reference", accumulate)
    for kind in ("wrapped", "views", "plain"):
        print(json.dumps([str(accumulate), kind, difference(reference, train(kind, accumulate))]), flush=True)
dist.destroy_process_group()
"""

STAGES = """
import os, time
import torch, torch.distributed as dist
from torch import nn
import dovetail

torch.set_num_threads(1)
world = dovetail.world_size()
if world > 1:
    dist.init_process_group("gloo", rank=dovetail.rank(), world_size=world)

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

def batches():
    while True:
        with torch.no_grad():
            # Forward passes of the loader are part of the data stage.
            model(torch.ones(1, 4))
        yield torch.ones(2, 4)

model = Slow(4, 2)
if os.environ.get("DDP"):
    model = nn.parallel.DistributedDataParallel(model)
model, optimizer, loader = dovetail.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), batches())
for batch in dovetail.iterate(loader, total_steps=20):
    optimizer.zero_grad()
    time.sleep(0.01)
    model(batch).sum().backward()
    optimizer.step()
"""

ERRORS = """
import torch
import dovetail

def attempt(*args):
    try:
        dovetail.wrap(*args)
        print("accepted")
    except (TypeError, ValueError) as error:
        print(error)

class FullyShardedDataParallel(torch.nn.Linear):
    pass

model = torch.nn.Linear(2, 2)
attempt("model", None, [])
attempt(model, None, [])
attempt(FullyShardedDataParallel(2, 2), torch.optim.SGD(model.parameters(), lr=0.1), [])
"""


class Wrap(GateCase):
    def setUp(self):
        super().setUp()
        self.python = interpreter.with_torch()
        if self.python is None:
            self.skipTest("PyTorch is not installed")

    def gang(self, script, world, **more):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        place = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=str(world))
        return [self.start(script, python=self.python, RANK=str(r), **place, **more) for r in range(world)]

    def test_gradients_equal_those_of_plain_ddp(self):
        ranks = self.gang(GRADIENTS, 2)
        outs = [rank.communicate()[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        for out in outs:
            results = [json.loads(line) for line in out.splitlines()]
            self.assertEqual(len(results), 9)
            for accumulate, kind, difference in results:
                # Sums of several backward passes are rounded in another order.
                self.assertLessEqual(difference, 0 if accumulate == "None" else 1e-6, (accumulate, kind))

    def test_forward_and_backward_are_gpu_and_the_average_is_net(self):
        for more in ({}, {"DDP": "1"}):
            agent = GateAgent(self.folder, 2)
            ranks = self.gang(STAGES, 2, agent=agent, **more)
            self.assertEqual([rank.wait() for rank in ranks], [0, 0])
            agent.wait_for(lambda: sum("finished" in message for _, message in agent.messages) == 2)
            kinds = ("enter", "leave", "pass")
            of_rank = [m for r, m in agent.messages if r == 1 and any(kind in m for kind in kinds)]
            step = of_rank[-1]["pass"]["step"]
            stages = [m["enter"]["stage"] for m in of_rank if "enter" in m and m["enter"]["step"] == step]
            self.assertEqual((step, stages), (20, ["data", "gpu", "net"]))
            progress = [m["progress"] for r, m in agent.messages if r == 0 and "progress" in m][-1]
            self.assertGreater(progress["data_us"], 20_000)
            self.assertGreater(progress["gpu_us"], 20_000)
            self.assertGreater(progress["net_us"], 0)
            named = sum(progress[name + "_us"] for name in ("data", "gpu", "net", "gate"))
            self.assertGreater(progress["step_us"] - named, 9_000, "the wait before the forward pass is in no stage")
            agent.close()

    def test_a_model_alone_has_no_net_stage(self):
        agent = FakeAgent(self.folder, 1)
        self.assertEqual([rank.wait() for rank in self.gang(STAGES, 1, agent=agent)], [0])
        agent.wait_for(lambda: any("finished" in message for _, message in agent.messages))
        progress = [m["progress"] for _, m in agent.messages if "progress" in m][-1]
        self.assertGreater(progress["gpu_us"], 20_000)
        self.assertEqual(progress["net_us"], 0)

    def test_what_cannot_be_wrapped_is_a_clear_error(self):
        out, _ = self.gang(ERRORS, 1)[0].communicate()
        self.assertEqual(
            out.splitlines(),
            [
                "invalid model: expected a torch.nn.Module, found str",
                "invalid optimizer: expected a torch.optim.Optimizer, found NoneType",
                "sharded models cannot be wrapped: mark their stages with `with dovetail.stage(...)`",
            ],
        )


class WithoutTorch(Case):
    def test_wrap_says_what_is_missing(self):
        script = """
import sys
import dovetail
sys.modules["torch"] = None
try:
    dovetail.wrap(None, None, None)
except ImportError as error:
    print(error)
"""
        out, _ = self.start(script).communicate()
        self.assertEqual(out, "dovetail.wrap requires PyTorch, which is not installed (pip install torch)\n")


if __name__ == "__main__":
    unittest.main()
