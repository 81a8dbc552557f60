/*
 * random.c - cuRAND: every generator and distribution of the host interface, on the device against the same
 * generator on the host, which cuRAND has as well. The integers must be the same; what goes through
 * floating-point functions may differ in the last bits.
 */
#include "library.h"

#include <cuda_runtime.h>
#include <curand.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define COUNT 20000 /* even, and divisible by the dimensions below */

enum distribution {
    BITS32,
    BITS64,
    UNIFORM,
    UNIFORM64,
    NORMAL,
    NORMAL64,
    LOG_NORMAL,
    LOG_NORMAL64,
    POISSON,
    N_DISTRIBUTIONS
};

static const char *const distribution_names[] = {"32 bits",          "64 bits",           "uniform float",
                                                 "uniform double",   "normal float",      "normal double",
                                                 "log-normal float", "log-normal double", "poisson"};

static const struct {
    const char *name;
    curandRngType_t type;
    unsigned dimensions; /* 0: pseudo-random */
    int wide;            /* yields 64 bits */
} generators[] = {
    {"xorwow", CURAND_RNG_PSEUDO_XORWOW, 0, 0},
    {"philox", CURAND_RNG_PSEUDO_PHILOX4_32_10, 0, 0},
    {"mrg32k3a", CURAND_RNG_PSEUDO_MRG32K3A, 0, 0},
    {"mtgp32", CURAND_RNG_PSEUDO_MTGP32, 0, 0},
    {"mt19937", CURAND_RNG_PSEUDO_MT19937, 0, 0},
    {"sobol32", CURAND_RNG_QUASI_SOBOL32, 4, 0},
    {"scrambled sobol32", CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 4, 0},
    {"sobol64", CURAND_RNG_QUASI_SOBOL64, 4, 1},
    {"scrambled sobol64", CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, 4, 1},
};

static size_t element_size(enum distribution d)
{
    return d == BITS64 || d == UNIFORM64 || d == NORMAL64 || d == LOG_NORMAL64 ? 8 : 4;
}

static curandStatus_t generate(curandGenerator_t generator, enum distribution d, void *out)
{
    switch (d) {
    case BITS32:
        return curandGenerate(generator, out, COUNT);
    case BITS64:
        return curandGenerateLongLong(generator, out, COUNT);
    case UNIFORM:
        return curandGenerateUniform(generator, out, COUNT);
    case UNIFORM64:
        return curandGenerateUniformDouble(generator, out, COUNT);
    case NORMAL:
        return curandGenerateNormal(generator, out, COUNT, 1, 2);
    case NORMAL64:
        return curandGenerateNormalDouble(generator, out, COUNT, 1, 2);
    case LOG_NORMAL:
        return curandGenerateLogNormal(generator, out, COUNT, 0, 0.5f);
    case LOG_NORMAL64:
        return curandGenerateLogNormalDouble(generator, out, COUNT, 0, 0.5);
    default:
        return curandGeneratePoisson(generator, out, COUNT, 20);
    }
}

/* The largest difference, relative to values around 1. */
static double difference(enum distribution d, const void *a, const void *b)
{
    double most = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double error;
        if (d == BITS32 || d == POISSON)
            error = ((const uint32_t *)a)[i] != ((const uint32_t *)b)[i];
        else if (d == BITS64)
            error = ((const uint64_t *)a)[i] != ((const uint64_t *)b)[i];
        else if (element_size(d) == 4)
            error = fabs((double)((const float *)a)[i] - ((const float *)b)[i]) /
                    (1 + fabs(((const float *)b)[i]));
        else
            error =
                fabs(((const double *)a)[i] - ((const double *)b)[i]) / (1 + fabs(((const double *)b)[i]));
        if (!(error <= most))
            most = error;
    }
    return most;
}

static void set_up(curandGenerator_t generator, unsigned dimensions)
{
    if (dimensions == 0)
        MUST(curandSetPseudoRandomGeneratorSeed(generator, 20250102ull));
    else
        MUST(curandSetQuasiRandomGeneratorDimensions(generator, dimensions));
}

static double tolerance(size_t generator, enum distribution d)
{
    static const double tolerances[] = {0, 0, 0, 0, 4e-6, 1e-13, 4e-6, 1e-13, 0};
    /* on the host mtgp32's normal numbers come by single precision, whatever their type */
    return generators[generator].type == CURAND_RNG_PSEUDO_MTGP32 && tolerances[d] > 0 ? 4e-6 : tolerances[d];
}

int main(int argc, char **argv)
{
    void *device, *copy = malloc(COUNT * 8), *expected = malloc(COUNT * 8);
    must(copy == NULL || expected == NULL, "malloc");
    MUST(cudaMalloc(&device, COUNT * 8));
    for (size_t g = 0; g < sizeof generators / sizeof generators[0]; g++) {
        if (!wanted(argc, argv, generators[g].name))
            continue;
        curandGenerator_t on_device, on_host;
        MUST(curandCreateGenerator(&on_device, generators[g].type));
        MUST(curandCreateGeneratorHost(&on_host, generators[g].type));
        set_up(on_device, generators[g].dimensions);
        set_up(on_host, generators[g].dimensions);
        for (enum distribution d = 0; d < N_DISTRIBUTIONS; d++) { /* each continues the sequence */
            if ((d == BITS64) != generators[g].wide && (d == BITS32 || d == BITS64))
                continue; /* it yields the other kind of integers */
            int status = generate(on_device, d, device);
            MUST(generate(on_host, d, expected));
            MUST(cudaDeviceSynchronize());
            MUST(cudaMemcpy(copy, device, COUNT * element_size(d), cudaMemcpyDeviceToHost));
            tried(status, difference(d, copy, expected), tolerance(g, d), "curand %s %s", generators[g].name,
                  distribution_names[d]);
        }
        MUST(curandDestroyGenerator(on_device));
        MUST(curandDestroyGenerator(on_host));
    }
    MUST(cudaFree(device));
    free(copy);
    free(expected);
    return verdict();
}
