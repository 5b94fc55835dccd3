"""Steps whose stages are sleeps: stages.py DATA_MS GPU_MS NET_MS."""

import sys
import time

import dovetail

data, gpu, net = (float(ms) / 1e3 for ms in sys.argv[1:4])


class Loader:
    def __iter__(self):
        while True:
            time.sleep(data)
            yield None


@dovetail.on_checkpoint
def save(step):
    pass


for _ in dovetail.iterate(Loader(), total_steps=1_000_000):
    with dovetail.stage("gpu"):
        time.sleep(gpu)
    if net:
        with dovetail.stage("net"):
            time.sleep(net)
