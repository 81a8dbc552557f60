/*
 * measure.h - clocks and samples of the benchmark's programs.
 *
 * A measurement is a series of samples, printed as one line "NAME UNIT SAMPLE SAMPLE …" on stdout; bench/run
 * reads the lines of several rounds and makes medians of them. Units: ns (less is better), B/s and 1/s (more
 * is better).
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

enum { SAMPLES_MAX = 100000 };

struct samples {
    double value[SAMPLES_MAX];
    size_t n;
};

/** Nanoseconds of a clock that never goes back. */
uint64_t now_ns(void);
/** Nanoseconds of processor time that the calling thread has had. */
uint64_t thread_cpu_ns(void);
/** What two calls of now_ns, one right after the other, differ by: the median of many. */
double clock_cost_ns(void);

void samples_add(struct samples *samples, double value);
/** Prints the line of `name` and forgets the samples. */
void samples_print(struct samples *samples, const char *name, const char *unit);

/** Fills memory with bytes that do not compress and are the same for the same seed. */
void fill_random(void *memory, size_t size, uint64_t seed);
/** Memory whose pages are there; ends the program if there is none. */
void *memory_of_pages(size_t size);

/** Says "ready" on stdout and waits until stdin ends: for others to look at this process meanwhile. */
void wait_for_end_of_input(void);

/** Says what is wrong on stderr and ends the program with status 1. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
