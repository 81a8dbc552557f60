/* Streams, events and host functions: order, default streams, waiting, errors. */
#include "tests/softgpu/driver/support.h"

#include <stdlib.h>

static int order[16];
static _Atomic int n_order;

static void CUDA_CB note(void *user)
{
    order[n_order++] = (int)(intptr_t)user;
}

static void note_in(CUstream stream, int what)
{
    OK(cuLaunchHostFunc(stream, note, (void *)(intptr_t)what));
}

Test(stream, calls_return_before_the_work_is_done)
{
    CUstream a, b;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamQuery(a));
    volatile uint32_t *held = hold_stream(a);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    note_in(a, 1);
    note_in(b, 2);
    OK(cuStreamSynchronize(b)); /* the other stream goes on */
    cr_assert_eq(order[0], 2);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    release_stream(held);
    OK(cuStreamSynchronize(a));
    cr_assert_eq(order[1], 1);
    OK(cuStreamQuery(a));
}

Test(stream, the_legacy_stream_waits_for_blocking_ones_and_they_for_it)
{
    CUstream blocking, free_stream;
    start_device();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    volatile uint32_t *held = hold_stream(blocking);
    note_in(NULL, 2);     /* behind `held` */
    note_in(blocking, 3); /* behind the legacy stream's */
    note_in(free_stream, 1);
    OK(cuStreamSynchronize(free_stream));
    cr_assert_eq(n_order, 1);
    release_stream(held);
    OK(cuCtxSynchronize());
    cr_assert(order[0] == 1 && order[1] == 2 && order[2] == 3);
}

Test(stream, per_thread_default_stream)
{
    start_device();
    volatile uint32_t *held = hold_stream(CU_STREAM_PER_THREAD);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(NULL));
    note_in(CU_STREAM_LEGACY, 1);
    cr_assert_eq(n_order, 0);
    release_stream(held);
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    cr_assert_eq(n_order, 1);
    OK(cuStreamQuery(CU_STREAM_PER_THREAD));
}

Test(stream, destroyed_with_work_queued)
{
    CUstream stream;
    CUdeviceptr d;
    uint32_t out = 0, n = 1, x = 5;
    start_device();
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuMemsetD32_v2(d, 1, 1));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    volatile uint32_t *held = hold_stream(stream);
    launch_one("add", stream, (void *[]){&d, &n, &x});
    OK(cuStreamDestroy_v2(stream));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(stream));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemsetD32Async(d, 1, 1, stream));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy_v2(stream));
    release_stream(held);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&out, d, 4));
    cr_assert_eq(out, 6);
}

Test(stream, thousands_of_them)
{
    enum { N = 3000 };
    CUstream *streams = malloc(N * sizeof *streams);
    CUdeviceptr d;
    uint32_t out[N], n = 1;
    start_device();
    OK(cuMemAlloc_v2(&d, 4 * N));
    OK(cuMemsetD8_v2(d, 0, 4 * N));
    for (int i = 0; i < N; i++)
        OK(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuCtxSynchronize());
    volatile uint32_t *held = hold_stream(streams[0]);
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, streams[0]));
    for (uint32_t i = 1; i < N; i++) {
        CUdeviceptr p = d + 4 * i;
        OK(cuStreamWaitEvent(streams[i], event, 0));
        launch_one("add", streams[i], (void *[]){&p, &n, &i});
    }
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[N - 1]));
    release_stream(held);
    for (int i = 0; i < N; i++)
        OK(cuStreamDestroy_v2(streams[i]));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(out, d, 4 * N));
    for (uint32_t i = 1; i < N; i++)
        cr_assert_eq(out[i], i);
    free(streams);
}

Test(stream, questions)
{
    CUstream stream;
    CUcontext context = start_device(), of_stream;
    int priority;
    unsigned flags;
    unsigned long long a, b;
    CUstreamCaptureStatus capture;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 8));
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
    OK(cuStreamGetPriority(stream, &priority));
    cr_assert_eq(priority, -5);
    OK(cuStreamGetFlags(stream, &flags));
    cr_assert_eq(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetId(stream, &a));
    OK(cuStreamGetId(NULL, &b));
    cr_assert_neq(a, b);
    OK(cuStreamGetCtx(stream, &of_stream));
    cr_assert_eq(of_stream, context);
    OK(cuStreamIsCapturing(stream, &capture));
    cr_assert_eq(capture, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery((CUstream)0x5555));
}

Test(event, order_time_and_query)
{
    CUstream a, b;
    CUevent start, end, untimed, never;
    float ms = -1;
    uint32_t wait_ms = 30;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&never, 0));
    OK(cuEventQuery(never));
    OK(cuEventSynchronize(never));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&ms, start, end));
    get_function("slow");
    OK(cuEventRecord(start, a));
    launch_one("slow", a, (void *[]){&wait_ms});
    OK(cuEventRecord(end, a));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&ms, start, end));
    OK(cuStreamWaitEvent(b, end, 0));
    note_in(b, 1);
    cr_assert_eq(n_order, 0);
    OK(cuEventRecord(end, b)); /* the wait above keeps the mark it meant */
    OK(cuEventSynchronize(end));
    cr_assert_eq(n_order, 1);
    OK(cuEventElapsedTime_v2(&ms, start, end));
    cr_assert(ms >= 30 && ms < 5000, "%f", (double)ms);
    OK(cuEventRecord(untimed, a));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&ms, start, untimed));
    OK(cuEventDestroy_v2(end));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(end));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventRecord(end, a));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventDestroy_v2(end));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&never, 64));
}

Test(event, destroyed_while_pending)
{
    CUstream a, b;
    CUevent event;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    volatile uint32_t *held = hold_stream(a);
    note_in(a, 1);
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    note_in(b, 2);
    OK(cuEventDestroy_v2(event));
    release_stream(held);
    OK(cuStreamSynchronize(b));
    cr_assert(order[0] == 1 && order[1] == 2);
}

Test(event, of_a_whole_context)
{
    CUstream a, b;
    CUevent event;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    volatile uint32_t *held = hold_stream(a);
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxRecordEvent(NULL, event));
    OK(cuCtxRecordEvent(context, event));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    note_in(b, 1);
    OK(cuStreamSynchronize(b));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    release_stream(held);
    OK(cuCtxWaitEvent(context, event)); /* work to come waits: here the caller */
    OK(cuEventQuery(event));
}

static CUresult inside[4];

static void CUDA_CB calls_cuda(void *user)
{
    CUdeviceptr p;
    (void)user;
    inside[0] = cuMemAlloc_v2(&p, 16);
    inside[1] = cuStreamSynchronize(NULL);
    inside[2] = cuInit(0);
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *user)
{
    (void)stream;
    *(CUresult *)user = status;
}

Test(hostfunc, may_not_call_cuda)
{
    start_device();
    OK(cuLaunchHostFunc(NULL, calls_cuda, NULL));
    OK(cuCtxSynchronize());
    cr_assert_eq(inside[0], CUDA_ERROR_NOT_PERMITTED);
    cr_assert_eq(inside[1], CUDA_ERROR_NOT_PERMITTED);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(NULL, NULL, NULL));
}

Test(hostfunc, after_a_fault_only_callbacks_run)
{
    CUresult status = CUDA_SUCCESS;
    start_device();
    volatile uint32_t *held = hold_stream(NULL);
    launch_one("fault", NULL, NULL);
    note_in(NULL, 1);
    OK(cuStreamAddCallback(NULL, callback, &status, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(NULL, callback, &status, 1));
    release_stream(held);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    cr_assert_eq(status, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(n_order, 0);
}

Test(memory, free_waits_for_queued_work)
{
    CUstream stream;
    CUdeviceptr d;
    uint32_t n = 1, x = 1, wait_ms = 20;
    start_device();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&d, 4));
    launch_one("slow", stream, (void *[]){&wait_ms});
    launch_one("add", stream, (void *[]){&d, &n, &x});
    OK(cuMemFree_v2(d));
    OK(cuCtxSynchronize()); /* no fault */
}

Test(memop, waits_for_a_word_that_another_stream_writes)
{
    CUstream a, b;
    CUdeviceptr d;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&d, 16));
    OK(cuMemsetD8_v2(d, 0, 16));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32_v2(a, d, 5, CU_STREAM_WAIT_VALUE_GEQ));
    note_in(a, 1);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    OK(cuStreamWriteValue32_v2(b, d, 4, 0));
    OK(cuStreamSynchronize(b));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    CUstreamBatchMemOpParams batch[] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                        .address = d + 8,
                        .value64 = 1ull << 40}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = d, .value = 6}}};
    OK(cuStreamBatchMemOp_v2(b, 2, batch, 0));
    OK(cuStreamWaitValue64_v2(a, d + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamSynchronize(a));
    cr_assert_eq(n_order, 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(a, d + 2, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(a, d + 16, 0, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32_v2(a, d, 0, CU_STREAM_WAIT_VALUE_FLUSH));
}
