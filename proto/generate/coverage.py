"""Emits docs/api-coverage.md: how each exported function is served."""
from .text import write

MEANING = {
    "local": "answered by the client", "custom": "forwarded (hand-written)", "async": "forwarded, returns at once",
    "sync": "forwarded, waits for the answer", "wait": "forwarded, waits for the GPU", "unsupported": "not supported",
}


def emit(specification, path):
    operations = {operation.name: operation for operation in specification.operations}
    base = specification.base_symbols()
    served = [s for s in base if s.name in operations and operations[s.name].cls != "unsupported"]
    both = len(served) + sum(1 for s in specification.per_thread_symbols()
                             if s.base in operations and operations[s.base].cls != "unsupported")
    lines = ["# API coverage", "",
             f"Made by `proto/generate` from the specification; CUDA {specification.version // 1000}."
             f"{specification.version % 1000 // 10}'s libcuda exports {len(specification.symbols)} functions.", "",
             f"**{both} of {len(specification.symbols)} are served** ({len(served)} of {len(base)} without the per-thread "
             "default stream forms). All others return CUDA_ERROR_NOT_SUPPORTED and say so once in the log.", ""]
    for group in specification.groups:
        calls = [operation for operation in group.operations if operation.is_call]
        lines += [f"## {group.title}", "", "| function | class | how |", "|---|---|---|"]
        for operation in calls:
            lines.append(f"| `{operation.name}` | {operation.cls} | {MEANING[operation.cls]} |")
        lines.append("")
    rest = [s.name for s in base if s.name not in operations]
    lines += ["## Not supported", "", ", ".join(f"`{name}`" for name in rest), ""]
    write(path, "\n".join(lines))
