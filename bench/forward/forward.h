/*
 * forward.h - what the parts of the program `forward` share: the kernels, the figures of the measurement that runs, and what it
 * repeats. One thread measures.
 */
#ifndef BENCH_FORWARD_FORWARD_H
#define BENCH_FORWARD_FORWARD_H

#include "bench/cuda_program.h"

#include <stdbool.h>

enum { SMALL = 4096, BURST = 1000 }; /* bytes of a small copy; calls of a burst */

/** What the options say. */
struct forward_options {
    bool quick;
    size_t bulk; /* bytes of a large copy */
};
extern struct forward_options options;

/** Figures of the measurement that runs; where it takes two at once, the second ones. Empty between measurements. */
extern struct samples samples, second_samples;

/** What forward_load has made: kernels, a stream that does not wait for the legacy one, an event, SMALL bytes. */
extern CUfunction nothing, eight, add_one;
extern CUstream stream;
extern CUevent event;
extern CUdeviceptr device_small;
void forward_load(void);

/** One block of 32 threads, in the stream. */
void launch(CUfunction function, void **parameters);

void call_launch_synchronize(void);

/** Measures the call many times. */
void repeat(void (*call)(void), const char *name);

/* launches.c */
void measure_launch(void);
void measure_launch_eight(void);
void measure_launch_each(void);
void measure_launch_rate(void);
void measure_launch_arrival(void);
/* copies.c */
void measure_small_copies(void);
void measure_bulk(void);
void measure_bulk_pinned(void);
void measure_beside(void);
/* steps.c */
void run_steps(int n);

#endif
