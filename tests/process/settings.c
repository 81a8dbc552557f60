/* settings.c - what users ask of a driver by its own variables. */
#include "scenario.h"

#include <stdlib.h>

/* One takes some time, the other fails when it runs. */
static const char image[] = ".version 7.0\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry take_time()\n"
                            "{\n"
                            "    .reg .u64 %rd<4>;\n"
                            "    .reg .pred %p;\n"
                            "    mov.u64 %rd1, %globaltimer;\n"
                            "again:\n"
                            "    mov.u64 %rd2, %globaltimer;\n"
                            "    sub.u64 %rd3, %rd2, %rd1;\n"
                            "    setp.lt.u64 %p, %rd3, 50000000;\n"
                            "    @%p bra again;\n"
                            "    ret;\n"
                            "}\n"
                            ".visible .entry fail()\n"
                            "{\n"
                            "    trap;\n"
                            "    ret;\n"
                            "}\n";

static CUresult launch(CUfunction kernel, CUstream stream)
{
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* What is launched is done when the call returns, and fails there; a launch that is captured waits for nothing. */
static int launches_block(void)
{
    CUmodule module;
    CUfunction take_time, fail;
    CUstream stream;
    CUgraph graph;
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    device_up();
    TRY(cuModuleLoadData(&module, image));
    TRY(cuModuleGetFunction(&take_time, module, "take_time"));
    TRY(cuModuleGetFunction(&fail, module, "fail"));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUstream streams[] = {NULL, stream, CU_STREAM_PER_THREAD};
    for (int i = 0; i < 3; i++) {
        TRY(launch(take_time, streams[i]));
        if (TRY(cuStreamQuery(streams[i])) != CUDA_SUCCESS)
            say("a launch that fails: to wait\n");
    }
    TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(launch(take_time, stream));
    TRY(cuStreamEndCapture(stream, &graph));
    if (TRY(launch(fail, stream)) == CUDA_SUCCESS)
        say("a launch that fails: to say that its kernel has\n");
    return 0;
}

const struct scenario scenarios[] = {
    {"launches_block", launches_block},
    {NULL, NULL},
};
