/*
 * library_variables.c - managed variables of a library are the library's: the same for kernels on two devices and for the host, and still
 * there, with what was last written, when a primary context has been reset.
 */
#include "tests/fidelity/must.h"

#include <cuda.h>
#include <stdio.h>

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .global .attribute(.managed) .u32 all[2] = {1, 2};\n"
                          ".visible .global .u32 own = 5;\n"
                          ".visible .entry add(.param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<4>;\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    ld.global.u32 %r2, [all+4];\n"
                          "    add.u32 %r2, %r2, %r1;\n"
                          "    st.global.u32 [all+4], %r2;\n"
                          "    ld.global.u32 %r3, [own];\n"
                          "    add.u32 %r3, %r3, %r1;\n"
                          "    st.global.u32 [own], %r3;\n"
                          "    ret;\n"
                          "}\n";

static CUlibrary library;
static CUkernel kernel;
static volatile unsigned *all;

/* The kernel on a device, and what is seen of the variables there and here. */
static void add(int device, unsigned n)
{
    CUcontext context;
    CUdeviceptr own, managed;
    unsigned value = 0, is_managed = 0;
    size_t size = 0;
    void *parameters[] = {&n};
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    printf("device %d: managed %u %u", device, all[0], all[1]);
    CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, (CUdeviceptr)all));
    printf(", known as such %u", is_managed);
    CHECK(cuLibraryGetGlobal(&own, &size, library, "own"));
    CHECK(cuMemcpyDtoH_v2(&value, own, sizeof value));
    CHECK(cuLibraryGetManaged(&managed, &size, library, "all"));
    printf(", own %u, where it was %d\n", value, managed == (CUdeviceptr)all);
}

static void reset(int device)
{
    CHECK(cuDevicePrimaryCtxReset_v2(device));
    printf("device %d is reset: managed %u %u\n", device, all[0], all[1]);
}

int main(void)
{
    CUdeviceptr found;
    size_t size;
    CHECK(cuInit(0));
    CHECK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "add"));
    CHECK(cuLibraryGetManaged(&found, &size, library, "all"));
    all = (volatile unsigned *)found;
    printf("%zu bytes: %u %u\n", size, all[0], all[1]);
    all[1] = 10;
    add(0, 1);
    all[0] = 7;
    add(1, 20);
    add(0, 300);
    reset(1);
    add(0, 4000);
    reset(0);
    all[1]++;
    add(0, 50000);
    all[0]++;
    add(1, 600000);
    reset(0);
    reset(1);
    all[0]++;
    add(1, 7000000);
    CHECK(cuLibraryUnload(library));
    return 0;
}
