"""Machines for tests of a pool: those of scripts/network.py, whose cables can be pulled. They need root; clean_up removes what was made,
and what else was put on STACK, the last first."""

import contextlib

from network import Network

STACK = contextlib.ExitStack()
clean_up = STACK.close


class Place:
    """A machine on a cable to the one switch, which is made with the first."""

    network = None

    def __init__(self, number):
        if not Place.network:
            Place.network = Network(STACK)
            STACK.callback(self.forget)
        self.number = number
        self.machine = self.network.join(STACK, "p%d" % number, number)
        self.address = self.machine.address
        self.words = self.machine.command
        self.is_cut = False

    @staticmethod
    def forget():
        Place.network = None

    def cut(self, on):
        self.network.cut(self.number, on)
        self.is_cut = on
