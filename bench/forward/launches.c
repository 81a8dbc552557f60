/* launches.c - what a launch costs its caller, and when it leaves this machine. */
#include "bench/forward/forward.h"

enum { LONG_BURST = 10000 };

static void launch_bursts(CUfunction function, void **parameters, const char *name, const char *cpu_name)
{
    for (int i = options.quick ? -3 : -10, n = options.quick ? 50 : 200; i < n; i++) {
        const uint64_t cpu = thread_cpu_ns(), begin = now_ns();
        for (int k = 0; k < BURST; k++)
            launch(function, parameters);
        const uint64_t end = now_ns(), cpu_end = thread_cpu_ns();
        CHECK(cuStreamSynchronize(stream));
        if (i < 0)
            continue;
        samples_add(&samples, (double)(end - begin) / BURST);
        samples_add(&second_samples, (double)(cpu_end - cpu) / BURST);
    }
    samples_print(&samples, name, "ns");
    samples_print(&second_samples, cpu_name, "ns");
}

void measure_launch(void)
{
    launch_bursts(nothing, NULL, "launch", "launch_cpu");
}

void measure_launch_eight(void)
{
    CUdeviceptr pointer = device_small;
    unsigned number = 5;
    float real = 1.5f;
    void *parameters[] = {&pointer, &pointer, &pointer, &pointer, &number, &number, &real, &real};
    launch_bursts(eight, parameters, "launch_eight", "launch_eight_cpu");
}

/* Each launch by itself: its median leaves out what a burst's total has in wake-ups and preemption. */
void measure_launch_each(void)
{
    const double clock_cost = clock_cost_ns();
    for (int i = 0, n = options.quick ? 5 : 20; i < n; i++) {
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

void measure_launch_rate(void)
{
    for (int i = -1, n = options.quick ? 3 : 10; i < n; i++) {
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
    for (int i = -10; arrival && i < (options.quick ? 100 : 400); i++) {
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

void measure_launch_arrival(void)
{
    launch_and_compute(1, "launch_arrival");
    launch_and_compute(20, "launch_arrival_20");
}
