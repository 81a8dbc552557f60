#!/usr/bin/env python3
"""The pool's protocol (softgpu/exec/grid/pool.c), explored in full for a few threads.

Every step that the code takes under the engine's lock is one step here, as is every block that is begun and ended
without it. In all states that can be reached in any order of steps:

- the counts that the code keeps (workers of a grid, grids that starve, workers on their way) say what is so;
- who calls sg_exec_run returns when all blocks have ended, and nobody works on the grid any more;
- all callers can still come to an end: nobody waits for a wake-up that was lost, nor for a slot that never comes.

Grids may wait for each other ("needs"), and workers may be impossible to make, or sleep through any call ("deaf"):
callers depend on nobody but themselves. Then the same with mistakes put in, which have to be found.
"""
import sys
from collections import namedtuple

# caller: where it is, and the blocks that it holds.  worker: where, on which grid, and the blocks that it holds.
State = namedtuple("State", "callers workers grids listed free made idle coming starving")
Grid = namedtuple("Grid", "next ended workers listed")

MISTAKES = ("no news of the last worker", "no extra slot", "callers wait for a slot without limit",
            "grids stay in the list")


class Wrong(Exception):
    pass


class Pool:
    """
    One situation: how many blocks each caller's grid has, which grid must end before its blocks can, how many cores, and how many
    of them may work on each grid.
    """

    def __init__(self, blocks, needs, cores, most=None, workers=None, deaf=False, mistake=None):
        self.blocks, self.needs, self.cores = blocks, needs, cores
        self.most = most or (cores,) * len(blocks)
        self.n_workers = cores if workers is None else workers
        self.deaf, self.mistake = deaf, mistake
        self.unheard = False  # the calls of the step that is taken

    def first(self):
        return State(tuple(("start", 0) for _ in self.blocks), tuple(("unmade", 0, 0) for _ in range(self.n_workers)),
                     tuple(Grid(0, 0, 0, False) for _ in self.blocks), (), 0, 0, (), 0, 0)

    # --- what the functions of pool.c do; `s` is a dictionary of the state's parts ---

    def has_blocks(self, s, g):
        return s["grids"][g].next < self.blocks[g]

    def set_grid(self, s, g, **changes):
        s["grids"][g] = s["grids"][g]._replace(**changes)

    def take_slot(self, s, extra):
        if s["free"]:
            s["free"] -= 1
            return True
        if s["made"] >= self.cores + (len(self.blocks) if extra and self.mistake != "no extra slot" else 0):
            return False
        s["made"] += 1
        return True

    def return_slot(self, s):
        s["free"] += 1

    def signal_finished(self, s, g):
        where, held = s["callers"][g]
        if where in ("sleeps", "wants slot"):
            s["callers"][g] = ("woken" if where == "sleeps" else "looks for slot", held)

    def list_grid(self, s, g):
        s["listed"].insert(0, g)
        self.set_grid(s, g, listed=True)
        s["starving"] += s["grids"][g].workers == 0

    def unlist_grid(self, s, g):
        if s["grids"][g].listed:
            s["listed"].remove(g)
            self.set_grid(s, g, listed=False)
            s["starving"] -= s["grids"][g].workers == 0

    def join_grid(self, s, g):
        s["starving"] -= s["grids"][g].workers == 0 and s["grids"][g].listed
        self.set_grid(s, g, workers=s["grids"][g].workers + 1)

    def leave_grid(self, s, g):
        self.set_grid(s, g, workers=s["grids"][g].workers - 1)
        if s["grids"][g].workers == 0:
            s["starving"] += s["grids"][g].listed
            if self.mistake != "no news of the last worker":
                self.signal_finished(s, g)

    def choose_grid(self, s):
        best = None
        for g in list(s["listed"]):
            if not self.has_blocks(s, g):
                self.unlist_grid(s, g)
                if not s["grids"][g].workers:
                    self.signal_finished(s, g)
            elif s["grids"][g].workers < self.most[g] and (
                    best is None or s["grids"][g].workers <= s["grids"][best].workers):
                best = g
        return best

    def wake_worker(self, s):
        if not s["idle"] or self.unheard:
            return False
        w = s["idle"].pop()
        s["workers"][w] = ("coming", 0, 0)
        s["coming"] += 1
        return True

    def call_worker(self, s):
        if self.wake_worker(s) or s["coming"] or self.unheard:
            return
        for w, worker in enumerate(s["workers"]):
            if worker[0] == "unmade":
                s["workers"][w] = ("coming", 0, 0)
                s["coming"] += 1
                return

    def look(self, s, w):
        g = self.choose_grid(s)
        if g is None or not self.take_slot(s, False):
            s["idle"].append(w)
            s["workers"][w] = ("idle", 0, 0)
            return
        self.join_grid(s, g)
        if self.blocks[g] - s["grids"][g].next > 1 or s["starving"]:
            self.call_worker(s)
        s["workers"][w] = ("works", g, 0)

    # --- who can do what ---

    def work_steps(self, s, g, held, may_leave):
        """The blocks begun and ended by somebody who works on grid g: (held afterwards; None: leaves)."""
        need = self.needs[g]
        if self.has_blocks(s, g) and not (held and need is None):
            yield held + 1, lambda t: self.set_grid(t, g, next=t["grids"][g].next + 1)
        if held and (need is None or s["grids"][need].ended == self.blocks[need]):
            yield held - 1, lambda t: self.set_grid(t, g, ended=t["grids"][g].ended + 1)
        if not held and (not self.has_blocks(s, g) or (may_leave and s["starving"])):
            yield None, None

    def steps(self, state):
        for self.unheard in (False, True) if self.deaf else (False,):
            yield from self.steps_of(state)

    def steps_of(self, state):
        for c, (where, held) in enumerate(state.callers):
            if where == "works":
                for after, change in self.work_steps(self.open(state), c, held, False):
                    t = self.open(state)
                    if change:
                        change(t)
                    t["callers"][c] = ("works", after) if after is not None else ("leaves", 0)
                    yield self.close(t)
            elif where == "wants slot":  # its time is over
                if self.mistake != "callers wait for a slot without limit":
                    yield self.close(self.look_for_slot(self.open(state), c, True))
            elif where not in ("done", "sleeps"):
                yield self.close(getattr(self, "caller_" + where.replace(" ", "_"))(self.open(state), c))
        for w, (where, g, held) in enumerate(state.workers):
            t = self.open(state)
            if where == "coming":
                t["coming"] -= 1
                self.look(t, w)
                yield self.close(t)
            elif where == "leaves":
                if not self.has_blocks(t, g):
                    self.unlist_grid(t, g)
                self.leave_grid(t, g)
                self.return_slot(t)
                self.look(t, w)
                yield self.close(t)
            elif where == "works":
                for after, change in self.work_steps(t, g, held, True):
                    t = self.open(state)
                    if change:
                        change(t)
                    t["workers"][w] = ("works", g, after) if after is not None else ("leaves", g, 0)
                    yield self.close(t)

    def caller_start(self, s, c):
        alone = self.blocks[c] == 1 or self.most[c] == 1
        slot = self.take_slot(s, False)
        if slot:
            self.join_grid(s, c)
        if not alone or not slot:
            self.list_grid(s, c)
            self.call_worker(s)
        if slot:
            s["callers"][c] = ("works", 0)
            return s
        return self.go_on(s, c)

    def caller_leaves(self, s, c):
        self.return_slot(s)
        self.leave_grid(s, c)
        if s["idle"] and self.choose_grid(s) is not None:
            self.wake_worker(s)
        return self.go_on(s, c)

    def caller_woken(self, s, c):
        return self.go_on(s, c)

    def caller_looks_for_slot(self, s, c):
        return self.look_for_slot(s, c, False)

    def look_for_slot(self, s, c, late):
        if self.take_slot(s, late):
            self.join_grid(s, c)
            s["callers"][c] = ("works", 0)
            return s
        return self.go_on(s, c)

    def go_on(self, s, c):
        if s["grids"][c].workers:
            s["callers"][c] = ("sleeps", 0)
        elif self.has_blocks(s, c):
            s["callers"][c] = ("wants slot", 0)
        else:
            if self.mistake != "grids stay in the list":
                self.unlist_grid(s, c)
            if s["grids"][c].ended != self.blocks[c]:
                raise Wrong("a caller returns before its blocks have ended")
            s["callers"][c] = ("done", 0)
        return s

    # --- states ---

    @staticmethod
    def open(state):
        s = state._asdict()
        for part in ("callers", "workers", "grids", "listed", "idle"):
            s[part] = list(s[part])
        return s

    def close(self, s):
        for part in ("callers", "workers", "grids", "listed", "idle"):
            s[part] = tuple(s[part])
        state = State(**s)
        for g, grid in enumerate(state.grids):
            at_work = sum(1 for where, on, _ in state.workers if where in ("works", "leaves") and on == g)
            at_work += state.callers[g][0] in ("works", "leaves")
            if grid.workers != at_work:
                raise Wrong("a grid's workers are miscounted")
            if state.callers[g][0] == "done" and (at_work or grid.listed):
                raise Wrong("somebody works on a grid that is gone")
        if state.starving != sum(1 for grid in state.grids if grid.listed and not grid.workers):
            raise Wrong("the grids that starve are miscounted")
        if state.coming != sum(1 for worker in state.workers if worker[0] == "coming"):
            raise Wrong("the workers on their way are miscounted")
        return state


def explore(pool):
    """The number of states; raises Wrong."""
    first = pool.first()
    before, open_states = {first: []}, [first]
    while open_states:
        state = open_states.pop()
        for after in pool.steps(state):
            if after not in before:
                before[after] = []
                open_states.append(after)
            before[after].append(state)
    good = [state for state in before if all(where == "done" for where, _ in state.callers)]
    reach = set(good)
    while good:  # backwards: those from which the end can be reached
        for state in before[good.pop()]:
            if state not in reach:
                reach.add(state)
                good.append(state)
    for state in before:
        if state not in reach:
            raise Wrong(f"no way to the end from {state}")
    return len(before)


SITUATIONS = [
    # blocks of each caller's grid, the grid whose end its blocks wait for, cores, cores of each grid if not all
    ((3,), (None,), 2),
    ((2, 2), (None, None), 1),
    ((2, 2), (None, None), 2),
    ((2, 2), (1, None), 1),
    ((3, 1), (1, None), 2),
    ((1, 1, 1), (1, 2, None), 1),
    ((2, 2, 1), (2, None, None), 2),
    ((3,), (None,), 2, (1,)),
    ((2, 2), (1, None), 2, (1, 1)),
    ((3, 1), (1, None), 3, (2, 1)),
]


def main():
    failed = False
    for situation in SITUATIONS:
        blocks, needs, cores = situation[:3]
        for name, options in (("", {}), (", no workers", {"workers": 0}), (", deaf workers", {"deaf": True})):
            if sum(blocks) > 4 and options:
                continue  # too many states
            try:
                count = explore(Pool(*situation, **options))
                print(f"blocks {blocks}, needs {needs}, {cores} cores{name}: {count} states")
            except Wrong as wrong:
                print(f"blocks {blocks}, needs {needs}, {cores} cores{name}: {wrong}")
                failed = True
    for mistake in MISTAKES:
        found = False
        for situation in SITUATIONS:
            try:
                explore(Pool(*situation, mistake=mistake))
            except Wrong:
                found = True
                break
        print(f"mistake \"{mistake}\": {'found' if found else 'NOT FOUND'}")
        failed |= not found
    return failed


if __name__ == "__main__":
    sys.exit(main())
