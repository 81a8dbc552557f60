/*
 * forward.c - a CUDA program that measures what calls of the driver API cost it. It knows nothing of
 * remote-gpu: run on a driver it measures the driver, run under `remote-gpu run` it measures forwarding.
 *
 *   forward [--quick] [--bytes N] [MEASUREMENT…]
 *                                      the measurements named, or all of --list; one line each (measure.h). N: of the
 *                                      large copies
 *   forward --list                     their names
 *   forward --device                   the device's name and the driver's version
 *   forward --steps N                  N steps of a loop as training programs have it: launches, copies and events, and one
 *                                      result a step that the program waits for
 *   forward --idle                     makes a context, says "ready" and waits until stdin ends
 *
 * Any CUDA error, and any byte of a copy that is not what was sent, ends it with status 1.
 */
#include "cuda_program.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t bulk = (size_t)256 << 20;

enum { SMALL = 4096, BURST = 1000, LONG_BURST = 10000, ELEMENTS = 1024 };

static const char kernels[] =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry nothing()\n"
    "{\n"
    "    ret;\n"
    "}\n"
    ".visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,\n"
    "                      .param .u32 e, .param .u32 f, .param .f32 g, .param .f32 h)\n"
    "{\n"
    "    ret;\n"
    "}\n"
    ".visible .entry add_one(.param .u64 values, .param .u32 n)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %r<6>;\n"
    "    .reg .b64 %rd<3>;\n"
    "    ld.param.u64 %rd0, [values];\n"
    "    ld.param.u32 %r0, [n];\n"
    "    mov.u32 %r1, %ctaid.x;\n"
    "    mov.u32 %r2, %ntid.x;\n"
    "    mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "    setp.ge.u32 %p, %r4, %r0;\n"
    "    @%p bra done;\n"
    "    cvta.to.global.u64 %rd0, %rd0;\n"
    "    mul.wide.u32 %rd1, %r4, 4;\n"
    "    add.u64 %rd2, %rd0, %rd1;\n"
    "    ld.global.u32 %r5, [%rd2];\n"
    "    add.u32 %r5, %r5, 1;\n"
    "    st.global.u32 [%rd2], %r5;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

static struct samples samples, cpu_samples;
static bool quick;
static double clock_cost;

static CUfunction nothing, eight, add_one;
static CUstream stream;
static CUevent event;
static CUdeviceptr device_small;

static void load(void)
{
    CUmodule module;
    CHECK(cuModuleLoadData(&module, kernels));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuModuleGetFunction(&eight, module, "eight"));
    CHECK(cuModuleGetFunction(&add_one, module, "add_one"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&device_small, SMALL));
}

static void launch(CUfunction function, void **parameters)
{
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

/* --- launches --- */

static void launch_bursts(CUfunction function, void **parameters, const char *name, const char *cpu_name)
{
    for (int i = quick ? -3 : -10, n = quick ? 50 : 200; i < n; i++) {
        const uint64_t cpu = thread_cpu_ns(), begin = now_ns();
        for (int k = 0; k < BURST; k++)
            launch(function, parameters);
        const uint64_t end = now_ns(), cpu_end = thread_cpu_ns();
        CHECK(cuStreamSynchronize(stream));
        if (i < 0)
            continue;
        samples_add(&samples, (double)(end - begin) / BURST);
        samples_add(&cpu_samples, (double)(cpu_end - cpu) / BURST);
    }
    samples_print(&samples, name, "ns");
    samples_print(&cpu_samples, cpu_name, "ns");
}

static void measure_launch(void)
{
    launch_bursts(nothing, NULL, "launch", "launch_cpu");
}

static void measure_launch_eight(void)
{
    CUdeviceptr pointer = device_small;
    unsigned number = 5;
    float real = 1.5f;
    void *parameters[] = {&pointer, &pointer, &pointer, &pointer, &number, &number, &real, &real};
    launch_bursts(eight, parameters, "launch_eight", "launch_eight_cpu");
}

/* Each launch by itself: its median leaves out what a burst's total has in wake-ups and preemption. */
static void measure_launch_each(void)
{
    for (int i = 0, n = quick ? 5 : 20; i < n; i++) {
        for (int k = 0; k < BURST; k++) {
            const uint64_t begin = now_ns();
            launch(nothing, NULL);
            const double cost = (double)(now_ns() - begin) - clock_cost;
            samples_add(&samples, cost > 0 ? cost : 0);
        }
        CHECK(cuStreamSynchronize(stream));
    }
    samples_print(&samples, "launch_each", "ns");
}

static void measure_launch_rate(void)
{
    for (int i = -1, n = quick ? 3 : 10; i < n; i++) {
        const uint64_t begin = now_ns();
        for (int k = 0; k < LONG_BURST; k++)
            launch(nothing, NULL);
        CHECK(cuStreamSynchronize(stream));
        if (i >= 0)
            samples_add(&samples, LONG_BURST * 1e9 / (double)(now_ns() - begin));
    }
    samples_print(&samples, "launch_rate", "1/s");
}

/* Launches behind which the program computes without another call: when the last of them has left this machine. */
static void launch_and_compute(int n, const char *name)
{
    const struct arrival *arrival = shared_arrival();
    for (int i = -10; arrival && i < (quick ? 100 : 400); i++) {
        CHECK(cuStreamSynchronize(stream));
        compute_for(IDLE_NS);
        const uint64_t count = atomic_load(&arrival->count), begin = now_ns();
        for (int k = 1; k < n; k++)
            launch(nothing, NULL);
        const uint64_t last = n > 1 ? now_ns() : begin;
        launch(nothing, NULL);
        uint64_t came = arrival_await(arrival, count);
        compute_for(IDLE_NS);
        if (n > 1)
            came = atomic_load(&arrival->time_ns);
        if (i >= 0)
            samples_add(&samples, came > last ? (double)(came - last) : 0);
    }
    if (arrival)
        samples_print(&samples, name, "ns");
}

static void measure_launch_arrival(void)
{
    launch_and_compute(1, "launch_arrival");
    launch_and_compute(20, "launch_arrival_20");
}

/* --- calls that wait --- */

static void call_context_synchronize(void)
{
    CHECK(cuCtxSynchronize());
}

static void call_stream_synchronize(void)
{
    CHECK(cuStreamSynchronize(stream));
}

static void call_memory_info(void)
{
    size_t free_bytes, total;
    CHECK(cuMemGetInfo(&free_bytes, &total));
}

static void call_launch_synchronize(void)
{
    launch(nothing, NULL);
    CHECK(cuStreamSynchronize(stream));
}

static void call_record_query(void)
{
    CHECK(cuEventRecord(event, stream));
    CUresult result;
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        ;
    CHECK(result);
}

static unsigned char small_source[SMALL], small_target[SMALL];

static void call_copy_in(void)
{
    CHECK(cuMemcpyHtoD(device_small, small_source, SMALL));
}

static void call_copy_in_synchronize(void)
{
    CHECK(cuMemcpyHtoD(device_small, small_source, SMALL));
    CHECK(cuCtxSynchronize());
}

static void call_copy_out(void)
{
    CHECK(cuMemcpyDtoH(small_target, device_small, SMALL));
}

static void call_allocate(void)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 1 << 20));
    CHECK(cuMemFree(memory));
}

static void repeat(void (*call)(void), const char *name)
{
    const int n = quick ? 500 : 2000;
    for (int i = -n / 10; i < n; i++) {
        const uint64_t begin = now_ns();
        call();
        if (i >= 0)
            samples_add(&samples, (double)(now_ns() - begin));
    }
    samples_print(&samples, name, "ns");
}

static void measure_record(void)
{
    for (int i = -3, n = quick ? 20 : 100; i < n; i++) {
        const uint64_t begin = now_ns();
        for (int k = 0; k < BURST; k++)
            CHECK(cuEventRecord(event, stream));
        const uint64_t end = now_ns();
        CHECK(cuStreamSynchronize(stream));
        if (i >= 0)
            samples_add(&samples, (double)(end - begin) / BURST);
    }
    samples_print(&samples, "record", "ns");
}

/* --- copies --- */

static void measure_small_copies(void)
{
    fill_random(small_source, SMALL, 4);
    repeat(call_copy_in, "copy_in_4k");
    CHECK(cuCtxSynchronize());
    repeat(call_copy_in_synchronize, "copy_in_4k_synchronize");
    repeat(call_copy_out, "copy_out_4k");
    if (memcmp(small_source, small_target, SMALL) != 0)
        fail("a copy of %d bytes to the device and back changed them", SMALL);
}

static void copy_both_ways(CUdeviceptr device, unsigned char *source, unsigned char *target,
                           const char *in_name, const char *out_name)
{
    struct samples *out = &cpu_samples;
    for (int i = -1, n = quick ? 2 : 5; i < n; i++) {
        for (size_t at = 0; at < bulk; at += SMALL) /* so that an old copy cannot pass for this one */
            source[at] = (unsigned char)(source[at] + 1);
        const uint64_t begin = now_ns();
        CHECK(cuMemcpyHtoD(device, source, bulk));
        CHECK(cuCtxSynchronize());
        const uint64_t middle = now_ns();
        CHECK(cuMemcpyDtoH(target, device, bulk));
        const uint64_t end = now_ns();
        if (memcmp(source, target, bulk) != 0)
            fail("a copy of %zu bytes to the device and back changed them", bulk);
        if (i < 0)
            continue;
        samples_add(&samples, (double)bulk * 1e9 / (double)(middle - begin));
        samples_add(out, (double)bulk * 1e9 / (double)(end - middle));
    }
    samples_print(&samples, in_name, "B/s");
    samples_print(out, out_name, "B/s");
}

static void measure_bulk_pinned(void)
{
    CUdeviceptr device;
    void *source, *target;
    CHECK(cuMemAlloc(&device, bulk));
    CHECK(cuMemHostAlloc(&source, bulk, 0));
    CHECK(cuMemHostAlloc(&target, bulk, 0));
    fill_random(source, bulk, 5);
    memset(target, 0, bulk);
    copy_both_ways(device, source, target, "copy_in_pinned", "copy_out_pinned");
    CHECK(cuMemFreeHost(source));
    CHECK(cuMemFreeHost(target));
    CHECK(cuMemFree(device));
}

static void measure_bulk(void)
{
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, bulk));
    unsigned char *source = memory_of_pages(bulk), *target = memory_of_pages(bulk);
    fill_random(source, bulk, 5);
    copy_both_ways(device, source, target, "copy_in_pageable", "copy_out_pageable");
    CHECK(cuMemFree(device));
    munmap(source, bulk);
    munmap(target, bulk);
    measure_bulk_pinned();
}

/* --- one thread's calls beside another thread's copies --- */

struct copier {
    CUcontext context;
    CUdeviceptr device;
    unsigned char *host;
    bool out;
    atomic_bool stop;
};

static void *copy_on(void *argument)
{
    struct copier *copier = argument;
    CHECK(cuCtxSetCurrent(copier->context));
    while (!atomic_load(&copier->stop)) {
        if (copier->out)
            CHECK(cuMemcpyDtoH(copier->host, copier->device, bulk));
        else
            CHECK(cuMemcpyHtoD(copier->device, copier->host, bulk));
    }
    return NULL;
}

static void measure_beside(void)
{
    struct copier copier = {.host = memory_of_pages(bulk)};
    CHECK(cuCtxGetCurrent(&copier.context));
    CHECK(cuMemAlloc(&copier.device, bulk));
    for (int out = 0; out < 2; out++) {
        pthread_t thread;
        copier.out = out;
        atomic_store(&copier.stop, false);
        if (pthread_create(&thread, NULL, copy_on, &copier) != 0)
            fail("cannot start a thread");
        compute_for(20000000);
        repeat(call_launch_synchronize, out ? "beside_copy_out" : "beside_copy_in");
        atomic_store(&copier.stop, true);
        pthread_join(thread, NULL);
    }
    CHECK(cuMemFree(copier.device));
}

/* --- a loop of steps --- */

static void run_steps(int n)
{
    CUdeviceptr values;
    unsigned *input, *result, count = ELEMENTS;
    CUevent finished[2];
    load();
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

/* --- the program --- */

static const struct measurement {
    const char *name;
    void (*run)(void);
    void (*call)(void); /* instead of it: what is repeated */
} measurements[] = {
    {"launch", .run = measure_launch},
    {"launch_eight", .run = measure_launch_eight},
    {"launch_each", .run = measure_launch_each},
    {"launch_rate", .run = measure_launch_rate},
    {"launch_arrival", .run = measure_launch_arrival},
    {"context_synchronize", .call = call_context_synchronize},
    {"stream_synchronize", .call = call_stream_synchronize},
    {"memory_info", .call = call_memory_info},
    {"launch_synchronize", .call = call_launch_synchronize},
    {"record", .run = measure_record},
    {"record_query", .call = call_record_query},
    {"allocate_free", .call = call_allocate},
    {"small_copies", .run = measure_small_copies},
    {"bulk", .run = measure_bulk},
    {"beside", .run = measure_beside},
    {"bulk_pinned", .run = measure_bulk_pinned}, /* a part of bulk; by name alone */
};

enum { N_MEASUREMENTS = sizeof measurements / sizeof measurements[0], N_LISTED = N_MEASUREMENTS - 1 };

static void measure(const struct measurement *measurement)
{
    if (measurement->call)
        repeat(measurement->call, measurement->name);
    else
        measurement->run();
}

static const struct measurement *find(const char *name)
{
    for (int i = 0; i < N_MEASUREMENTS; i++)
        if (strcmp(measurements[i].name, name) == 0)
            return &measurements[i];
    fail("there is no measurement '%s' (--list names them)", name);
}

static void print_device(CUdevice device)
{
    char name[256];
    int version;
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDriverGetVersion(&version));
    printf("%s, driver %d.%d\n", name, version / 1000, version % 1000 / 10);
}

static void *idle_thread(void *unused)
{
    pause();
    return unused;
}

static void run_measurements(int n, char **names)
{
    /* A second thread, as every real program has one: the C library then takes its locks in earnest. */
    pthread_t idle;
    if (pthread_create(&idle, NULL, idle_thread, NULL) != 0)
        fail("cannot start a thread");
    clock_cost = clock_cost_ns();
    const uint64_t begin = now_ns();
    use_first_device();
    samples_add(&samples, (double)(now_ns() - begin));
    samples_print(&samples, "start", "ns");
    load();
    for (int i = 0; i < n; i++)
        measure(find(names[i]));
    for (int i = 0; n == 0 && i < N_LISTED; i++)
        measure(&measurements[i]);
    CHECK(cuCtxSynchronize());
}

/* Takes the option --bytes N out of the arguments; their number without it. */
static int take_bytes(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--bytes") == 0) {
            char *end;
            bulk = strtoull(argv[i + 1], &end, 10) / SMALL * SMALL;
            if (*end || bulk == 0)
                fail("--bytes takes a number, %d at least", SMALL);
            memmove(&argv[i], &argv[i + 2], (size_t)(argc - i - 1) * sizeof *argv);
            return argc - 2;
        }
    return argc;
}

int main(int argc, char **argv)
{
    argc = take_bytes(argc, argv);
    const char *option = argc > 1 && argv[1][0] == '-' ? argv[1] : "";
    if (strcmp(option, "--list") == 0) {
        for (int i = 0; i < N_LISTED; i++)
            printf("%s\n", measurements[i].name);
    } else if (strcmp(option, "--device") == 0) {
        print_device(use_first_device());
    } else if (strcmp(option, "--steps") == 0 && argc == 3) {
        use_first_device();
        run_steps(atoi(argv[2]));
    } else if (strcmp(option, "--idle") == 0) {
        use_first_device();
        wait_for_end_of_input();
    } else if (!*option || strcmp(option, "--quick") == 0) {
        quick = *option;
        run_measurements(argc - 1 - quick, argv + 1 + quick);
    } else {
        fprintf(stderr, "usage: forward [--quick] [--bytes N] [MEASUREMENT…]\n"
                        "       forward --list | --device | --steps N | --idle\n");
        return 2;
    }
    return 0;
}
