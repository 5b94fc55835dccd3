#!/usr/bin/env python3
"""Estimates π by Monte Carlo with MPI. Dovetail starts `mpirun` on the first node; $DOVETAIL_HOSTFILE lists all nodes."""

import random
import sys

from mpi4py import MPI


def main():
    world = MPI.COMM_WORLD
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    draw = random.Random(world.rank)
    inside = sum(draw.random() ** 2 + draw.random() ** 2 < 1 for _ in range(points))
    total = world.reduce(inside, op=MPI.SUM, root=0)
    if world.rank == 0:
        print("%d ranks, %d points each: pi is about %.5f" % (world.size, points, 4 * total / points / world.size))


if __name__ == "__main__":
    main()
