/*
 * version.c - dlsym finds exactly the functions that a driver of the version has, and what is found works.
 *
 *   softgpu_driver_version LIBRARY VERSION       with SOFTGPU_DRIVER_VERSION=VERSION
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "generated/proto/api_table.h"
#include "generated/proto/driver_versions.h"
#include "tests/check.h"

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    unsigned major, minor, hidden = 0;
    CHECK(sscanf(argv[2], "%u.%u", &major, &minor) == 2);
    const int version = (int)(major * 1000 + minor * 10);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    for (int i = 0; i < RG_API_COUNT; i++) {
        const bool found = dlsym(library, rg_api_names[i]) != NULL;
        if (found != (rg_api_since[i] <= version))
            fprintf(stderr, "%s of %d\n", rg_api_names[i], rg_api_since[i]);
        CHECK(found == (rg_api_since[i] <= version));
        hidden += !found;
    }
    CHECK(version == rg_driver_versions[RG_DRIVER_VERSIONS - 1].number ? hidden == 0 : hidden > 20);
    int told = 0;
    CUresult (*ask)(int *) = (CUresult(*)(int *))dlsym(library, "cuDriverGetVersion");
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
    CHECK(ask(&told) == CUDA_SUCCESS && told == version);
    CHECK(init(0) == CUDA_SUCCESS);
    return 0;
}
