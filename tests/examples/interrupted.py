"""Programs that work until something happens to them."""

import threading
import time

from trial import wait_until

# A program that works until it is stopped: one thread, more rounds than anyone waits for.
ENDLESS = ["host_threads", "1", "2000000000", "1000"]
# How long a program may take to notice that its session is lost.
NOTICE = 30


def endless(build):
    """The command line of a program that runs until something happens to it."""
    return [build.example(ENDLESS[0]), *ENDLESS[1:]]


def when_working(server, action):
    """For run_program: waits until the program's session has worked for a while, then does `action(worker)`."""

    def watch(_):
        def go():
            if wait_until(server.workers, 20):
                time.sleep(1.5)
                workers = server.workers()
                if workers:
                    action(workers[0])

        threading.Thread(target=go, daemon=True).start()

    return watch
