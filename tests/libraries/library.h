/*
 * library.h - for programs that try NVIDIA's libraries: arrays of any type on both sides, results against a reference
 * in double precision, a line for each function tried.
 *
 * A program prints `NAME: ok` or what went wrong, and ends with status 1 if anything did. Nothing printed depends on
 * the machine: two runs on equal devices print the same.
 */
#ifndef TEST_LIBRARY_H
#define TEST_LIBRARY_H

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>

enum type {
    S,
    D,
    C,
    Z,
    H,
    B,
    I8
}; /* float, double, their complex ones, half, bfloat16, integers of 8 bits */

struct array {
    enum type type;
    size_t n;
    void *host, *device; /* the same content after array_random and array_fetch */
};

/** `n` elements of small random values that are exact in `type`; never zero. */
struct array array_random(enum type type, size_t n);
/** `n` zeros. */
struct array array_zero(enum type type, size_t n);
/** An array of device addresses: of `count` parts of `of`, `stride` elements apart. */
void **array_pointers(const struct array *of, size_t count, size_t stride);
void array_free(struct array *array);
double complex array_get(const struct array *array, size_t i);
void array_set(struct array *array, size_t i, double complex value);
/** Copies the host's content to the device, or back. */
void array_push(const struct array *array);
void array_fetch(struct array *array);
bool type_is_complex(enum type type);
size_t type_size(enum type type);
/** The relative error that results in `type` may have, for sums of about a hundred products. */
double type_tolerance(enum type type);
/** 's', 'd', … for names. */
char type_letter(enum type type);

/** Says what becomes of one function; `status` is the library's. */
void tried(int status, double error, double tolerance, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** The largest difference between what the device computed (fetched here) and `expected`, by the largest value. */
double array_error(struct array *computed, const double complex *expected, size_t n);
/** Ends the program if the runtime's call failed. */
void must(int error, const char *what);
#define MUST(call) must((int)(call), #call)
/** True if the command line names no groups, or this one. */
bool wanted(int argc, char **argv, const char *group);
/** The exit status. */
int verdict(void);

#endif
