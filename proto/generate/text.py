"""Small helpers of the emitters."""
import os

HEAD = "/* Generated from proto/api by proto/generate: change the specification, not this file. */\n"


def write(path, text):
    """Writes a generated file, leaving it untouched if it is the same (so that nothing is rebuilt)."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path) as old:
            if old.read() == text:
                os.utime(path)
                return
    except FileNotFoundError:
        pass
    with open(path, "w") as out:
        out.write(text)


def wrap(items, indent, width=108):
    """Comma-separated items over several lines."""
    lines, line = [], ""
    for item in items:
        if line and len(indent) + len(line) + len(item) + 2 > width:
            lines.append(line.rstrip())
            line = ""
        line += item + ", "
    lines.append(line.rstrip())
    return ("\n" + indent).join(lines).rstrip(",")
