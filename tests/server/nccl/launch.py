"""Starts ranks as torchrun does: each finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment.

usage: launch.py --ranks N [--first RANK] [--of WORLD_SIZE] --master ADDRESS:PORT COMMAND…

The exit status is that of the first rank that fails, when all have ended.
"""

import argparse
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--of", type=int)
    parser.add_argument("--master", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    address, _, port = arguments.master.rpartition(":")
    ranks = [subprocess.Popen(arguments.command, env=dict(
        os.environ, RANK=str(arguments.first + local), LOCAL_RANK=str(local), WORLD_SIZE=str(arguments.of or arguments.ranks),
        MASTER_ADDR=address, MASTER_PORT=port)) for local in range(arguments.ranks)]
    return next((status for status in [rank.wait() for rank in ranks] if status), 0)


if __name__ == "__main__":
    sys.exit(main())
