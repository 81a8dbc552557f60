"""Emits docs/api-coverage.md: how each exported function is served."""
from .text import write

MEANING = {
    "local": "answered by the client", "custom": "forwarded (hand-written)", "async": "forwarded, returns at once",
    "sync": "forwarded, waits for the answer", "wait": "forwarded, waits for the GPU", "refused": "refused",
    "unsupported": "not served yet",
}


def emit(specification, path):
    base, per_thread = specification.base_symbols(), specification.per_thread_symbols()
    operations = {operation.name: operation for operation in specification.operations}
    classes = {symbol.name: operations[symbol.base].cls for symbol in base + per_thread}

    def count(symbols, *wanted):
        return sum(classes[symbol.name] in wanted for symbol in symbols)

    every = base + per_thread
    waiting = count(every, "unsupported")
    served = len(every) - waiting - count(every, "refused")
    lines = ["# API coverage", "",
             f"Made by `proto/generate` from the specification. The driver of CUDA {specification.version // 1000}."
             f"{specification.version % 1000 // 10} has {len(every)} functions, {len(per_thread)} of them forms for the "
             "per-thread default stream, which are served as their base forms are.", "",
             "| | functions |", "|---|---|",
             f"| forwarded to the server's driver | {count(every, 'custom', 'async', 'sync', 'wait')} |",
             f"| answered by the client | {count(every, 'local')} |",
             f"| refused: CUDA_ERROR_NOT_SUPPORTED, for the reason that is given | {count(every, 'refused')} |",
             f"| not served yet: CUDA_ERROR_NOT_SUPPORTED | {waiting} |", "",
             f"**{served} of {len(every)} are served.** Whatever is not says so once in the log.", ""]
    for group in specification.groups:
        calls = [operation for operation in group.operations if operation.is_call]
        lines += [f"## {group.title}", "", "| function | class | how |", "|---|---|---|"]
        for operation in calls:
            how = MEANING[operation.cls] + (f": {operation.reason}" if operation.reason else "")
            lines.append(f"| `{operation.name}` | {operation.cls} | {how} |")
        lines.append("")
    write(path, "\n".join(lines))
