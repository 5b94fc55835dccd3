#!/usr/bin/env python3
"""A small image or language model with PyTorch's DistributedDataParallel: gloo on CPUs, nccl on GPUs.

The data is generated, and is the same in each attempt: images of four kinds of stripes, or text in which each letter is
determined by the two before it.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dovetail

BATCH = 32
LETTERS = 32
LENGTH = 24


class Images(nn.Module):
    """A small convolutional network that classifies four kinds of stripes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 4),
        )

    @staticmethod
    def batch(draw):
        kinds = torch.randint(0, 4, (BATCH,), generator=draw)
        row, column = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        waves = torch.stack([row, column, row + column, row - column])
        shift = torch.rand((BATCH, 1, 1), generator=draw) * 6
        noise = torch.randn((BATCH, 16, 16), generator=draw) * 0.5
        return (torch.sin(waves[kinds] + shift) + noise).unsqueeze(1), kinds

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)

    def forward(self, inputs):
        return self.layers(inputs)


class Language(nn.Module):
    """A small transformer that predicts each letter from those before it."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 48)
        self.positions = nn.Parameter(torch.zeros(LENGTH, 48))
        self.block = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True)
        self.head = nn.Linear(48, LETTERS)

    @staticmethod
    def batch(draw):
        text = torch.randint(0, LETTERS, (BATCH, LENGTH + 1), generator=draw)
        for i in range(2, LENGTH + 1):
            text[:, i] = (text[:, i - 1] + text[:, i - 2]) % LETTERS
        return text[:, :-1], text[:, 1:]

    def loss(self, output, target):
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    def forward(self, text):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH).to(text.device)
        return self.head(self.block(self.letters(text) + self.positions, src_mask=mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["images", "language"], default="images")
    parser.add_argument("--steps", type=int, default=500, help="total number of steps")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    options = parser.parse_args()

    rank, world = dovetail.rank(), dovetail.world_size()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", dovetail.local_rank()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)

    torch.manual_seed(1)
    model = (Images() if options.task == "images" else Language()).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    path = os.path.join(dovetail.checkpoint_dir(), "ddp-%s.pt" % options.task)
    step = dovetail.resume_step()
    if step:
        saved = torch.load(path, map_location=device)
        if saved["step"] != step:
            raise SystemExit("%s: expected the checkpoint of step %d, found step %d" % (path, step, saved["step"]))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        if rank == 0:
            print("resumed after step %d" % step, flush=True)
    parallel = DistributedDataParallel(model, [device.index] if cuda else None) if world > 1 else model

    @dovetail.on_checkpoint
    def save(step):
        if rank == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
            print("checkpoint after step %d" % step, flush=True)

    for _ in dovetail.iterate(range(1000), total_steps=options.steps, checkpoint_every=options.every):
        # The batch of a step does not depend on how often the job was stopped.
        draw = torch.Generator().manual_seed(step * 1009 + rank)
        inputs, target = (tensor.to(device) for tensor in model.batch(draw))
        loss = model.loss(parallel(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 20 == 0:
            print("step %d loss %.4f" % (step, loss.item()), flush=True)
    if world > 1:
        dist.destroy_process_group()
    if rank == 0:
        print("done after step %d" % step, flush=True)


if __name__ == "__main__":
    main()
