"""Emits docs/api-coverage.md: how each exported function is served."""
import re

from .text import write

MEANING = {
    "local": "the client's own: answered there, or made of other calls",
    "async": "forwarded; returns at once",
    "sync": "forwarded; waits for the answer",
    "wait": "forwarded; waits for the answer, which may take as long as the GPU does",
    "custom": "forwarded by hand-written code, as one or more operations",
    "refused": "returns `CUDA_ERROR_NOT_SUPPORTED`, for the reason given",
    "unsupported": "returns `CUDA_ERROR_NOT_SUPPORTED`, and says so once",
}


def anchor(title):
    """Of a heading, as Markdown viewers make it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def is_served(operation):
    return operation.cls not in ("refused", "unsupported")


def context(operation):
    """What a call needs of the calling thread's current context."""
    if not is_served(operation):
        return ""
    said = operation.options.get("context")
    return "a current one" if said is None else "none" if said == "none" else f"that of `{said}`"


def emit(specification, path):
    base, per_thread = specification.base_symbols(), specification.per_thread_symbols()
    operations = {operation.name: operation for operation in specification.operations}
    every = [operations[symbol.base] for symbol in base + per_thread]
    served = sum(map(is_served, every))
    lines = ["# API coverage", "",
             f"Generated from [proto/api](../proto/api/README.md). The driver of CUDA {specification.version // 1000}."
             f"{specification.version % 1000 // 10} has {len(every)} functions; **{served} are served**. "
             f"{len(per_thread)} of them are variants for the per-thread default stream, which are served like the "
             "functions below and not listed. The first call of a function that is not served is logged.", "",
             "| class | meaning | functions |", "|---|---|---:|"]
    for cls, meaning in MEANING.items():
        lines.append(f"| {cls} | {meaning} | {sum(operation.cls == cls for operation in every)} |")
    groups = [(group.title, [operation for operation in group.operations if operation.is_call])
              for group in specification.groups if any(operation.is_call for operation in group.operations)]
    lines += ["", "| group | functions | served |", "|---|---:|---:|"]
    for title, calls in groups:
        lines.append(f"| [{title}](#{anchor(title)}) | {len(calls)} | {sum(map(is_served, calls))} |")
    for title, calls in groups:
        lines += ["", f"## {title}", "", "| function | class | context |", "|---|---|---|"]
        for operation in calls:
            why = f": {operation.reason}" if operation.reason else ""
            lines.append(f"| `{operation.name}` | {operation.cls}{why} | {context(operation)} |")
    write(path, "\n".join(lines) + "\n")
