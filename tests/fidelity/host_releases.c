/*
 * host_releases.c - one thread makes all calls; a kernel of its runs until another thread, which makes none, writes a word of
 * page-locked memory. Meanwhile the first one makes calls for which a driver may wait until the kernel has ended: a launch when there
 * is no room for more work, the first use of a function, memory that is freed. Each comes to its end only if what the host writes
 * reaches the kernel all the same.
 *
 * At the end a copy to page-locked memory waits for a later call of the same thread, which asks for the memory's device pointer first.
 */
#include "must.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { ROW = 64, BYTES = 1 << 20, HELD_US = 60000 };

static const char code[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                           ".visible .entry spin(.param .u64 at)\n"
                           "{\n"
                           "  .reg .u64 %a; .reg .u32 %v; .reg .pred %p;\n"
                           "  ld.param.u64 %a, [at];\n"
                           "again:\n"
                           "  ld.volatile.global.u32 %v, [%a];\n"
                           "  setp.eq.u32 %p, %v, 0;\n"
                           "  @%p bra again;\n"
                           "  ret;\n"
                           "}\n"
                           ".visible .entry add(.param .u64 at)\n"
                           "{\n"
                           "  .reg .u64 %a; .reg .u32 %v;\n"
                           "  ld.param.u64 %a, [at];\n"
                           "  ld.global.u32 %v, [%a];\n"
                           "  add.u32 %v, %v, 1;\n"
                           "  st.global.u32 [%a], %v;\n"
                           "  ret;\n"
                           "}\n"
                           ".visible .entry add_there(.param .u64 at)\n" /* where the memory says */
                           "{\n"
                           "  .reg .u64 %a; .reg .u32 %v;\n"
                           "  ld.param.u64 %a, [at];\n"
                           "  ld.global.u64 %a, [%a];\n"
                           "  ld.global.u32 %v, [%a];\n"
                           "  add.u32 %v, %v, 1;\n"
                           "  st.global.u32 [%a], %v;\n"
                           "  ret;\n"
                           "}\n";

static CUstream held, other;
static CUfunction spin, add;
static CUdeviceptr sum, device_word, memory;
static volatile uint32_t *word;
static unsigned char bytes[BYTES];
static void *locked;
static CUmodule module;

static void launch_add(CUfunction function, CUstream stream)
{
    void *parameters[] = {&sum};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static CUfunction unused_function(void)
{
    CUfunction function;
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&function, module, "add"));
    return function;
}

/* --- the calls --------------------------------------------------------------------------------------------- */

static void many_launches(void)
{
    for (int i = 0; i < ROW; i++)
        launch_add(add, i % 2 ? held : other);
}

static void first_launch(void)
{
    launch_add(unused_function(), other);
}

static void attribute(void)
{
    int threads = 0;
    CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, unused_function()));
    printf("%d threads\n", threads);
}

static void load_function(void)
{
    CHECK(cuFuncLoad(unused_function()));
}

static void kernel_of_library(void)
{
    CUlibrary library;
    CUkernel kernel;
    CHECK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "add"));
    launch_add((CUfunction)kernel, other);
}

static void free_memory(void)
{
    CHECK(cuMemFree_v2(memory));
    memory = 0;
}

static void free_locked(void)
{
    CHECK(cuMemFreeHost(locked));
}

static void copy_in(void)
{
    CHECK(cuMemcpyHtoD_v2(memory, bytes, BYTES));
}

static void wait_for_all(void)
{
    CHECK(cuCtxSynchronize());
}

static const struct trial {
    const char *name;
    void (*call)(void);
} trials[] = {
    {"many launches", many_launches},
    {"the first launch of a function", first_launch},
    {"a function's attribute", attribute},
    {"cuFuncLoad", load_function},
    {"a library's kernel", kernel_of_library},
    {"cuMemFree", free_memory},
    {"cuMemFreeHost", free_locked},
    {"cuMemcpyHtoD", copy_in},
    {"cuCtxSynchronize", wait_for_all},
};

/* --- a trial ------------------------------------------------------------------------------------------------ */

static void *release(void *argument)
{
    (void)argument;
    usleep(HELD_US);
    *word = 1;
    return NULL;
}

static void run(const struct trial *trial)
{
    pthread_t thread;
    unsigned result = 0;
    CUdeviceptr mapped;
    void *parameters[] = {&device_word};
    module = NULL;
    CHECK(cuMemAlloc_v2(&memory, BYTES));
    CHECK(cuMemHostAlloc(&locked, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&mapped, locked, 0));
    CHECK(cuMemsetD32_v2(sum, 0, 1));
    CHECK(cuCtxSynchronize());
    *word = 0;
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, held, parameters, NULL));
    if (pthread_create(&thread, NULL, release, NULL) != 0)
        exit(2);
    trial->call();
    pthread_join(thread, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&result, sum, sizeof result));
    printf("%s: the sum is %u\n", trial->name, result);
    fflush(stdout);
    if (trial->call != free_locked)
        CHECK(cuMemFreeHost(locked));
    if (memory)
        CHECK(cuMemFree_v2(memory));
    if (module)
        CHECK(cuModuleUnload(module));
}

/*
 * The pointer gets to the device by two words that are set, in which nobody sees it. Without optimisations a copy does not return
 * before it has its data, so the gate is open then.
 */
static void pointer_behind_a_copy(CUfunction add_there)
{
    const bool gated = getenv("REMOTE_GPU_OPT") == NULL;
    CUdeviceptr gate, mapped;
    uint32_t *copied;
    CHECK(cuMemAlloc_v2(&gate, 64));
    CHECK(cuMemAlloc_v2(&memory, BYTES));
    CHECK(cuMemHostAlloc((void **)&copied, BYTES, 0));
    CHECK(cuMemsetD32_v2(gate, gated ? 0 : 1, 1));
    CHECK(cuMemsetD32_v2(memory, 7, BYTES / 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamWaitValue32_v2(held, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuMemcpyDtoHAsync_v2(copied, memory, BYTES, held));
    CHECK(cuMemHostGetDevicePointer_v2(&mapped, copied, 0));
    CHECK(cuMemsetD32_v2(sum, (uint32_t)mapped, 1));
    CHECK(cuMemsetD32_v2(sum + 4, (uint32_t)(mapped >> 32), 1));
    CHECK(cuMemsetD32_v2(gate, 1, 1));
    launch_add(add_there, held);
    CHECK(cuStreamSynchronize(held));
    printf("copied %u, then %u\n", copied[BYTES / 4 - 1], copied[0]);
    CHECK(cuMemFreeHost(copied));
    CHECK(cuMemFree_v2(memory));
    CHECK(cuMemFree_v2(gate));
}

int main(void)
{
    CUmodule own;
    CUfunction add_there;
    void *host;
    alarm(100); /* where one waits for the other */
    use_first_device();
    CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&sum, 64));
    CHECK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&device_word, host, 0));
    word = host;
    CHECK(cuModuleLoadData(&own, code));
    CHECK(cuModuleGetFunction(&spin, own, "spin"));
    CHECK(cuModuleGetFunction(&add, own, "add"));
    CHECK(cuFuncLoad(spin));
    CHECK(cuFuncLoad(add));
    for (unsigned i = 0; i < sizeof trials / sizeof *trials; i++)
        run(&trials[i]);
    CHECK(cuModuleGetFunction(&add_there, own, "add_there"));
    CHECK(cuFuncLoad(add_there));
    pointer_behind_a_copy(add_there);
    return 0;
}
