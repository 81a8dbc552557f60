/*
 * captures.c - a transcript of right and wrong use of stream capture: what becomes nodes, how streams join, what makes a
 * capture invalid, launches inside a capture.
 */
#include "graph_parts.h"

#include <pthread.h>
#include <stdint.h>

static void joins(void)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphNode *last;
    const CUgraphEdgeData *data;
    TRY(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)9));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemsetD32Async(p, 1, 4, s));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 2, 1, s));
    TRY(cuMemsetD32Async(p + 4, 3, 1, t));
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamWaitEvent(s, e2, 0));
    TRY(cuLaunchHostFunc(s, called, (void *)1));
    TRY(cuStreamIsCapturing(t, &status));
    printf("%d\n", (int)status);
    TRY(cuStreamGetCaptureInfo_v3(s, &status, &id, &g2, &last, &data, &n));
    printf("%d %d %zu\n", (int)status, id != 0, n);
    TRY(cuStreamGetCaptureInfo_v3(s, &status, &id, &g2, NULL, &data, &n));
    TRY(cuStreamGetCaptureInfo_v2(s, &status, NULL, NULL, NULL, NULL));
    TRY(cuStreamGetCaptureInfo_v2(s, NULL, NULL, NULL, NULL, NULL));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamIsCapturing(t, &status));
    printf("%d\n", (int)status);
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemsetD32Async(p, 1, 4, s));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p + 4, 3, 1, t));
    TRY(cuMemsetD32Async(p, 2, 1, s));
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamWaitEvent(s, e2, 0));
    TRY(cuMemsetD32Async(p + 8, 4, 1, s));
    TRY(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
    TRY(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
    run_captured(4);

    /* The application's own dependencies. */
    n = 16;
    TRY(cuGraphGetNodes(g, nodes, &n));
    TRY(cuStreamBeginCaptureToGraph(s, g, nodes, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuGraphDestroyNode(nodes[1]));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    TRY(cuMemsetD32Async(p + 12, 5, 1, s));
    TRY(cuStreamUpdateCaptureDependencies(s, nodes, 2, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    TRY(cuStreamUpdateCaptureDependencies(s, nodes, 2, 7));
    TRY(cuStreamUpdateCaptureDependencies(t, nodes, 2, 0));
    CUgraphEdgeData odd = {.from_port = 1, .type = 1};
    TRY(cuStreamUpdateCaptureDependencies_v2(s, nodes, &odd, 1, 0));
    TRY(cuMemsetD32Async(p + 16, 6, 1, s));
    TRY(cuStreamEndCapture(s, &g2));
    printf("%d\n", g == g2);
    shape(g);
    TRY(cuGraphDestroy(g));
}

static void *end_elsewhere(void *result)
{
    CUgraph none;
    *(CUresult *)result = cuCtxSetCurrent(c);
    if (*(CUresult *)result == CUDA_SUCCESS)
        *(CUresult *)result = cuStreamEndCapture(s, &none);
    return NULL;
}

static void *allocate_elsewhere(void *result)
{
    CUdeviceptr more;
    *(CUresult *)result = cuCtxSetCurrent(c);
    if (*(CUresult *)result == CUDA_SUCCESS)
        *(CUresult *)result = cuMemAlloc_v2(&more, 16);
    return NULL;
}

static void elsewhere(void *(*what)(void *))
{
    pthread_t thread;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (pthread_create(&thread, NULL, what, &result) == 0)
        pthread_join(thread, NULL);
    printf("elsewhere: %d\n", (int)result);
}

static void invalid_captures(void)
{
    CUdeviceptr more = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, odd = (CUstreamCaptureMode)5;
    void *host;
    for (int global = 0; global < 3; global++) {
        TRY(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)global));
        elsewhere(allocate_elsewhere);
        TRY(cuMemAllocHost_v2(&host, 16));
        TRY(cuMemAlloc_v2(&more, 16));
        elsewhere(end_elsewhere);
        TRY(cuStreamEndCapture(s, &g));
    }
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventSynchronize(e2));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuThreadExchangeStreamCaptureMode(NULL));
    TRY(cuThreadExchangeStreamCaptureMode(&odd));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    TRY(cuMemAlloc_v2(&more, 16));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    printf("%d\n", (int)mode);
    TRY(cuMemFree_v2(more));
    TRY(cuMemsetD32Async(p, 1, 1, s));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuMemFree_v2(more));

    TRY(cuStreamBeginCapture_v2(u, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD8_v2(p, 0, 4)); /* the legacy stream would wait for it */
    TRY(cuStreamEndCapture(u, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamSynchronize(s));
    TRY(cuStreamQuery(s));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 1, 1, t));
    TRY(cuStreamEndCapture(t, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 1, 1, t));
    TRY(cuStreamEndCapture(s, &g)); /* not joined */
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuStreamEndCapture(t, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuEventRecord(e, t));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamWaitEvent(s, e, 0));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuEventSynchronize(e));
}

/* Launches inside a capture, and a programmatic launch. */
static void captured_launches(void)
{
    unsigned number = 2;
    void *args[] = {&p, &number};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, s, &early, 1};
    CUdeviceptr none = 0;
    TRY(cuMemsetD8Async(p, 0, 16, s));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    number = 3;
    TRY(cuLaunchKernelEx(&config, scale, args, NULL));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuMemcpyDtoDAsync_v2(none, p, 0, s));
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 1);
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphUpload(x, s));
    TRY(cuStreamEndCapture(s, &g2));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphLaunch(x, s));
    TRY(cuStreamEndCapture(s, &g2));
    TRY(cuGraphExecDestroy(x));
    shape(g2);
    TRY(cuGraphInstantiateWithFlags(&x, g2, 0));
    run(x);
    show(p, 1);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
}

int main(void)
{
    return transcript((void (*const[])(void)){joins, invalid_captures, captured_launches, NULL});
}
