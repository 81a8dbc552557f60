"""What tests of whole programs expect of a run."""

from trial import expect, wait_until


def expect_lost(result, server_log=""):
    """The program failed by a CUDA error that it got, and remote-gpu said why."""
    expect(not result.hung, "the program hangs", result, server_log)
    expect(not result.crashed, "the program crashed", result, server_log)
    expect(result.status != 0, "the program succeeded without a server", result, server_log)
    expect("cudaError" in result.errors or "CUDA_ERROR" in result.errors, "the program got no CUDA error", result)
    lines = [line for line in result.errors.splitlines() if line.startswith("remote-gpu:")]
    expect(lines, "remote-gpu said nothing", result, server_log)
    expect(len(lines) <= 3, "remote-gpu said too much", result)


def still_serves(build, server):
    """After a fault: no worker is left behind, and the next program is served."""
    expect(wait_until(lambda: not server.workers(), 15), "a worker outlives its session", server.log())
    expect(server.process.poll() is None, "the server has ended", server.log())
    after = build.run_remote([build.example("vector_add")], server.address)
    expect(after.status == 0, "the server does not serve any more", after, server.log())
