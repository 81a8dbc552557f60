"""The step programs, and how a result of bench/steps is judged and shown; README.md documents its JSON.

A row is a program at a round-trip time. Its ratio is to the direct time of the same run.
"""

import re

from report import machine_text, markdown_table, noise, quantity, text_table

DIRECT = "direct"
SIDES = ("0", "50us", "200us", "1ms", "10ms", "100ms")


class Program:
    """A program of bench/programs, or another that measures itself."""

    def __init__(self, key, title, command, results=None, alone=False, optional=False, environment=None, traced=False):
        self.key = key
        self.title = title
        self.command = command
        self.results = results    # that a step waits for, where the program does not tell
        # One that knows no options and prints lines as measure.h has them, of which the last is the time of its one step.
        self.alone = alone
        self.optional = optional  # left out where it is not built
        self.environment = environment or {}
        self.traced = traced      # it takes its steps by step_compare, which can trace them


PROGRAMS = (
    Program("training", "training a network, 300 launches", ["training"], traced=True),
    Program("inference", "inference, 136 launches, a token", ["inference"], traced=True),
    Program("queries", "queries of events, 20 launches", ["queries"]),
    Program("copies", "copies of 4 MiB in, 1 MiB out, pageable", ["copies"]),
    Program("copies_pinned", "… pinned", ["copies", "--pinned"]),
    Program("threads", "8 threads, each 20 launches", ["threads"]),
    Program("startup", "start-up with 60 libraries", ["startup"], results=3, alone=True, optional=True),
    Program("startup_first", "… that has never run before", ["startup"], results=3, alone=True, optional=True,
            environment={"REMOTE_GPU_CACHE": "off"}),
)


def nanoseconds(text):
    """The round-trip time of a link as a number; ValueError if it is none. A link is TIME or TIME@BANDWIDTH."""
    match = re.fullmatch(r"([0-9.]+)(ns|us|ms|s|)(@[0-9.]+[KMG]b)?", text)
    if not match or (not match.group(2) and float(match.group(1))):
        raise ValueError("'%s' is no time, nor a time and a bandwidth: 0, 50us, 1.5ms, 1ms@100Mb" % text)
    return float(match.group(1)) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "": 1}[match.group(2)]


def link_filter(side):
    """The filter that makes a link of loopback; None: nothing has to be done."""
    time, _, bandwidth = side.partition("@")
    options = ["oneway=%dns" % (nanoseconds(time) // 2)] if nanoseconds(time) else []
    options += ["bandwidth=" + bandwidth] if bandwidth else []
    return "delay:" + ",".join(options) if options else None


def time_title(side):
    """A link as people write it."""
    time, _, bandwidth = side.partition("@")
    title = re.sub(r"([0-9])(us|ms|s|ns)$", r"\1 \2", time).replace("us", "µs")
    return title + (", " + re.sub(r"([KMG])b$", r" \1b/s", bandwidth) if bandwidth else "")


# The parts of a traced step, as struct step_trace of programs/step.h names them; those that make up its time come first.
PARTS = (
    ("first", "from the first call until the first kernel begins"),
    ("kernels", "kernels"),
    ("between", "between kernels"),
    ("last", "from the end of the last kernel until the program has the result"),
)
ASIDE = (
    ("pauses", "of it between kernels: pauses of more than 2 µs"),
    ("calls", "from the first call until the last launch has returned"),
)


def trace_tables(result):
    """Where the time of a step goes, a table for each program."""
    sides = [DIRECT] + list(result["rtt"])
    found = []
    for program in PROGRAMS:
        measured = result["measurements"].get(program.key)
        if not measured:
            continue
        here = [side for side in sides if side in measured]
        def line(title, part):
            return [title] + [quantity(measured[side][part]["p50"], "ns") for side in here]
        found.append((program.title[0].upper() + program.title[1:] + ":",
                      ["round-trip time"] + [time_title(side) for side in here],
                      [line(title, part) for part, title in PARTS] + [line("the step", "time")] +
                      [line(title, part) for part, title in ASIDE]))
    return found


def judge(result):
    """Adds `rows`, by program and round-trip time, and `targets`; of a trace, rows by part as well."""
    if result["kind"] == "steps_trace":
        result["rows"] = [{"key": "%s.%s.%s" % (program, side, part), "title": "%s, %s: %s" % (program, time_title(side), part),
                           "unit": found["unit"], "measured": found["p50"], "p99": found["p99"], "noise": noise(found, None),
                           "ratio": None}
                          for program, sides in result["measurements"].items() for side, parts in sides.items()
                          for part, found in parts.items() if found["unit"] == "ns"]
        return result
    rows = []
    for program in PROGRAMS:
        found = result["measurements"].get(program.key)
        if not found:
            continue
        direct = found.get(DIRECT, {}).get("time")
        told = result["programs"].get(program.key, {})
        for side in result["rtt"]:
            time = found[side]["time"]
            rows.append({"key": "%s.%s" % (program.key, side), "program": program.key, "rtt": side,
                         "title": "%s: %s" % (program.key, time_title(side)), "unit": time["unit"],
                         "measured": time["p50"], "p99": time["p99"], "noise": noise(time, direct),
                         "direct": direct["p50"] if direct else None,
                         "ratio": time["p50"] / direct["p50"] if direct else None,
                         "results": told.get("results", program.results),
                         "round_trips": found[side]["round_trips"]["p50"], "waited": found[side]["waited"]["p50"]})
    result["rows"] = rows
    result["targets"] = targets(result, {row["key"]: row for row in rows})
    return result


def targets(result, rows):
    """What was promised: title, measured, bound in words, met; None where the noise is larger than what is missing."""
    found = []

    def add(title, value, bound, met, doubt=False):
        found.append({"title": title, "measured": value, "bound": bound, "met": None if doubt else met})

    def scatter(row):
        """How far the row's noise alone may have moved its time, in its unit; what is not known counts a tenth."""
        return row["measured"] * (0.1 if row["noise"] is None else row["noise"])

    def in_doubt(row, bound):
        """Whether the noise is larger than what the row has left to its bound, or so large that nothing can be said."""
        return scatter(row) > min(abs(row["measured"] - bound), row["measured"] / 10)

    row = rows.get("training.50us")
    if row and row["ratio"]:
        noise_text = " (± %.1f %%)" % (100 * scatter(row) / row["measured"])
        add("training at 50 µs against direct", "%+.1f %%" % (100 * row["ratio"] - 100) + noise_text, "≤ +2 %",
            row["ratio"] <= 1.02, in_doubt(row, 1.02 * row["direct"]))
    row = rows.get("training.1ms")
    if row and row["direct"]:
        over = row["measured"] - row["direct"]
        link = result["rtt"]["1ms"]["measured"]
        # A hundredth of the step for what the two runs differ by anyway.
        most = link + row["direct"] / 100
        add("training at 1 ms, beyond direct", "%s (± %s)" % (quantity(over, "ns"), quantity(scatter(row), "ns")),
            "≤ one round trip, " + quantity(link, "ns"), over <= most, in_doubt(row, row["direct"] + most))
    for key in ("training", "inference", "queries", "copies", "copies_pinned", "threads"):
        trips = [row["round_trips"] for row in rows.values() if row["program"] == key]
        if trips:
            results = next(row["results"] for row in rows.values() if row["program"] == key)
            # Half a round trip in ten steps is the end of another thing.
            add("round trips a step of %s" % key, quantity(max(trips), "count"), "≤ %d" % results,
                max(trips) <= results + 0.05)
    for key, title in (("startup", "round trips of the start-up"), ("startup_first", "round trips of the first start-up")):
        row = rows.get(key + ".100ms") or rows.get(key + ".10ms")
        if row:
            add(title, quantity(row["round_trips"], "count"), "≤ %d" % row["results"],
                row["round_trips"] <= row["results"])
    return found


def tables(result):
    """The tables as (title, heads, lines): times, round trips, shares waited, targets; or those of a trace."""
    if result["kind"] == "steps_trace":
        return trace_tables(result)
    sides = list(result["rtt"])
    rows = {row["key"]: row for row in result["rows"]}
    programs = [program for program in PROGRAMS if any(row["program"] == program.key for row in result["rows"])]
    heads = ["round-trip time"] + [time_title(side) for side in sides]

    def line(program, cell):
        return [cell(rows["%s.%s" % (program.key, side)]) for side in sides]

    def time(row):
        ratio = row["ratio"]
        return quantity(row["measured"], row["unit"]) + (
            "" if ratio is None else " (%.0f ×)" % ratio if ratio >= 100 else " (%.3g ×)" % ratio)

    def first(program):
        return rows["%s.%s" % (program.key, sides[0])]

    link = ["as measured"] + [""] + [quantity(result["rtt"][side]["measured"], "ns") for side in sides]
    return [
        ("Time a step, and how many times the direct one that is:", heads[:1] + ["direct"] + heads[1:],
         [link] + [[program.title, quantity(first(program)["direct"], "ns") if first(program)["direct"] else ""]
                   + line(program, time) for program in programs]),
        ("Round trips a step, next to the results that the program waits for:", heads[:1] + ["results"] + heads[1:],
         [[program.title, "%d" % first(program)["results"]]
          + line(program, lambda row: quantity(row["round_trips"], "count")) for program in programs]),
        ("Share of their time that the program's threads waited for the server:", heads,
         [[program.title] + line(program, lambda row: "%.0f %%" % (100 * row["waited"])) for program in programs]),
        ("Targets:", ["", "measured", "target", "met"],
         [[target["title"], target["measured"], target["bound"], {True: "yes", False: "NO", None: "too noisy"}[target["met"]]]
          for target in result["targets"]])]


def kernel_text(result):
    """How long kernels last."""
    lengths = sorted({told["kernel_us"] for told in result["programs"].values() if told["kernel_us"]})
    return "; each kernel lasts at least %s µs, but those of the copies" % ", ".join("%g" % length for length in lengths)


def as_text(result):
    """A result for the terminal."""
    lines = [machine_text(result) + kernel_text(result)]
    for title, heads, rows in tables(result):
        lines += ["", title, text_table(heads, rows)]
    return "\n".join(lines + (["", "(a quick run: not what to judge by)"] if result["quick"] else []))


def as_markdown(result):
    """A result as the part of docs/performance.md that is generated."""
    lines = ["Measured with version %s (%s) on %s." % (result["version"], result["commit"],
                                                     machine_text(result) + kernel_text(result))]
    for title, heads, rows in tables(result):
        lines += ["", title, "", markdown_table(heads, rows)]
    return "\n".join(lines) + "\n"
