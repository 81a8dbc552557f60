/*
 * What the examples share: sizes from the command line, the check around runtime calls, the verdict.
 *
 * An example prints its results and then `NAME: ok` (exit status 0) or `NAME: FAILED` (1). A CUDA call that
 * fails says so on stderr, with the error's name and the source line, and fails the example. Nothing on
 * stdout depends on time, addresses or the machine, so that two runs on equal devices print the same;
 * `--time` prints how long the example took, on stderr.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct example {
    const char *name;
    int argument_count;
    char **arguments;
    int timed;
    struct timespec start;
};

/** Begins an example: answers --help, takes --time out of the arguments. `usage` names the arguments. */
static inline struct example example_begin(const char *name, const char *usage, int argc, char **argv)
{
    struct example example = {name, 0, argv, 0, {0, 0}};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            printf("usage: %s [--time]%s%s\n", name, *usage ? " " : "", usage);
            exit(0);
        } else if (strcmp(argv[i], "--time") == 0) {
            example.timed = 1;
        } else {
            argv[example.argument_count++] = argv[i];
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &example.start);
    return example;
}

/** The argument at `position` as a whole number from `least` to `most`, or `otherwise` if it is not given. */
static inline int example_number(const struct example *example, int position, int least, int most,
                                 int otherwise)
{
    if (position >= example->argument_count) {
        return otherwise;
    }
    char *end = NULL;
    long value = strtol(example->arguments[position], &end, 10);

    if (end == example->arguments[position] || *end || value < least || value > most) {
        fprintf(stderr, "%s: argument %d is '%s', not a number from %d to %d\n", example->name, position + 1,
                example->arguments[position], least, most);
        exit(2);
    }
    return (int)value;
}

/** Ends an example: prints the verdict and returns the exit status for it. */
static inline int example_end(const struct example *example, int good)
{
    if (example->timed) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        fprintf(stderr, "%s: %.3f s\n", example->name,
                (double)(now.tv_sec - example->start.tv_sec) +
                    1e-9 * (double)(now.tv_nsec - example->start.tv_nsec));
    }
    printf("%s: %s\n", example->name, good ? "ok" : "FAILED");
    fflush(stdout);
    return good ? 0 : 1;
}

/** A well mixed 32-bit value of `i`: test data that neither repeats nor compresses. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline uint32_t
    example_mix(uint32_t i)
{
    i ^= i >> 16;
    i *= 0x7feb352du;
    i ^= i >> 15;
    i *= 0x846ca68bu;
    i ^= i >> 16;
    return i;
}

#ifdef __CUDACC__
static inline void example_check(cudaError_t result, const char *call, const char *file, int line)
{
    if (result != cudaSuccess) {
        fflush(stdout);
        fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorName(result),
                cudaGetErrorString(result));
        printf("FAILED\n");
        exit(1);
    }
}

/** Runs a runtime call; if it fails, says which and ends the example. */
#define CHECK(call) example_check((call), #call, __FILE__, __LINE__)

/** To follow a launch: a launch that could not be made ends the example. */
#define CHECK_LAUNCH() example_check(cudaGetLastError(), "launch", __FILE__, __LINE__)
#endif

#endif
