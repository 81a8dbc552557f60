/* steps.c - a loop of steps as training programs have it. */
#include "bench/forward/forward.h"

#include <string.h>

enum { ELEMENTS = 1024 };

void run_steps(int n)
{
    CUdeviceptr values;
    unsigned *input, *result, count = ELEMENTS;
    CUevent finished[2];
    forward_load();
    CHECK(cuMemAlloc(&values, ELEMENTS * sizeof *input));
    CHECK(cuMemHostAlloc((void **)&input, ELEMENTS * sizeof *input, 0));
    CHECK(cuMemHostAlloc((void **)&result, sizeof *result, 0));
    memset(input, 0, ELEMENTS * sizeof *input);
    CHECK(cuEventCreate(&finished[0], CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&finished[1], CU_EVENT_DISABLE_TIMING));
    void *parameters[] = {&values, &count};
    for (int step = 0; step < n; step++) {
        input[ELEMENTS - 1] = (unsigned)step;
        CHECK(cuMemcpyHtoDAsync(values, input, ELEMENTS * sizeof *input, stream));
        for (int k = 0; k < 20; k++)
            CHECK(cuLaunchKernel(add_one, ELEMENTS / 128, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
        CHECK(cuEventRecord(finished[step % 2], stream));
        CHECK(cuStreamWaitEvent(stream, finished[step % 2], 0));
        CHECK(cuMemcpyDtoHAsync(result, values + (ELEMENTS - 1) * sizeof *input, sizeof *result, stream));
        CHECK(cuStreamSynchronize(stream));
        if (*result != (unsigned)step + 20)
            fail("step %d gave %u, not %u", step, *result, (unsigned)step + 20);
    }
}
