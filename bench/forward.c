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
#include "bench/forward/forward.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

struct forward_options options = {.bulk = (size_t)256 << 20};
struct samples samples, second_samples;
CUfunction nothing, eight, add_one;
CUstream stream;
CUevent event;
CUdeviceptr device_small;

void forward_load(void)
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

void launch(CUfunction function, void **parameters)
{
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

void repeat(void (*call)(void), const char *name)
{
    const int n = options.quick ? 500 : 2000;
    for (int i = -n / 10; i < n; i++) {
        const uint64_t begin = now_ns();
        call();
        if (i >= 0)
            samples_add(&samples, (double)(now_ns() - begin));
    }
    samples_print(&samples, name, "ns");
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

void call_launch_synchronize(void)
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

static void call_allocate(void)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 1 << 20));
    CHECK(cuMemFree(memory));
}

static void measure_record(void)
{
    for (int i = -3, n = options.quick ? 20 : 100; i < n; i++) {
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
    const uint64_t begin = now_ns();
    use_first_device();
    samples_add(&samples, (double)(now_ns() - begin));
    samples_print(&samples, "start", "ns");
    forward_load();
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
            options.bulk = strtoull(argv[i + 1], &end, 10) / SMALL * SMALL;
            if (*end || options.bulk == 0)
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
        options.quick = *option;
        run_measurements(argc - 1 - options.quick, argv + 1 + options.quick);
    } else {
        fprintf(stderr, "usage: forward [--quick] [--bytes N] [MEASUREMENT…]\n"
                        "       forward --list | --device | --steps N | --idle\n");
        return 2;
    }
    return 0;
}
