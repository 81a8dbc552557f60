/*
 * threads.cu - several threads, each with a stream and memory of its own, each waiting for its own results: what a server
 * of requests or a data loader does. A step, of each thread: 20 launches and one value. All start together.
 *
 *   threads [--threads N] [OPTION…]     (step.h)
 */
#include "step.h"

#include <atomic>
#include <thread>

enum { LAUNCHES = 20, VALUES = 256 };

struct worker {
    std::vector<uint64_t> ns;
    uint64_t digest;
};

static void work(const struct step_run &run, uint32_t number, std::atomic<int> &absent, struct worker *self)
{
    struct step_place device = step_device(run), host = step_host();
    uint32_t *values = device.memory<uint32_t>(VALUES), *result = step_pinned<uint32_t>(1);
    uint32_t *expected = host.memory<uint32_t>(VALUES);
    CHECK(cudaDeviceSynchronize());
    for (int step = 0; step < run.warm + run.steps; step++) {
        if (step == run.warm) {
            absent--;
            while (absent)
                std::this_thread::yield();
        }
        const uint32_t summand = number * 1000003u + (uint32_t)step;
        const uint64_t begin = step_now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            device.run(step_turn{values, 1664525u, summand}, VALUES);
        CHECK(cudaMemcpyAsync(result, values + VALUES - 1, sizeof *result, cudaMemcpyDeviceToHost,
                              device.stream));
        CHECK(cudaStreamSynchronize(device.stream));
        if (step >= run.warm)
            self->ns.push_back(step_now_ns() - begin);
        for (int i = 0; i < LAUNCHES; i++)
            host.run(step_turn{expected, 1664525u, summand}, VALUES);
        if (*result != expected[VALUES - 1])
            step_fail("threads: step %d of thread %u gave %u, not %u", step, number, *result,
                      expected[VALUES - 1]);
        step_digest(&self->digest, *result);
    }
}

int main(int argc, char **argv)
{
    double n = 8;
    const struct step_run run = step_begin("threads", argc, argv, {{"--threads", &n, 1, 256}});
    std::vector<struct worker> workers((size_t)n, {{}, STEP_DIGEST_START});
    std::vector<std::thread> threads;
    std::atomic<int> absent((int)n);
    for (uint32_t i = 0; i < workers.size(); i++)
        threads.emplace_back([&run, &absent, &workers, i] { work(run, i, absent, &workers[i]); });
    std::vector<uint64_t> ns;
    uint64_t digest = STEP_DIGEST_START;
    for (size_t i = 0; i < threads.size(); i++) {
        threads[i].join();
        ns.insert(ns.end(), workers[i].ns.begin(), workers[i].ns.end());
        step_digest(&digest, workers[i].digest);
    }
    step_report(run, 1, LAUNCHES, (int)n, ns, digest);
}
