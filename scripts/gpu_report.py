"""What gpu-check tells of the machine, and its table."""

import os
import platform

from trial import Failure, run_program


def run_program_or_none(command, timeout=60):
    """A program that may not be here."""
    try:
        return run_program(command, timeout=timeout)
    except Failure:
        return None


def first_line(failure):
    """What has failed, without what was written meanwhile: a server's log would be there for each row."""
    return (str(failure).splitlines() or [""])[0]


def machine(driver):
    """What the figures were measured on."""
    facts = {"driver": driver, "kernel": " ".join(platform.uname()), "cores": os.cpu_count(), "user": os.geteuid(),
             "environment": {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PATH")
                             if name in os.environ}}
    for name, command in (("devices", "ls -ln /dev/nvidia* /dev/nvidia-caps"), ("memory", "head -3 /proc/meminfo; df -h /dev/shm"),
                          ("limits", "ulimit -a"), ("rights", "grep -E '^(Cap|Seccomp|NoNewPrivs)' /proc/self/status"),
                          ("libcuda", "ldconfig -p | grep -E 'libcuda|libnvidia-ml'; ls -l /usr/local/nvidia/lib64"),
                          ("network", "cat /proc/net/dev; cat /proc/sys/net/ipv6/conf/all/disable_ipv6")):
        said = run_program_or_none(["/bin/sh", "-c", command], 10)
        facts[name] = said.output.splitlines() if said else []
    if driver != "soft":
        query = run_program_or_none(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                                     "--format=csv,noheader"])
        if query and query.status == 0:
            facts["gpus"] = query.output.strip().splitlines()
    return facts


def table(report):
    """The report for people."""
    lines = ["%-22s %9s %9s %7s %9s %12s  %s" % ("", "direct s", "remote s", "times", "calls", "round trips", "")]
    rows = dict(report["examples"])
    if "good" in report.get("training", {}):
        rows["training (PyTorch)"] = report["training"]
    for name, label in (("training", "training (PyTorch)"), ("nccl", "NCCL"), ("sandbox", "sandbox"), ("mig", "MIG"), ("mps", "MPS"),
                        ("bench", "benchmark")):
        if "skipped" in report.get(name, {}) and "good" not in report[name]:
            lines.append("%-22s %s" % (label, "left out: " + report[name]["skipped"]))
    for line in report.get("sandbox", {}).get("refused", []):
        lines.append("%-22s refuses %s" % ("sandbox", line))
    for how in report.get("servers_lost", []):
        lines.append("%-22s %s" % ("THE SERVER", how))
    for error in report.get("errors", []):
        lines.append("%-22s %s" % ("AN ERROR OF GPU-CHECK", error.splitlines()[-1]))
    if "late" in report:
        lines.append("%-22s %s" % ("THE TIME", "was over before the end"))
    for name, row in rows.items():
        if "remote" not in row:
            lines.append("%-22s %s" % (name, "NOT RUN: " + row["skipped"] if "skipped" in row else "FAILED: " + first_line(row["failed"])))
            continue
        remote = row["remote"]["preload"]
        stats = remote.get("stats", {})
        bad = ["%s: %s" % (label, run["end"]) for label, run in row["remote"].items() if not run["same"]]
        seconds = remote.get("s", 0.0)
        lines.append("%-22s %9.2f %9.2f %7.2f %9s %12s  %s" % (
            name, row["direct_s"], seconds, seconds / max(row["direct_s"], 0.001), stats.get("calls", "-"), stats.get("round_trips", "-"),
            "same" if row["good"] else "DIFFERENT (%s)" % (", ".join(bad) or "directly: " + row["direct"])))
    return "\n".join(lines)
