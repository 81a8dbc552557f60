/* stacks.c - little stacks: a thread's, a coroutine's, and those of a process whose limit is low. */
#include "scenario.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

enum { SIZE = 1 << 20, LITTLE = 16 << 10, MANY = 4000 };

static unsigned char bytes[SIZE], back[SIZE];

static const char image[] = ".version 7.0\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry add(.param .align 4 .b8 all[4000], .param .u64 data)\n"
                            "{\n"
                            "    .reg .u32 %r<4>;\n"
                            "    .reg .u64 %rd<2>;\n"
                            "    ld.param.u64 %rd1, [data];\n"
                            "    cvta.to.global.u64 %rd1, %rd1;\n"
                            "    ld.param.u32 %r1, [all + 3996];\n"
                            "    ld.global.u32 %r2, [%rd1];\n"
                            "    add.u32 %r3, %r1, %r2;\n"
                            "    st.global.u32 [%rd1], %r3;\n"
                            "    ret;\n"
                            "}\n";

/* A kernel with many parameters. */
static void launch(CUdeviceptr data)
{
    static unsigned all[MANY / 4];
    CUmodule module;
    CUfunction add;
    void *parameters[] = {all, &data};
    all[MANY / 4 - 1] = 41;
    TRY(cuModuleLoadData(&module, image));
    TRY(cuModuleGetFunction(&add, module, "add"));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    TRY(cuModuleUnload(module));
}

static void managed(void)
{
    CUdeviceptr data;
    TRY(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
    unsigned char *shared = (unsigned char *)data;
    for (unsigned round = 1; round < 4; round++) {
        shared[5] = (unsigned char)round;
        TRY(cuMemsetD8_v2(data + 4096, (unsigned char)round, SIZE / 2));
        TRY(cuCtxSynchronize());
        say("%d %d\n", shared[5], shared[SIZE / 4]);
    }
    TRY(cuMemFree_v2(data));
}

/* From the first call on. */
static void *all_of_it(void *unused)
{
    CUcontext context;
    CUdeviceptr data;
    CUdevResource resource, groups[1];
    unsigned n = 1;
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
    TRY(cuMemAlloc_v2(&data, SIZE));
    for (unsigned round = 1; round < 4; round++) {
        memset(bytes, (int)round, SIZE);
        TRY(cuMemcpyHtoD_v2(data, bytes, SIZE));
        launch(data);
        TRY(cuMemcpyDtoH_v2(back, data, SIZE));
        say("%d %d %d\n", back[0], back[1], memcmp(back + 4, bytes + 4, SIZE - 4));
    }
    TRY(cuMemFree_v2(data));
    TRY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDevSmResourceSplitByCount(groups, &n, &resource, NULL, 0, 1));
    managed();
    return unused;
}

static int little_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, LITTLE) != 0 ||
        pthread_create(&thread, &attributes, all_of_it, NULL) != 0)
        return 1;
    return pthread_join(thread, NULL);
}

static void run_all(void)
{
    (void)all_of_it(NULL);
}

/* A stack that the threads library knows nothing of, with a page before it that may not be touched. */
static int coroutine(void)
{
    static ucontext_t outside, inside;
    char *stack = mmap(NULL, LITTLE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0 || getcontext(&inside) != 0)
        return 1;
    inside.uc_stack.ss_sp = stack + 4096;
    inside.uc_stack.ss_size = LITTLE;
    inside.uc_link = &outside;
    makecontext(&inside, run_all, 0);
    return swapcontext(&outside, &inside);
}

static int low_limit_within(void)
{
    (void)all_of_it(NULL);
    say("work on a thread: %d\n", little_thread());
    return 0;
}

/* Of the main thread, and of all that are made without a size. */
static int low_limit(void)
{
    const struct rlimit limit = {64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        return 1;
    execl(program_path, "stacks", ".low_limit", (char *)NULL);
    return 1;
}

const struct scenario scenarios[] = {
    {"little_thread", little_thread},
    {"coroutine", coroutine},
    {"low_limit", low_limit},
    {".low_limit", low_limit_within},
    {NULL, NULL},
};
