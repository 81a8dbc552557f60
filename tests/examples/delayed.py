"""Tests over a slow network: what waits, and that all arrives."""

from expected import expect
from trial import Server


def test_round_trips(build):
    """10,000 launches over 5 ms of delay wait for the answers that the program asks for, not for the launches."""
    with Server(build) as server:
        result = build.run_remote([build.example("many_launches")], server.address,
                                  environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(result.status == 0, "the example failed", result, server.log())
        expect(result.stats.get("calls", 0) >= 10000, "the calls were not counted: %s" % result.stats, result)
        more = result.stats["round_trips"]
        base = build.run_remote([build.example("many_launches"), "10"], server.address,
                                environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(base.status == 0, "the example failed", base)
        print("%d round trips with 10,000 launches, %d with 10" % (more, base.stats["round_trips"]))
        expect(more <= base.stats["round_trips"] + 2, "launches cost round trips", result)


def test_graph_round_trips(build):
    """500 launches of a graph over 5 ms of delay, one with a loop on the device and a copy to the host, wait for none."""
    with Server(build) as server:
        counts = []
        for launches in ("1", "500"):
            result = build.run_remote([build.example("graph_loop"), "1000", launches], server.address,
                                      environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
            expect(result.status == 0, "the example failed", result, server.log())
            counts.append(result.stats["round_trips"])
        print("%d round trips with one launch, %d with 500" % tuple(counts))
        expect(counts[1] == counts[0], "launches cost round trips", result)


def test_big_copy_delayed(build):
    """100 MB arrive intact over 5 ms of delay."""
    with Server(build) as server:
        result = build.run_remote([build.example("big_copy")], server.address,
                                  environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(result.status == 0, "the copy is not intact", result, server.log())
