/*
 * step.h - what the step programs share: options, checks, kernels of a set length, the time of steps and the line of
 * JSON that tells it.
 *
 * A step program is an application in small: it makes the calls of the CUDA runtime that a program of its kind makes,
 * knows nothing of remote-gpu, and repeats a step that ends with the results it needs. Each result is compared with one
 * computed on the host. Its arithmetic is a set of operations (`struct` with `operator()(int i)` for element i) that run
 * as kernels or as loops on the host; compiled with -fmad=false they give the same bits on both.
 *
 * Options of all: --steps N, --warm N (steps before those, which are not timed), --kernel-us T (what a kernel lasts at
 * least; 0: as long as its work), --trace (kernels of a block note when they ran, where step_compare takes the steps).
 * Output: one line, {"program", "steps", "results": that the program waits for in a step, "launches" a step, "threads",
 * "kernel_us", "ns": [of each step], "digest": of all results, warm steps included} and, with --trace, "trace": a step's parts
 * (struct step_trace), each [of each step]. Exit status: 0; 1 after a wrong result
 * or a failed call; 2 after wrong usage.
 */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

/** Says what is wrong on stderr and ends the program. */
[[noreturn]] static inline void step_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline void step_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error != cudaSuccess)
        step_fail("%s:%d: %s: %s", file, line, call, cudaGetErrorName(error));
}

#define CHECK(call) step_check((call), #call, __FILE__, __LINE__)

/** A number from the command line; a least of 0 and a most of 1 make it a switch without a value. */
struct step_option {
    const char *name;
    double *value;
    double least, most;
};

/** What is asked of every program. */
struct step_run {
    const char *program;
    int steps, warm;
    double kernel_us;
    bool trace;
};

static inline struct step_run step_begin(const char *program, int argc, char **argv,
                                         std::vector<step_option> options = {}, double kernel_us = 10)
{
    double steps = 50, warm = 2, trace = 0;
    struct step_run run = {program, 0, 0, kernel_us, false};
    options.push_back({"--steps", &steps, 0, 1e6});
    options.push_back({"--warm", &warm, 0, 1e6});
    options.push_back({"--kernel-us", &run.kernel_us, 0, 1e6});
    options.push_back({"--trace", &trace, 0, 1});
    for (int i = 1; i < argc; i++) {
        const struct step_option *found = nullptr;
        for (const struct step_option &option : options)
            if (strcmp(option.name, argv[i]) == 0)
                found = &option;
        const bool is_switch = found && found->least == 0 && found->most == 1;
        char *end = nullptr;
        const double value = is_switch ? 1 : found && i + 1 < argc ? strtod(argv[++i], &end) : -1;
        if (!found || (!is_switch && (!end || *end)) || value < found->least || value > found->most) {
            fprintf(stderr, "usage: %s", program);
            for (const struct step_option &option : options)
                fprintf(stderr, " [%s%s]", option.name, option.least == 0 && option.most == 1 ? "" : " N");
            fprintf(stderr, "\n");
            exit(2);
        }
        *found->value = value;
    }
    run.steps = (int)steps;
    run.warm = (int)warm;
    run.trace = trace != 0;
    return run;
}

static inline uint64_t step_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/** The same by the clock that devices' %globaltimer follows. */
static inline uint64_t step_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/** Adds a result to a digest (FNV-1a over its bytes). */
template <class T> static inline void step_digest(uint64_t *digest, const T &result)
{
    unsigned char bytes[sizeof(T)];
    memcpy(bytes, &result, sizeof bytes);
    for (const unsigned char byte : bytes)
        *digest = (*digest ^ byte) * 0x100000001b3u;
}

enum : uint64_t { STEP_DIGEST_START = 0xcbf29ce484222325u };

/**
 * Where the time of a step went, in ns, by the program's clock and the device's, which have to agree: the device is this
 * machine's. The first four make up the step.
 */
struct step_trace {
    std::vector<uint64_t> first; /* from the first call until the first kernel begins */
    std::vector<uint64_t> kernels, between;
    std::vector<uint64_t> last;   /* from the end of the last kernel until the program has the result */
    std::vector<uint64_t> pauses; /* those between two kernels that are longer than STEP_PAUSE_NS */
    std::vector<uint64_t> calls;  /* from the first call until the last launch has returned */
};

enum : uint64_t { STEP_PAUSE_NS = 2000, STEP_TRACED = 4096 /* kernels of a step */ };

static inline void step_print(const char *before, const std::vector<uint64_t> &numbers)
{
    printf("%s[", before);
    for (size_t i = 0; i < numbers.size(); i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)numbers[i]);
    printf("]");
}

/** Prints the line. `ns`: of each step that counts, of all threads. */
static inline void step_report(const struct step_run &run, int results, int launches, int threads,
                               const std::vector<uint64_t> &ns, uint64_t digest,
                               const struct step_trace *trace = nullptr)
{
    printf("{\"program\":\"%s\",\"steps\":%d,\"results\":%d,\"launches\":%d,\"threads\":%d,\"kernel_us\":%g",
           run.program, run.steps, results, launches, threads, run.kernel_us);
    step_print(",\"ns\":", ns);
    if (trace) {
        step_print(",\"trace\":{\"first\":", trace->first);
        step_print(",\"kernels\":", trace->kernels);
        step_print(",\"between\":", trace->between);
        step_print(",\"last\":", trace->last);
        step_print(",\"pauses\":", trace->pauses);
        step_print(",\"calls\":", trace->calls);
        printf("}");
    }
    printf(",\"digest\":\"%016llx\"}\n", (unsigned long long)digest);
}

__device__ static inline unsigned long long step_device_ns(void)
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Does the operation for n elements. */
template <class Op> __global__ void step_kernel(Op op, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        op(i);
}

/* The same, and lasts at least `ns`, which the device's clock counts, whatever its speed. `times`: of begin and end, or
 * NULL. */
template <class Op>
__global__ void step_kernel_lasting(Op op, int n, unsigned long long ns, unsigned long long *times)
{
    const unsigned long long begin = step_device_ns();
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        op(i);
    if (i == 0)
        while (step_device_ns() - begin < ns)
            ;
    if (i == 0 && times) {
        times[0] = begin;
        times[1] = step_device_ns();
    }
}

/** Where operations run and memory lies: a stream of the device, or the host. */
struct step_place {
    bool device;
    cudaStream_t stream;
    unsigned long long kernel_ns;
    int launches = 0;
    unsigned long long *times = nullptr,
                       *times_end = nullptr; /* of the next kernel, if that is wanted; on the device */
    char *free_memory = nullptr;
    size_t free_bytes = 0;

    enum : size_t { BLOCK = 128 << 10 };

    step_place(bool on_device, double kernel_us)
        : device(on_device), stream(nullptr), kernel_ns((unsigned long long)(kernel_us * 1000))
    {
        if (device)
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }

    /** Memory for n elements, zero, out of blocks, as frameworks do. Lives as long as the program. */
    template <class T> T *memory(size_t n)
    {
        const size_t size = (n * sizeof(T) + 255) / 256 * 256;
        if (size > free_bytes) {
            free_bytes = size > BLOCK ? size : BLOCK;
            if (!device) {
                free_memory = (char *)calloc(free_bytes, 1);
                if (!free_memory)
                    step_fail("no memory for %zu bytes", free_bytes);
            } else {
                CHECK(cudaMalloc(&free_memory, free_bytes));
                CHECK(cudaMemsetAsync(free_memory, 0, free_bytes, stream));
            }
        }
        T *memory = (T *)free_memory;
        free_memory += size;
        free_bytes -= size;
        return memory;
    }

    /** Copies from host memory; if that is page-locked, it stays as it is until the stream has been waited for. */
    template <class T> void set(T *to, const T *from, size_t n) const
    {
        if (device)
            CHECK(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream));
        else
            memcpy(to, from, n * sizeof(T));
    }

    /** Runs an operation for n elements. */
    template <class Op> void run(const Op &op, int n)
    {
        launches++;
        if (!device) {
            for (int i = 0; i < n; i++)
                op(i);
            return;
        }
        if (times && times == times_end)
            step_fail("--trace: more than %llu kernels in a step", (unsigned long long)STEP_TRACED);
        const int threads = n < 128 ? n : 128, blocks = (n + threads - 1) / threads;
        if (kernel_ns)
            step_kernel_lasting<<<blocks, threads, 0, stream>>>(op, n, kernel_ns, times);
        else
            step_kernel<<<blocks, threads, 0, stream>>>(op, n);
        CHECK(cudaGetLastError());
        times = times ? times + 2 : nullptr;
    }
};

static inline struct step_place step_host(void)
{
    return {false, 0};
}

/** A new stream of the current device. */
static inline struct step_place step_device(const struct step_run &run)
{
    return {true, run.kernel_us};
}

/** Page-locked memory of the host. */
template <class T> static inline T *step_pinned(size_t n)
{
    T *memory = nullptr;
    CHECK(cudaMallocHost(&memory, n * sizeof(T)));
    memset(memory, 0, n * sizeof(T));
    return memory;
}

/** Numbers from -scale to scale, the same for the same seed. */
static inline void step_fill(float *to, size_t n, uint32_t seed, float scale)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = scale * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

/* Takes a traced step apart: it lasted from `began` to `ended`, its calls until `put`. `times`: begin and end of each kernel. */
static inline void step_take_apart(const std::vector<unsigned long long> &times, uint64_t began, uint64_t put,
                                   uint64_t ended, struct step_trace *trace)
{
    uint64_t kernels = 0, between = 0, pauses = 0;
    for (size_t i = 0; i + 1 < times.size(); i += 2) {
        kernels += times[i + 1] - times[i];
        const uint64_t gap = i ? times[i] - times[i - 1] : 0;
        between += gap;
        pauses += gap > STEP_PAUSE_NS ? gap : 0;
    }
    if (times.empty() || times.front() < began || times.back() > ended)
        step_fail("the device's clock is not this machine's: a trace needs the device here");
    trace->first.push_back(times.front() - began);
    trace->kernels.push_back(kernels);
    trace->between.push_back(between);
    trace->last.push_back(ended - times.back());
    trace->pauses.push_back(pauses);
    trace->calls.push_back(put - began);
}

/**
 * The program of a model that is on the device and on the host: takes each step on the device, waits for its result (what
 * `result` points to) and keeps the time, then takes them on the host, whose results must be the same. `prepare(step)` is
 * done before a step, `take(model, step)` enqueues it.
 */
template <class Model, class Result, class Prepare, class Take>
static inline void step_compare(const struct step_run &run, Model &device, Model &host,
                                Result *Model::*result, Prepare prepare, Take take)
{
    const int n = run.warm + run.steps;
    Result *came = step_pinned<Result>(1);
    std::vector<uint64_t> ns;
    std::vector<Result> results;
    struct step_trace trace;
    unsigned long long *times = nullptr;
    if (run.trace) {
        if (!device.place.kernel_ns)
            step_fail("--trace: kernels note when they ran where --kernel-us sets how long");
        CHECK(cudaMalloc(&times, 2 * STEP_TRACED * sizeof *times));
    }
    CHECK(cudaDeviceSynchronize());
    for (int step = 0; step < n; step++) {
        prepare(step);
        device.place.times = times;
        device.place.times_end = times ? times + 2 * STEP_TRACED : nullptr;
        const uint64_t wall = run.trace ? step_wall_ns() : 0, begin = step_now_ns();
        take(device, step);
        const uint64_t put = run.trace ? step_wall_ns() : 0;
        CHECK(
            cudaMemcpyAsync(came, device.*result, sizeof *came, cudaMemcpyDeviceToHost, device.place.stream));
        CHECK(cudaStreamSynchronize(device.place.stream));
        if (step >= run.warm)
            ns.push_back(step_now_ns() - begin);
        if (step >= run.warm && run.trace) {
            const uint64_t ended = step_wall_ns();
            std::vector<unsigned long long> noted((size_t)(device.place.times - times));
            CHECK(cudaMemcpy(noted.data(), times, noted.size() * sizeof *times, cudaMemcpyDeviceToHost));
            step_take_apart(noted, wall, put, ended, &trace);
        }
        results.push_back(*came);
    }

    uint64_t digest = STEP_DIGEST_START;
    for (int step = 0; step < n; step++) {
        prepare(step);
        take(host, step);
        const Result right = *(host.*result);
        if (results[(size_t)step] != right)
            step_fail("%s: the result of step %d is %.9g, not %.9g", run.program, step,
                      (double)results[(size_t)step], (double)right);
        step_digest(&digest, right);
    }
    step_report(run, 1, device.place.launches / (n ? n : 1), 1, ns, digest, run.trace ? &trace : nullptr);
}

/* One turn of arithmetic on whole numbers, for programs that are about other things than what they compute. */
struct step_turn {
    uint32_t *values;
    uint32_t factor, summand;
    __host__ __device__ void operator()(int i) const
    {
        values[i] = values[i] * factor + summand + (uint32_t)i;
    }
};

#endif
