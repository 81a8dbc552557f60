"""Machines for tests of a pool: network namespaces on cables to one switch, which can be cut. They need root; what was made is removed by
clean_up, in the order opposite to that in which it was made."""

import subprocess

from pool_case import end, wait_until

CLEAN_UP = []


def clean_up():
    while CLEAN_UP:
        CLEAN_UP.pop()()


def tool(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


class Place:
    """A network namespace, on a cable to the switch, which can be cut."""

    switch = None

    def __init__(self, number=None):
        self.number = number
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep 100000"],
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        CLEAN_UP.append(lambda: end(self.holder))
        wait_until(self.is_there, "a network", 20)
        if number is None:
            self.inside("ip", "link", "add", "switch", "type", "bridge")
            self.inside("ip", "link", "set", "switch", "up")
            Place.switch = self
            return
        self.address = "10.78.0.%d" % number
        self.switch.inside("ip", "link", "add", "p%d" % number, "type", "veth", "peer", "name", "eth0", "netns",
                           str(self.holder.pid))
        self.switch.inside("ip", "link", "set", "p%d" % number, "master", "switch", "up")
        self.inside("ip", "addr", "add", self.address + "/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.is_cut = False

    def is_there(self):
        try:
            with open("/proc/%d/comm" % self.holder.pid) as file:
                return file.read().strip() == "sleep"
        except OSError:
            return False

    def words(self, *words):
        return ["nsenter", "--target", str(self.holder.pid), "--net", *words]

    def inside(self, *words):
        tool(*self.words(*words))

    def cut(self, on):
        self.switch.inside("ip", "link", "set", "p%d" % self.number, "down" if on else "up")
        self.is_cut = on
