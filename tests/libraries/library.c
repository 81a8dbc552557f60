/* library.c - see library.h. */
#include "library.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned n_tried, n_failed;

void must(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(1);
}

bool type_is_complex(enum type type)
{
    return type == C || type == Z;
}

size_t type_size(enum type type)
{
    static const size_t sizes[] = {4, 8, 8, 16, 2, 2, 1};
    return sizes[type];
}

double type_tolerance(enum type type)
{
    static const double tolerances[] = {1e-5, 1e-13, 1e-5, 1e-13, 4e-3, 2e-2, 0};
    return tolerances[type];
}

char type_letter(enum type type)
{
    return "sdczhbi"[type];
}

/* --- half precision, to the nearest even; the values here are in its range --- */

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double value = exponent != 0 ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits & 1023, -24);
    return bits >> 15 ? -value : value;
}

static uint16_t half_bits(double value)
{
    int exponent;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    value = fabs(value);
    if (value == 0)
        return sign;
    frexp(value, &exponent);
    if (exponent < -13)
        return sign | (uint16_t)rint(ldexp(value, 24));
    uint32_t mantissa = (uint32_t)rint(ldexp(value, 11 - exponent)); /* 1024 to 2048 */
    return sign | (uint16_t)((uint32_t)(exponent + 13) * 1024 + mantissa);
}

static double bfloat_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t bfloat_bits(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double complex array_get(const struct array *a, size_t i)
{
    switch (a->type) {
    case S:
        return ((float *)a->host)[i];
    case D:
        return ((double *)a->host)[i];
    case C:
        return ((float complex *)a->host)[i];
    case Z:
        return ((double complex *)a->host)[i];
    case H:
        return half_value(((uint16_t *)a->host)[i]);
    case B:
        return bfloat_value(((uint16_t *)a->host)[i]);
    case I8:
        return ((int8_t *)a->host)[i];
    }
    return 0;
}

void array_set(struct array *a, size_t i, double complex value)
{
    switch (a->type) {
    case S:
        ((float *)a->host)[i] = (float)creal(value);
        break;
    case D:
        ((double *)a->host)[i] = creal(value);
        break;
    case C:
        ((float complex *)a->host)[i] = (float complex)value;
        break;
    case Z:
        ((double complex *)a->host)[i] = value;
        break;
    case H:
        ((uint16_t *)a->host)[i] = half_bits(creal(value));
        break;
    case B:
        ((uint16_t *)a->host)[i] = bfloat_bits(creal(value));
        break;
    case I8:
        ((int8_t *)a->host)[i] = (int8_t)creal(value);
        break;
    }
}

void array_push(const struct array *a)
{
    MUST(cudaMemcpy(a->device, a->host, a->n * type_size(a->type), cudaMemcpyHostToDevice));
}

void array_fetch(struct array *a)
{
    MUST(cudaMemcpy(a->host, a->device, a->n * type_size(a->type), cudaMemcpyDeviceToHost));
}

static struct array array_new(enum type type, size_t n)
{
    struct array a = {type, n, calloc(n + 1, type_size(type)), NULL};
    must(a.host == NULL, "calloc");
    MUST(cudaMalloc(&a.device, (n + 1) * type_size(type)));
    return a;
}

struct array array_zero(enum type type, size_t n)
{
    struct array a = array_new(type, n);
    array_push(&a);
    return a;
}

static int small_number(void)
{
    static uint32_t state = 12345;
    state = state * 1664525 + 1013904223;
    int n = (int)(state >> 20) % 17 - 8;
    return n != 0 ? n : 3;
}

struct array array_random(enum type type, size_t n)
{
    struct array a = array_new(type, n);
    const double scale = type == I8 ? 1 : 0.125;
    for (size_t i = 0; i < n; i++) {
        double re = small_number() * scale, im = type_is_complex(type) ? small_number() * scale : 0;
        array_set(&a, i, re + im * I);
    }
    array_push(&a);
    return a;
}

void **array_pointers(const struct array *of, size_t count, size_t stride)
{
    void **pointers = calloc(count, sizeof *pointers), *device;
    must(pointers == NULL, "calloc");
    for (size_t i = 0; i < count; i++)
        pointers[i] = (char *)of->device + i * stride * type_size(of->type);
    MUST(cudaMalloc(&device, count * sizeof *pointers));
    MUST(cudaMemcpy(device, pointers, count * sizeof *pointers, cudaMemcpyHostToDevice));
    free(pointers);
    return device;
}

void array_free(struct array *a)
{
    MUST(cudaFree(a->device));
    free(a->host);
    *a = (struct array){.type = a->type};
}

double array_error(struct array *computed, const double complex *expected, size_t n)
{
    double largest = 0, error = 0;
    array_fetch(computed);
    for (size_t i = 0; i < n; i++) {
        double difference = cabs(array_get(computed, i) - expected[i]);
        largest = fmax(largest, cabs(expected[i]));
        error = difference >= error || isnan(difference) ? difference : error;
        if (isnan(error))
            return error;
    }
    return largest > 0 ? error / largest : error;
}

void tried(int status, double error, double tolerance, const char *format, ...)
{
    va_list arguments;
    int sync = cudaDeviceSynchronize();
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    n_tried++;
    if (status == 0 && sync == 0 && error <= tolerance) {
        printf(": ok\n");
    } else {
        n_failed++;
        if (status != 0)
            printf(": the library says %d", status);
        if (sync != 0)
            printf(": the device says %d", sync);
        printf(": FAILED, error %.3g\n", error);
    }
    fflush(stdout);
    must(sync, "the context is lost"); /* nothing that follows could work */
}

bool wanted(int argc, char **argv, const char *group)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], group) == 0)
            return true;
    return argc < 2;
}

int verdict(void)
{
    printf("%u tried, %u failed\n", n_tried, n_failed);
    return n_failed > 0 || n_tried == 0;
}
