/*
 * queries.cu - a program that asks a lot: it queues work in parts, and looks whether each is done, over and over, while
 * it could do something else, as memory pools, watchdogs and schedulers of frameworks do.
 *
 * A step: four parts of five launches, each between two events; until the second has come, the program queries it and the
 * stream, asks for the current device and the last error; then it reads the time between the two. At the end it waits for
 * one value. What it waits for is that each of the four has come, the four times, and the value: nine results.
 *
 *   queries [OPTION…]     (step.h)
 */
#include "step.h"

enum { PARTS = 4, LAUNCHES = 5, VALUES = 256 };

/* Whether a query says that it is done; anything but yes and no ends the program. */
static bool is_done(cudaError_t answer)
{
    if (answer != cudaErrorNotReady)
        CHECK(answer);
    return answer == cudaSuccess;
}

int main(int argc, char **argv)
{
    const struct step_run run = step_begin("queries", argc, argv);
    struct step_place device = step_device(run), host = step_host();
    uint32_t *values = device.memory<uint32_t>(VALUES), *result = step_pinned<uint32_t>(1);
    uint32_t *expected = host.memory<uint32_t>(VALUES);
    cudaEvent_t before[PARTS], after[PARTS];
    for (int i = 0; i < PARTS; i++) {
        CHECK(cudaEventCreate(&before[i]));
        CHECK(cudaEventCreate(&after[i]));
    }
    CHECK(cudaDeviceSynchronize());

    std::vector<uint64_t> ns;
    uint64_t digest = STEP_DIGEST_START;
    int number;
    CHECK(cudaGetDevice(&number));
    for (int step = 0; step < run.warm + run.steps; step++) {
        const uint64_t begin = step_now_ns();
        for (int part = 0; part < PARTS; part++) {
            const struct step_turn turn = {values, 1664525u, (uint32_t)(step * PARTS + part)};
            CHECK(cudaEventRecord(before[part], device.stream));
            for (int i = 0; i < LAUNCHES; i++)
                device.run(turn, VALUES);
            CHECK(cudaEventRecord(after[part], device.stream));
            while (!is_done(cudaEventQuery(after[part]))) {
                int current = -1;
                (void)is_done(cudaStreamQuery(device.stream));
                CHECK(cudaGetDevice(&current));
                CHECK(cudaPeekAtLastError());
                if (current != number)
                    step_fail("queries: the current device is %d, not %d", current, number);
            }
            float milliseconds = -1;
            CHECK(cudaEventElapsedTime(&milliseconds, before[part], after[part]));
            /* Half, for clocks of little resolution. */
            if (milliseconds < 0.0005f * LAUNCHES * (float)run.kernel_us)
                step_fail("queries: %d kernels of %g us took %g ms", LAUNCHES, run.kernel_us, milliseconds);
        }
        CHECK(cudaMemcpyAsync(result, values + VALUES - 1, sizeof *result, cudaMemcpyDeviceToHost,
                              device.stream));
        CHECK(cudaStreamSynchronize(device.stream));
        if (step >= run.warm)
            ns.push_back(step_now_ns() - begin);
        for (int part = 0; part < PARTS; part++)
            for (int i = 0; i < LAUNCHES; i++)
                host.run(step_turn{expected, 1664525u, (uint32_t)(step * PARTS + part)}, VALUES);
        if (*result != expected[VALUES - 1])
            step_fail("queries: step %d gave %u, not %u", step, *result, expected[VALUES - 1]);
        step_digest(&digest, *result);
    }
    step_report(run, 2 * PARTS + 1, PARTS * LAUNCHES, 1, ns, digest);
}
