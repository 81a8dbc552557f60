"""How a result of bench/scale is judged and shown; README.md documents its JSON.

A row is a number of processes or threads at one kind of work: what all of them got together, and the shares of each.
"""

from report import machine_text, markdown_table, noise, quantity, text_table

WAYS = ("processes", "threads")
KINDS = {"launches": ("launches", "1/s"), "calls": ("launches, each waited for", "1/s"),
         "copies": ("copies of 1 MiB to the device", "B/s")}
LEAST_SHARE = 0.5


def judge(result):
    """Adds `rows`."""
    rows = []
    for way in WAYS:
        for kind, (title, unit) in KINDS.items():
            for size in result["sizes"]:
                key = "%s.%d.%s" % (way, size, kind)
                remote, direct = (result["measurements"].get("%s.%s" % (key, side)) for side in ("remote", "direct"))
                if not remote:
                    continue
                rows.append({"key": key, "title": "%d %s: %s" % (size, way if size > 1 else one(way), title), "unit": unit,
                             "measured": remote["p50"], "p99": remote["p99"], "noise": noise(remote, direct),
                             "direct": direct["p50"] if direct else None,
                             "ratio": remote["p50"] / direct["p50"] if direct and direct["p50"] else None,
                             "shares": remote["shares"], "least_share": remote["shares"][0],
                             "direct_shares": direct["shares"] if direct else None,
                             "met": remote["shares"][0] >= LEAST_SHARE if size > 1 else None})
    result["rows"] = rows
    return result


def one(way):
    """The singular."""
    return {"processes": "process", "threads": "thread"}[way]


def shares_text(shares):
    """Least, middle, largest."""
    return "" if not shares else " / ".join("%.2f" % share for share in shares)


def tables(result):
    """The tables as (title, heads, lines)."""
    lines = []
    for row in result["rows"]:
        single = row["key"].split(".")[1] == "1"
        lines.append([row["title"], quantity(row["measured"], row["unit"]),
                      quantity(row["direct"], row["unit"]) if row["direct"] else "",
                      "%.2f" % row["ratio"] if row["ratio"] else "", "" if single else shares_text(row["shares"]),
                      "" if single else shares_text(row["direct_shares"]), {True: "yes", False: "NO", None: ""}[row["met"]]])
    memory = []
    for key, found in result["memory"].items():
        way, size = key.split(".")
        memory.append(["%s %s" % (size, way if size != "1" else one(way))]
                      + [quantity(found[name], "B") if name in found else "" for name in ("clients", "workers", "direct")])
    return [("What all of them got together, and the least, middle and largest share of one (1 is an equal part; no share below "
             "%g is wanted):" % LEAST_SHARE,
             ["", "together", "directly", "of direct", "shares", "shares, directly", "met"], lines),
            ("Memory of one session that is set up and idle (proportional set size: of what n processes share, each has 1 / n), and of "
             "the program directly on the driver:", ["", "the client's process", "the worker", "directly"], memory)]


def as_text(result):
    """A result for the terminal."""
    lines = [machine_text(result)]
    for title, heads, rows in tables(result):
        lines += ["", title, text_table(heads, rows)]
    return "\n".join(lines + (["", "(a quick run: not what to judge by)"] if result["quick"] else []))


def as_markdown(result):
    """A result as the part of docs/performance.md that is generated."""
    lines = ["Measured with version %s (%s) on %s." % (result["version"], result["commit"], machine_text(result))]
    for title, heads, rows in tables(result):
        lines += ["", title, "", markdown_table(heads, rows)]
    return "\n".join(lines) + "\n"
