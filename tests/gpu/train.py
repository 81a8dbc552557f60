"""Trains a small network with PyTorch and prints the losses: run directly and remotely, they must be the same.

usage: train.py [STEPS]

Convolutions, matrix products, normalisation, Adam and random numbers of the GPU; everything is seeded and PyTorch
is told to be deterministic. The time goes to stderr.
"""

import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch import nn  # noqa: E402


def network():
    """A small classifier of 32 by 32 images."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10)).cuda()


def main():
    """Trains and prints one loss a step."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(256, 3, 32, 32, device="cuda")
    labels = (images.mean(dim=(1, 2, 3)) * 400).long().remainder(10)
    torch.cuda.synchronize()
    started = time.monotonic()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    for step, loss in enumerate(torch.stack(losses).cpu().tolist()):
        print("step %d loss %.6f" % (step, loss))
    print("%.3f" % (time.monotonic() - started), file=sys.stderr)
    if not losses[-1] < losses[0]:
        sys.exit("the network learns nothing")


if __name__ == "__main__":
    main()
