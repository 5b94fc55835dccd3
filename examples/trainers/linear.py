#!/usr/bin/env python3
"""A linear model trained by stochastic gradient descent. Uses numpy if it is installed, and no other package.

Each rank draws its own batches. A gang averages its gradients after each step through rank 0, which listens on
MASTER_ADDR:MASTER_PORT.
"""

import argparse
import json
import os
import random
import socket
import time

import dovetail

try:
    import numpy
except ImportError:
    numpy = None

BATCH = 32


class Model:
    """Weights and the gradient of the squared error, computed with lists or numpy arrays."""

    def __init__(self, size):
        self.weights = [0.0] * size

    def gradient(self, inputs, targets):
        if numpy is not None:
            x, w = numpy.array(inputs), numpy.array(self.weights)
            error = x @ w - numpy.array(targets)
            return (x.T @ error * (2 / len(targets))).tolist(), float(error @ error) / len(targets)
        slope, loss = [0.0] * len(self.weights), 0.0
        for x, target in zip(inputs, targets):
            error = sum(a * b for a, b in zip(x, self.weights)) - target
            loss += error * error / len(targets)
            for i, value in enumerate(x):
                slope[i] += 2 * error * value / len(targets)
        return slope, loss

    def descend(self, slope, rate):
        self.weights = [w - rate * s for w, s in zip(self.weights, slope)]


class Gang:
    """Averages values over all ranks: each sends a line of JSON to rank 0 and receives one."""

    def __init__(self, rank, world):
        self.rank, self.world, self.lines = rank, world, []
        if world == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            server = socket.create_server(address, backlog=world)
            for _ in range(world - 1):
                self.lines.append(server.accept()[0].makefile("rw"))
        else:
            self.lines.append(self.connect(address).makefile("rw"))

    @staticmethod
    def connect(address):
        for _ in range(600):
            try:
                return socket.create_connection(address)
            except OSError:
                time.sleep(0.1)
        raise SystemExit("cannot reach rank 0 at %s:%d" % address)

    def average(self, values):
        if self.world == 1:
            return values
        if self.rank != 0:
            self.send(self.lines[0], values)
            return self.receive(self.lines[0])
        rows = [values] + [self.receive(line) for line in self.lines]
        mean = [sum(column) / self.world for column in zip(*rows)]
        for line in self.lines:
            self.send(line, mean)
        return mean

    @staticmethod
    def send(line, values):
        line.write(json.dumps(values) + "\n")
        line.flush()

    @staticmethod
    def receive(line):
        text = line.readline()
        if not text:
            raise SystemExit("lost the connection to another rank")
        return json.loads(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="total number of steps")
    parser.add_argument("--size", type=int, default=16, help="number of weights")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait in each step")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    options = parser.parse_args()

    model = Model(options.size)
    path = os.path.join(dovetail.checkpoint_dir(), "linear.json")
    step = dovetail.resume_step()
    if step:
        with open(path) as file:
            saved = json.load(file)
        if saved["step"] != step:
            raise SystemExit("%s: expected the checkpoint of step %d, found step %d" % (path, step, saved["step"]))
        model.weights = saved["weights"]
        print("resumed after step %d" % step, flush=True)

    @dovetail.on_checkpoint
    def save(step):
        if dovetail.rank() == 0:
            with open(path + ".new", "w") as file:
                json.dump({"step": step, "weights": model.weights}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".new", path)
            print("checkpoint after step %d" % step, flush=True)

    gang = Gang(dovetail.rank(), dovetail.world_size())
    truth = [random.Random(i).uniform(-1, 1) for i in range(options.size)]

    for _ in dovetail.iterate(range(1000), total_steps=options.steps, checkpoint_every=options.every):
        # The batch of a step does not depend on how often the job was stopped.
        draw = random.Random(step * 1009 + dovetail.rank())
        inputs = [[draw.gauss(0, 1) for _ in truth] for _ in range(BATCH)]
        targets = [sum(a * b for a, b in zip(x, truth)) for x in inputs]
        slope, loss = model.gradient(inputs, targets)
        *slope, loss = gang.average(slope + [loss])
        model.descend(slope, options.rate)
        step += 1
        if options.pause:
            time.sleep(options.pause)
        if dovetail.rank() == 0 and step % 50 == 0:
            print("step %d loss %.6f" % (step, loss), flush=True)
    if dovetail.rank() == 0:
        print("done after step %d" % step, flush=True)


if __name__ == "__main__":
    main()
