/*
 * kernels.c - times kernels on a device (the software device, when bench/device runs it), and the same algorithms in C
 * on the host's cores, one after the other, round by round; compares their results.
 *
 *   kernels [--quick] [--cpu] FILE.ptx [NAME ...]
 *
 * --cpu takes processor time of the whole process for time: for a machine that is busy with other things.
 *
 * Prints the samples of measure.h: NAME.device and NAME.host in ns a run, from the launch until the device is done.
 * `launch` is an empty launch as the caller sees it, `launch_and_wait` with the synchronise that follows.
 */
#include "kernels.h"
#include "cuda_program.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM_N = 1 << 24, FIELD = 4096, MATRIX_N = 512, SHUFFLE_BLOCKS = 256, BURST = 200 };

static int rounds = 15;
static bool by_cpu;
static CUmodule module;

static uint64_t now(void)
{
    struct timespec t;
    if (!by_cpu)
        return now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Of both sides: inputs a and b, output c. */
struct data {
    size_t size; /* bytes of each */
    void *host[3];
    CUdeviceptr device[3];
};

static void data_make(struct data *data, size_t size)
{
    data->size = size;
    for (int i = 0; i < 3; i++) {
        data->host[i] = memory_of_pages(size);
        CHECK(cuMemAlloc(&data->device[i], size));
    }
}

/* The same numbers between 0 and 1 on both sides; `kind` is f, d, i or b. */
static void data_fill(const struct data *data, char kind)
{
    for (int i = 0; i < 3; i++) {
        fill_random(data->host[i], data->size, (uint64_t)i + 1);
        if (kind == 'f')
            for (size_t n = 0; n < data->size / 4; n++)
                ((float *)data->host[i])[n] = (float)(((uint32_t *)data->host[i])[n] >> 8) / (1 << 24);
        if (kind == 'd')
            for (size_t n = 0; n < data->size / 8; n++)
                ((double *)data->host[i])[n] = (double)(((uint64_t *)data->host[i])[n] >> 12) / (1ll << 52);
        if (i == 2 && kind != 'f')
            memset(data->host[i], 0, data->size);
        CHECK(cuMemcpyHtoD(data->device[i], data->host[i], data->size));
    }
}

static void compare(const struct data *data, const char *name, char kind, size_t bytes)
{
    unsigned char *result = malloc(bytes);
    if (!result)
        fail("no memory");
    CHECK(cuMemcpyDtoH(result, data->device[2], bytes));
    for (size_t i = 0; i < bytes / 4; i++) {
        bool same = memcmp(result + 4 * i, (char *)data->host[2] + 4 * i, 4) == 0;
        float a = ((float *)(void *)result)[i], b = ((float *)data->host[2])[i];
        if (!same && (kind != 'f' || !(fabsf(a - b) <= 1e-4f * fabsf(b) + 1e-6f)))
            fail("%s: element %zu differs: %g on the device, %g on the host", name, i, (double)a, (double)b);
    }
    free(result);
}

static struct samples device_samples, host_samples;

struct shape {
    unsigned grid[2], block[2];
};

static void launch(CUfunction function, const struct shape *shape, void **params)
{
    CHECK(cuLaunchKernel(function, shape->grid[0], shape->grid[1], 1, shape->block[0], shape->block[1], 1, 0,
                         NULL, params, NULL));
}

static void measure(const char *name, struct data *data, char kind, size_t bytes, const struct shape *shape,
                    void **params, void (*host)(const struct data *), int wanted_count, char **wanted)
{
    CUfunction function;
    char line[64];
    bool chosen = wanted_count == 0;
    for (int i = 0; i < wanted_count; i++)
        chosen |= strcmp(wanted[i], name) == 0;
    if (!chosen)
        return;
    data_fill(data, kind);
    CHECK(cuModuleGetFunction(&function, module, name));
    launch(function, shape, params);
    CHECK(cuCtxSynchronize());
    host(data);
    compare(data, name, kind, bytes);
    for (int i = 0; i < rounds; i++) {
        uint64_t start = now();
        launch(function, shape, params);
        CHECK(cuCtxSynchronize());
        uint64_t middle = now();
        host(data);
        uint64_t end = now();
        samples_add(&device_samples, (double)(middle - start));
        samples_add(&host_samples, (double)(end - middle));
    }
    snprintf(line, sizeof(line), "%s.device", name);
    samples_print(&device_samples, line, "ns");
    snprintf(line, sizeof(line), "%s.host", name);
    samples_print(&host_samples, line, "ns");
}

static const float factor = 0.5f;
static const double factor_double = 0.5;

static void run_vector_add(const struct data *d)
{
    host_vector_add(d->host[0], d->host[1], d->host[2], STREAM_N);
}
static void run_saxpy(const struct data *d)
{
    host_saxpy(factor, d->host[0], d->host[2], STREAM_N);
}
static void run_triad(const struct data *d)
{
    host_triad(d->host[0], d->host[1], factor_double, d->host[2], STREAM_N / 2);
}
static void run_stencil(const struct data *d)
{
    host_stencil(d->host[0], d->host[2], FIELD, FIELD);
}
static void run_matrix_product(const struct data *d)
{
    host_matrix_product(d->host[0], d->host[1], d->host[2], MATRIX_N);
}
static void run_tree_reduction(const struct data *d)
{
    host_tree_reduction(d->host[0], d->host[2], STREAM_N);
}
static void run_shuffle_reduction(const struct data *d)
{
    host_shuffle_reduction(d->host[0], d->host[2], STREAM_N, SHUFFLE_BLOCKS);
}
static void run_scan(const struct data *d)
{
    host_scan(d->host[0], d->host[2], STREAM_N);
}
static void run_histogram(const struct data *d)
{
    host_histogram(d->host[0], d->host[2], STREAM_N * 4);
}

static void measure_kernels(int n_names, char **names)
{
    static struct data d;
    int n = STREAM_N, n_double = STREAM_N / 2, n_bytes = STREAM_N * 4, field = FIELD, matrix = MATRIX_N;
    float f = factor;
    double f_double = factor_double;
    CUdeviceptr *a, *b, *c;
    data_make(&d, (size_t)STREAM_N * 4);
    a = &d.device[0], b = &d.device[1], c = &d.device[2];
    struct shape line = {{STREAM_N / BLOCK, 1}, {BLOCK, 1}}, half = {{STREAM_N / BLOCK / 2, 1}, {BLOCK, 1}},
                 few = {{SHUFFLE_BLOCKS, 1}, {BLOCK, 1}}, plane = {{FIELD / 64, FIELD / 4}, {64, 4}},
                 tiles = {{MATRIX_N / TILE, MATRIX_N / TILE}, {TILE, TILE}};
    measure("vector_add", &d, 'f', d.size, &line, (void *[]){a, b, c, &n}, run_vector_add, n_names, names);
    measure("saxpy", &d, 'f', d.size, &line, (void *[]){&f, a, c, &n}, run_saxpy, n_names, names);
    measure("triad", &d, 'd', d.size, &few, (void *[]){a, b, &f_double, c, &n_double}, run_triad, n_names,
            names);
    measure("stencil", &d, 'f', d.size, &plane, (void *[]){a, c, &field, &field}, run_stencil, n_names,
            names);
    measure("matrix_product", &d, 'f', (size_t)MATRIX_N * MATRIX_N * 4, &tiles, (void *[]){a, b, c, &matrix},
            run_matrix_product, n_names, names);
    measure("tree_reduction", &d, 'f', (size_t)STREAM_N / BLOCK / 2 * 4, &half, (void *[]){a, c},
            run_tree_reduction, n_names, names);
    measure("shuffle_reduction", &d, 'f', SHUFFLE_BLOCKS * 4, &few, (void *[]){a, c, &n},
            run_shuffle_reduction, n_names, names);
    measure("scan", &d, 'i', d.size, &line, (void *[]){a, c}, run_scan, n_names, names);
    measure("histogram", &d, 'i', 1024, &few, (void *[]){a, c, &n_bytes}, run_histogram, n_names, names);
}

static void measure_launches(void)
{
    CUfunction function;
    struct shape one = {{1, 1}, {1, 1}};
    CHECK(cuModuleGetFunction(&function, module, "empty"));
    launch(function, &one, NULL);
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < rounds; i++) {
        uint64_t start = now_ns();
        for (int n = 0; n < BURST; n++)
            launch(function, &one, NULL);
        samples_add(&device_samples, (double)(now_ns() - start) / BURST);
        CHECK(cuCtxSynchronize());
    }
    samples_print(&device_samples, "launch", "ns");
    for (int i = 0; i < rounds * 20; i++) {
        uint64_t start = now_ns();
        launch(function, &one, NULL);
        CHECK(cuCtxSynchronize());
        samples_add(&device_samples, (double)(now_ns() - start));
    }
    samples_print(&device_samples, "launch_and_wait", "ns");
}

int main(int argc, char **argv)
{
    for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
        if (strcmp(argv[1], "--quick") == 0)
            rounds = 3;
        else if (strcmp(argv[1], "--cpu") == 0)
            by_cpu = true;
        else
            fail("kernels: no option %s", argv[1]);
    }
    if (argc < 2)
        fail("usage: kernels [--quick] [--cpu] FILE.ptx [NAME ...]");
    use_first_device();
    CHECK(cuModuleLoad(&module, argv[1]));
    measure_launches();
    measure_kernels(argc - 2, argv + 2);
    return 0;
}
