"""A rank as torchrun, launch.py or Open MPI starts it: gets NCCL's id over the network from rank 0, as programs do, and runs nccl_ranks.

usage: rank.py NCCL_RANKS CASE

It takes the device of its number, of all that the job has. Open MPI sets no MASTER_ADDR and MASTER_PORT: those have to be there.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

ID_BYTES = 128


def variable(*names):
    """The first of these environment variables that is set."""
    return next(os.environ[name] for name in names if name in os.environ)


def serve(listener, path, others):
    """Gives the id to all others once it has been made."""
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        made = file.read()
    for _ in range(others):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(made)


def fetch(address):
    """The id, as soon as rank 0 is there and has it."""
    while True:
        try:
            with socket.create_connection(address, timeout=120) as connection:
                made = connection.recv(ID_BYTES, socket.MSG_WAITALL)
        except ConnectionRefusedError:
            made = b""
        if len(made) == ID_BYTES:
            return made
        time.sleep(0.05)


def main():
    program, case = sys.argv[1:]
    rank, ranks = (variable(*names) for names in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")))
    master = variable("MASTER_ADDR"), int(variable("MASTER_PORT"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "id")
        if rank == "0":
            listener = socket.create_server(master)
            threading.Thread(target=serve, args=(listener, path, int(ranks) - 1), daemon=True).start()
        else:
            with open(path, "wb") as file:
                file.write(fetch(master))
        return subprocess.run([program, path, ranks, rank, "1", case, rank], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
