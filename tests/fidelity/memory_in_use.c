/*
 * memory_in_use.c - what the management library says of memory right after the program has taken or freed some: it is asked at
 * once, many times, and must count all that calls have done before.
 */
#include "tests/fidelity/must.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

#define MIB      (1ull << 20)
#define SIZE     (208 * MIB)
#define SLACK    (80 * MIB) /* that may be held beside it: blocks that are made ready, whole blocks of pools */
#define MOST     32
#define ROUNDS   24
#define NO_VALUE (~0ull)

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int (*memory_info)(void *, struct memory *);
static int (*processes)(void *, unsigned *, struct process *);
static void *device;

static void begin(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    int (*by_index)(unsigned, void **) =
        library ? (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
    if (!init || !by_index || init() != 0 || by_index(0, &device) != 0) {
        printf("no management library: %s\n", library ? "it does not begin" : dlerror());
        exit(1);
    }
    memory_info = (int (*)(void *, struct memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    processes = (int (*)(void *, unsigned *, struct process *))dlsym(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
}

static unsigned long long used(void)
{
    struct memory memory;
    return memory_info(device, &memory) == 0 ? memory.used : NO_VALUE;
}

/* What this process uses. */
static unsigned long long own(void)
{
    struct process list[MOST];
    unsigned n = MOST;
    if (processes(device, &n, list) != 0)
        return NO_VALUE;
    for (unsigned i = 0; i < n; i++)
        if (list[i].pid == (unsigned)getpid())
            return list[i].used;
    return NO_VALUE;
}

static const char *near(unsigned long long value, unsigned long long wanted)
{
    return value == NO_VALUE        ? "unknown"
           : value < wanted         ? "too little"
           : value > wanted + SLACK ? "too much"
                                    : "right";
}

static void tell(const char *what, unsigned long long wanted)
{
    printf("%s: of the device %s, of this process %s\n", what, near(used(), wanted), near(own(), wanted));
}

int main(void)
{
    CUdeviceptr memory, managed, pooled;
    CUarray array;
    begin();
    use_first_device();
    tell("nothing", 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cuMemAlloc_v2(&memory, SIZE));
        tell("allocated", SIZE);
        CHECK(cuMemFree_v2(memory));
        tell("freed", 0);
    }
    CHECK(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    tell("managed", SIZE);
    CHECK(cuMemFree_v2(managed));
    tell("nothing", 0);
    CHECK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){.Width = 8192,
                                                            .Height = SIZE / 8192 / 4,
                                                            .Format = CU_AD_FORMAT_FLOAT,
                                                            .NumChannels = 1}));
    tell("an array", SIZE);
    CHECK(cuArrayDestroy(array));
    tell("nothing", 0);
    CHECK(cuMemAlloc_v2(&memory, SIZE));
    CHECK(cuMemAllocAsync(&pooled, SIZE, NULL));
    CHECK(cuStreamSynchronize(NULL));
    tell("with a pool's", 2 * SIZE);
    CHECK(cuMemFree_v2(memory));
    tell("a pool's alone", SIZE);
    return 0;
}
