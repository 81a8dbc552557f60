"""What the benchmark's rows are, what each is held against, and how a result is shown.

A result is the JSON object that bench/run writes; README.md documents it. A row names what is measured, the limit on
the same machine in the same run that it is held against, and the budget: how far from that limit it may be. Rows
without a budget are there to be watched.
"""

import json
import math

SCHEMA = 1

# What a unit is shown as: the factors that fit, the largest first.
UNITS = {"ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
         "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1, "B/s")),
         "1/s": ((1e6, "million/s"), (1e3, "thousand/s"), (1, "/s")),
         "B": ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
         "count": ((1, ""),),
         "part": ((0.01, "%"),)}

# What else bench/compare shows of a command's rows: key, title, unit.
KIND_KEYS = {"steps": (("round_trips", "round trips", "count"), ("waited", "waited", "part")),
             "scale": (("least_share", "least share", "count"),)}

LIMITS = {"append_record": "lock, copy 96 bytes, unlock",
          "ping_pong_64": "64 B there, 64 B back",
          "ping_pong_4k_out": "4 KiB there, 64 B back",
          "ping_pong_4k_in": "64 B there, 4 KiB back",
          "one_way_64": "64 B there, after a pause",
          "one_way_4k": "4 KiB there, no answer",
          "stream_out": "256 MiB there",
          "stream_in": "256 MiB back",
          "plain_round_trip": "transport tcp: 64 B there, 64 B back",
          "openssl_round_trip": "OpenSSL on a socket: 64 B there, 64 B back",
          "plain_stream_out": "transport tcp: 64 MiB there",
          "plain_stream_in": "transport tcp: 64 MiB back",
          "openssl_stream_out": "OpenSSL on a socket: 64 MiB there",
          "openssl_stream_in": "OpenSSL on a socket: 64 MiB back"}


class Row:
    """One thing measured."""

    def __init__(self, key, title, limit=None, ratio=None, most=None):
        self.key = key      # of the measurement in the result
        self.title = title
        self.limit = limit  # the raw measurement that it is held against, or None
        self.ratio = ratio  # budget: times the limit; for rates at least, for times at most
        self.most = most    # budget: at most this much, in the measurement's unit

    def budget_text(self, unit):
        """The budget in words."""
        if self.ratio is not None:
            return ("≥ %g ×" if more_is_better(unit) else "≤ %g ×") % self.ratio
        if self.most is not None:
            return "≤ " + quantity(self.most, unit)
        return ""

    def met(self, value, limit, unit):
        """True, False, or None where nothing is promised."""
        if self.most is not None:
            return value <= self.most
        if self.ratio is None or limit is None:
            return None
        return value >= self.ratio * limit if more_is_better(unit) else value <= self.ratio * limit


ROWS = (
    Row("launch", "launch, 1000 in a burst, each", "append_record", most=300),
    Row("launch_cpu", "… of it processor time of the calling thread", "append_record"),
    Row("launch_each", "… timed one by one", "append_record"),
    Row("launch_eight", "launch with 8 parameters, 1000 in a burst, each", "append_record", most=300),
    Row("record", "event record, 1000 in a burst, each", "append_record"),
    Row("launch_rate", "10,000 launches and a synchronise"),
    Row("launch_arrival", "launch on an idle wire until the server has it; the program computes", "one_way_64", ratio=1.2),
    Row("launch_arrival_20", "the last of 20 launches until the server has it; the program computes", "one_way_64"),
    Row("context_synchronize", "cuCtxSynchronize, nothing queued", "ping_pong_64", ratio=1.3),
    Row("stream_synchronize", "cuStreamSynchronize, nothing queued", "ping_pong_64", ratio=1.3),
    Row("memory_info", "cuMemGetInfo", "ping_pong_64", ratio=1.3),
    Row("launch_synchronize", "launch and synchronise", "ping_pong_64"),
    Row("record_query", "event record, then query until it is done", "ping_pong_64"),
    Row("allocate_free", "cuMemAlloc of 1 MiB and cuMemFree", "ping_pong_64"),
    Row("copy_in_4k", "copy 4 KiB to the device", "one_way_4k"),
    Row("copy_in_4k_synchronize", "copy 4 KiB to the device and synchronise", "ping_pong_4k_out", ratio=1.3),
    Row("copy_out_4k", "copy 4 KiB from the device", "ping_pong_4k_in", ratio=1.3),
    Row("copy_in_pageable", "copy 256 MiB to the device, pageable", "stream_out", ratio=0.9),
    Row("copy_in_pinned", "copy 256 MiB to the device, pinned", "stream_out", ratio=0.9),
    Row("copy_out_pageable", "copy 256 MiB from the device, pageable", "stream_in", ratio=0.9),
    Row("copy_out_pinned", "copy 256 MiB from the device, pinned", "stream_in", ratio=0.9),
    Row("beside_copy_in", "launch and synchronise, beside a thread that copies 256 MiB to the device"),
    Row("beside_copy_out", "the same, beside one that copies from the device"),
    Row("tls_round_trip", "transport tls: 64 B there, 64 B back", "plain_round_trip", ratio=1.2),
    Row("tls_stream_out", "transport tls: 64 MiB there", "openssl_stream_out", ratio=0.9),
    Row("tls_stream_in", "transport tls: 64 MiB back", "openssl_stream_in", ratio=0.9),
    Row("tls_lanes_out", "two connections of transport tls at once: 64 MiB there", "openssl_stream_out"),
    Row("tls_lanes_in", "the same, back", "openssl_stream_in"),
    Row("round_trips_per_step", "round trips of a step with one result", most=1),
    Row("start", "from cuInit to a current context"),
    Row("client_memory", "memory of an idle session: the client's process", most=8 << 20),
    Row("worker_memory", "memory of an idle session: the worker, beyond the driver's", most=16 << 20),
)


def more_is_better(unit):
    """Whether a larger number of this unit is the better one."""
    return unit in ("B/s", "1/s")


def quantity(value, unit):
    """A number as people read it, three digits of it."""
    factors = UNITS[unit]
    factor, name = next(((f, n) for f, n in factors if abs(value) >= f), factors[-1])
    value /= factor
    digits = 0 if value == 0 or abs(value) >= 100 else 2 - int(math.floor(math.log10(abs(value))))
    text = "%.*f" % (max(0, min(digits, 2)), value)
    if unit == "count" and "." in text:
        text = text.rstrip("0").rstrip(".")
    return (text + " " + name).strip()


def summary(unit, rounds):
    """What is kept of a measurement's samples, a list of them for each round.

    `noise`: how far the rounds' medians are from their middle, as a part of it; with one round, half the range of the
    middle half of its samples, as a part of their median; None with one sample.
    """
    values = sorted(value for samples in rounds for value in samples)
    medians = sorted(sorted(samples)[len(samples) // 2] for samples in rounds if samples)

    def at(fraction):
        return values[min(len(values) - 1, int(fraction * len(values)))]

    worst = at(0.01) if more_is_better(unit) else at(0.99)
    scatter = None
    if len(medians) > 1 and medians[0] > 0:
        scatter = (medians[-1] - medians[0]) / (medians[-1] + medians[0])
    elif len(values) > 1 and at(0.5) > 0:
        scatter = (at(0.75) - at(0.25)) / 2 / at(0.5)
    return {"unit": unit, "n": len(values), "p50": at(0.5), "p99": worst, "best": values[-1 if more_is_better(unit) else 0],
            "noise": scatter}


def judge(result):
    """Adds to a result what each row comes to: `rows`, in the order of ROWS."""
    rows = []
    for row in ROWS:
        measured = result["remote"].get(row.key)
        if measured is None:
            continue
        limit = result["limits"].get(row.limit) if row.limit else None
        direct = result["direct"].get(row.key)
        unit = measured["unit"]
        value = measured["p50"]
        rows.append({"key": row.key, "title": row.title, "unit": unit, "measured": value, "p99": measured["p99"],
                     "limit": limit["p50"] if limit else None, "limit_name": row.limit if limit else None,
                     "ratio": value / limit["p50"] if limit else None,
                     "direct": direct["p50"] if direct else None, "noise": noise(measured, limit),
                     "budget": row.budget_text(unit), "met": row.met(value, limit["p50"] if limit else None, unit)})
    result["rows"] = rows
    return result


def noise(*measurements):
    """What the noise of measurements adds up to; None where it is not known of one."""
    parts = [measurement.get("noise") for measurement in measurements if measurement]
    return None if None in parts else sum(parts)


def cells(row):
    """A row's texts: what, measured, 1 in 100, limit, times, directly, budget, met."""
    def text(value):
        return "" if value is None else quantity(value, row["unit"])

    ratio = row["ratio"]
    return [row["title"], text(row["measured"]), text(row["p99"]) if row["p99"] != row["measured"] else "",
            text(row["limit"]), "" if ratio is None else "%.2f" % ratio, text(row["direct"]), row["budget"],
            {True: "yes", False: "NO", None: ""}[row["met"]]]


HEADS = ["", "median", "1 in 100", "limit", "times", "directly", "budget", "met"]


def text_table(heads, rows):
    """Columns of a terminal; the first is flush left."""
    widths = [max(len(line[i]) for line in [heads] + rows) for i in range(len(heads))]
    lines = []
    for line in [heads] + rows:
        rest = ["%*s" % (widths[i], line[i]) for i in range(1, len(line))]
        lines.append(("%-*s  " % (widths[0], line[0]) + "  ".join(rest)).rstrip())
    return "\n".join(lines)


def markdown_table(heads, rows):
    """The same as Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def machine_text(result):
    """What it was measured on, in words that name no particular machine."""
    machine = result["machine"]
    where = "client and server on one machine, over loopback" if result["loopback"] else "two machines"
    cpus = "%d core%s (%s)" % (machine["cores"], "" if machine["cores"] == 1 else "s", machine["cpu"])
    split = ("the client's process on %d of them, the server on the other %d" % tuple(result["split"])
             if result["split"] else "processes where the kernel puts them")
    busy = ("; the machine was busy with other work meanwhile (load %.1f)" % machine["load"]
            if machine["load"] > machine["cores"] / 2 else "")
    return "%s, Linux %s; %s; %s; device: %s%s" % (cpus, machine["kernel"], where, split, result["device"], busy)


def as_text(result):
    """A result for the terminal."""
    verdicts = [row["met"] for row in result["rows"] if row["met"] is not None]
    lines = [machine_text(result), "", text_table(HEADS, [cells(row) for row in result["rows"]]), "", "limits:"]
    for key, name in LIMITS.items():
        if key in result["limits"]:
            limit = result["limits"][key]
            lines.append("  %-28s %10s   (1 in 100: %s)" % (name, quantity(limit["p50"], limit["unit"]),
                                                         quantity(limit["p99"], limit["unit"])))
    lines += ["", "%d of %d budgets met%s" % (sum(verdicts), len(verdicts), "" if not result["quick"] else
                                            " (a quick run: not what to judge by)")]
    return "\n".join(lines)


def as_markdown(result):
    """A result as the part of docs/performance.md that is generated."""
    lines = ["Measured with version %s (%s) on %s." % (result["version"], result["commit"], machine_text(result)), "",
             markdown_table(HEADS, [cells(row) for row in result["rows"]]), "",
             "The limits, by the same run's plain socket and no other code of remote-gpu's:", "",
             markdown_table(["limit", "median", "1 in 100"],
                            [[name, quantity(result["limits"][key]["p50"], result["limits"][key]["unit"]),
                              quantity(result["limits"][key]["p99"], result["limits"][key]["unit"])]
                             for key, name in LIMITS.items() if key in result["limits"]])]
    return "\n".join(lines) + "\n"


def load(path, kind="run"):
    """A result of one of the commands (`kind`; None: of any with rows) from a file; ValueError if it is none."""
    with open(path) as file:
        result = json.load(file)
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        raise ValueError("%s is no benchmark result of schema %d" % (path, SCHEMA))
    result.setdefault("kind", "run")
    if kind and result["kind"] != kind:
        raise ValueError("%s is a result of bench/%s, not of bench/%s" % (path, result["kind"], kind))
    return result


def comparable(result):
    """A result's rows as bench/compare wants them: key, title, measured, unit, ratio, noise."""
    kind = result["kind"]
    if kind == "device":
        return [{"key": row["key"], "title": row["title"], "measured": row["device"], "unit": "ns", "noise": None,
                 "ratio": row["ratio"] and 1 / row["ratio"]} for row in result["rows"]]
    if kind == "bulk":
        return [{"key": "%s.%d.%s.%s" % (row["link"], row["bytes"], way, direction), "unit": "B/s", "noise": None,
                 "title": "%s, %d MiB, %s, %s" % (row["link"], row["bytes"] >> 20, way, direction),
                 "measured": row["bytes"] / times[i], "ratio": row["wire"][i] / times[i]}
                for row in result["rows"] for way, times in row["ways"].items()
                for i, direction in enumerate(("to the device", "to the host"))]
    if kind == "predict":
        return [{"key": "%s.%s.%s" % (program["name"], point["rtt"], point["bandwidth"]), "unit": "ns", "noise": None,
                 "title": "%s at %s, %s" % (program["name"], point["rtt"], point["bandwidth"]),
                 "measured": point["measured"] * 1e9, "ratio": None}
                for program in result["programs"] for point in program["points"]] + \
               [{"key": "%s.%s" % (program["name"], point["link"]), "unit": "ns", "noise": None,
                 "title": "%s, %s between the servers" % (program["name"], point["link"]), "measured": point["measured"] * 1e9,
                 "ratio": None} for program in result.get("servers", ()) for point in program["points"]]
    return result["rows"]
