/*
 * profile_calls.c - a program that makes calls at a steady rate and works in between, for bench/profile; of the driver API.
 *
 *   profile_calls STEPS WORK    so many steps, each of WORK turns of a loop and two calls: one that the client answers by
 *                               itself, and one that is sent and not waited for
 *   profile_calls NS            says how many turns take so long
 *
 * The work is the same in each run, whatever the clock says, so that what else is done shows in the processor's time. Prints, of
 * all steps and the wait for them: processor time of the calling thread and of the process, and elapsed time.
 */
#include "cuda_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Bounds what the device has to do, and the client's buffers, as a program does that looks at its results. */
enum { STEPS_A_WAIT = 5000 };

static volatile uint64_t sink;

static void work(uint64_t turns)
{
    uint64_t state = sink | 1;
    for (uint64_t i = 0; i < turns; i++)
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    sink = state;
}

static uint64_t process_cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Turns of the loop that take `ns` when nothing comes between. */
static uint64_t turns_in(double ns)
{
    const uint64_t turns = 1000000;
    double best = 0;
    for (int i = 0; i < 20; i++) {
        const uint64_t began = now_ns();
        work(turns);
        const double took = (double)(now_ns() - began);
        best = best == 0 || took < best ? took : best;
    }
    return (uint64_t)(ns * (double)turns / best);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        printf("turns count %llu\n", (unsigned long long)turns_in(strtod(argv[1], NULL)));
        return 0;
    }
    if (argc != 3)
        return 64;
    const uint64_t steps = strtoull(argv[1], NULL, 10), turns = strtoull(argv[2], NULL, 10);
    CUcontext current;
    CUdeviceptr memory;
    use_first_device();
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuCtxSynchronize());
    const uint64_t thread = thread_cpu_ns(), process = process_cpu_ns(), began = now_ns();
    for (uint64_t i = 0; i < steps; i++) {
        work(turns);
        CHECK(cuCtxGetCurrent(&current));
        CHECK(cuMemsetD32Async(memory, (unsigned)i, 4, NULL));
        if (i % STEPS_A_WAIT == STEPS_A_WAIT - 1)
            CHECK(cuCtxSynchronize());
    }
    CHECK(cuCtxSynchronize());
    const uint64_t took = now_ns() - began;
    printf("thread ns %llu\nprocess ns %llu\nelapsed ns %llu\n",
           (unsigned long long)(thread_cpu_ns() - thread), (unsigned long long)(process_cpu_ns() - process),
           (unsigned long long)took);
    return 0;
}
