"""The tests of running programs remotely that are no comparisons, by name.

Each test_… function of the modules below takes the Build and raises Failure, with what was seen, if something is not as
it must be.
"""

import bulk
import clients
import conditions
import control
import delayed
import devices
import faults
import hostile
import kept
import limits
import surroundings
import wire
from trial import Failure

MODULES = (bulk, clients, conditions, control, delayed, devices, faults, hostile, kept, limits, surroundings, wire)


def run(build, name):
    """Runs one test; whether it passed."""
    function = "test_" + name.replace("-", "_")
    tests = [getattr(module, function) for module in MODULES if hasattr(module, function)]
    if len(tests) != 1:
        raise Failure("there is no test %s" % name if not tests else "several modules have a test %s" % name)
    try:
        tests[0](build)
    except Failure as failure:
        print("FAILED %s: %s" % (name, failure))
        return False
    print("%s: ok" % name)
    return True
