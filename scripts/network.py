"""A network of machines for tests and benchmarks: network namespaces at one switch, each with an address, a name and a link whose
bandwidth can be limited.

It needs root. What runs in a machine is started with the words of Machine.command; all of it should end before the network does. The
namespaces end with this program, however that ends.
"""

import os
import shutil
import subprocess

from trial import Failure, wait_until

TOOLS = ("unshare", "nsenter", "setpriv", "ip", "tc")


def why_not():
    """Why this machine can have no such network; "" if it can."""
    if os.geteuid() != 0:
        return "machines of a network are namespaces, which need root"
    for tool in TOOLS:
        if not shutil.which(tool):
            return "there is no program %s" % tool
    if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return "this machine does not let root make namespaces"
    return ""


def checked(*command):
    """Runs a tool that must succeed."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60)
    if result.returncode != 0:
        raise Failure("%s failed: %s" % (" ".join(command), result.stdout.decode(errors="replace").strip()))


class Machine:
    """A namespace, held by a process that ends with this program."""

    def __init__(self, stack, name, address=""):
        self.name, self.address = name, address
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"],
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        stack.callback(self.end)
        if not wait_until(self.is_there, 10):
            raise Failure("the namespace of %s cannot be made" % name)
        checked(*self.command("ip", "link", "set", "lo", "up"))

    def is_there(self):
        """Whether its namespace has been made."""
        try:
            with open("/proc/%d/comm" % self.holder.pid) as file:
                return file.read().strip() == "sleep"
        except OSError:
            return False

    def command(self, *words):
        """The words that run `words` there."""
        return ["nsenter", "--target", str(self.holder.pid), "--net", *words]

    def bytes_on_the_wire(self):
        """How many bytes its link has carried, both ways."""
        total = 0
        with open("/proc/%d/net/dev" % self.holder.pid) as file:
            for line in file:
                name, colon, counts = line.partition(":")
                if colon and name.strip() == "eth0":
                    total = int(counts.split()[0]) + int(counts.split()[8])
        return total

    def limit(self, rate):
        """What it sends is limited to so many bits a second ("1gbit"); "": not any more."""
        subprocess.run(self.command("tc", "qdisc", "del", "dev", "eth0", "root"), stderr=subprocess.DEVNULL, check=False)
        if rate:
            checked(*self.command("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb",
                                  "latency", "50ms"))

    def end(self):
        """Ends what holds the namespace."""
        self.holder.kill()
        self.holder.wait()


class Network:
    """Machines of these names at one switch, 10.78.0.1, .2, … in their order, and those that join later."""

    def __init__(self, stack, *names):
        why = why_not()
        if why:
            raise Failure(why)
        self.switch = Machine(stack, "switch")
        checked(*self.switch.command("ip", "link", "add", "bridge", "type", "bridge"))
        checked(*self.switch.command("ip", "link", "set", "bridge", "up"))
        self.machines = [self.join(stack, name, number) for number, name in enumerate(names, 1)]

    def join(self, stack, name, number):
        """One more machine at the switch."""
        machine = Machine(stack, name, "10.78.0.%d" % number)
        port = "port%d" % number
        checked(*self.switch.command("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
                                     str(machine.holder.pid)))
        checked(*self.switch.command("ip", "link", "set", port, "master", "bridge", "up"))
        checked(*machine.command("ip", "address", "add", machine.address + "/24", "dev", "eth0"))
        checked(*machine.command("ip", "link", "set", "eth0", "up"))
        return machine

    def cut(self, number, on):
        """Pulls the cable of a machine, or puts it in again."""
        checked(*self.switch.command("ip", "link", "set", "port%d" % number, "down" if on else "up"))
