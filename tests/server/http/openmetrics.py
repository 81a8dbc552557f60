"""A checker of metrics' text, written from the specification of OpenMetrics 1.0 (and Prometheus' format 0.0.4): says what is wrong with it.

What is checked: the end, order and kinds of lines, families that are whole and come once, samples' names by their family's type, labels'
form and escapes, numbers, units, samples that come twice, counters below zero.
"""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(r"(%s)(\{[^\n]*\})? (\S+)$" % NAME)
SUFFIX = {"counter": "_total", "info": "_info", "gauge": "", "unknown": "", "untyped": ""}


class Malformed(Exception):
    pass


def labels_of(text):
    """The labels between braces, as a sorted tuple of pairs."""
    found, at = [], 1
    while at < len(text) - 1:
        match = LABEL.match(text, at)
        if not match:
            raise Malformed("labels: %s" % text)
        found.append((match[1], match[2].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")))
        at = match.end()
        if text[at] == "," and at + 1 < len(text) - 1:
            at += 1
        elif at != len(text) - 1:
            raise Malformed("labels: %s" % text)
    if len({name for name, _ in found}) != len(found):
        raise Malformed("a label comes twice: %s" % text)
    return tuple(sorted(found))


def metadata(line, families, current, openmetrics):
    """A line that begins with #. Returns the family that it is about."""
    match = re.fullmatch(r"# (TYPE|HELP|UNIT) (%s) ?(.*)" % NAME, line)
    if not match:
        raise Malformed("neither a sample nor of a family: %s" % line)
    word, name, rest = match.groups()
    if name != current:
        if name in families:
            raise Malformed("the family %s is not whole, or comes twice" % name)
        if word != "TYPE":
            raise Malformed("%s begins without its type" % name)
        families[name] = {"samples": 0}
    if word in families[name] or families[name]["samples"]:
        raise Malformed("%s of %s is said twice, or after samples" % (word, name))
    families[name][word] = rest
    if word == "TYPE" and rest not in SUFFIX:
        raise Malformed("type %s" % rest)
    if word == "UNIT" and (not openmetrics or not name.endswith("_" + rest)):
        raise Malformed("unit %s of %s" % (rest, name))
    if word == "HELP" and re.search(r'\\(?![\\n"])', rest):
        raise Malformed("help of %s has an escape that there is not" % name)
    return name


def sample(line, families, current, openmetrics):
    match = SAMPLE.fullmatch(line)
    if not match or current is None:
        raise Malformed("neither a sample nor of a family: %s" % line)
    name, labels, number = match[1], labels_of(match[2]) if match[2] else (), float(match[3])
    kind = families[current].get("TYPE")
    if name != current + (SUFFIX[kind] if openmetrics else ""):
        raise Malformed("%s is no sample of %s, a %s" % (name, current, kind))
    if not openmetrics and kind == "counter" and not name.endswith("_total"):
        raise Malformed("the counter %s does not end with _total" % name)
    if math.isnan(number) or (kind == "counter" and number < 0) or (kind == "info" and number != 1):
        raise Malformed("%s is %s" % (name, number))
    families[current]["samples"] += 1
    return (name, labels), number


def parse(text, openmetrics):
    """{(name, labels): number}, or Malformed."""
    found, families, current = {}, {}, None
    if not text.endswith("\n"):
        raise Malformed("the last line has no end")
    lines = text[:-1].split("\n")
    if openmetrics and lines.pop() != "# EOF":
        raise Malformed("it does not end with # EOF")
    for line in lines:
        if line.startswith("#"):
            current = metadata(line, families, current, openmetrics)
            continue
        key, number = sample(line, families, current, openmetrics)
        if key in found:
            raise Malformed("twice: %s" % line)
        found[key] = number
    for name, family in families.items():
        if not family["samples"] or "HELP" not in family:
            raise Malformed("%s has no samples, or no help" % name)
    return found
