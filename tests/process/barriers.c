/*
 * barriers.c - programs that protect pages of their own and open them in a handler of SIGSEGV, as garbage collectors do to learn which pages
 * are written, and checkpoints to learn which are to be saved: copies ask the handler as a memcpy of the program's would.
 */
#include "scenario.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 1024, SIZE = PAGES * PAGE };

static unsigned char *memory;
static atomic_int opened;
static int opens_for = PROT_READ | PROT_WRITE;

static void open_page(int number, siginfo_t *info, void *context)
{
    unsigned char *at = info->si_addr;
    (void)context;
    if (at < memory || at >= memory + SIZE) {
        signal(number, SIG_DFL);
        return;
    }
    mprotect(memory + (at - memory) / PAGE * PAGE, PAGE, opens_for);
    atomic_fetch_add(&opened, 1);
}

static CUdeviceptr data;

static void begin(void)
{
    struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    device_up();
    TRY(cuMemAlloc_v2(&data, SIZE));
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGSEGV, &action, NULL);
}

/* As at the begin of a collection. */
static void protect(int protection)
{
    atomic_store(&opened, 0);
    mprotect(memory, SIZE, protection);
}

static size_t differing(size_t from, size_t size, unsigned char value)
{
    size_t n = 0;
    for (size_t i = from; i < from + size; i++)
        n += memory[i] != value;
    return n;
}

static const size_t sizes[] = {100, PAGE, 3 * PAGE + 7, 100 * PAGE, SIZE - 2 * PAGE};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Copies to pages that may only be read; what lies around keeps its contents. */
static int written(void)
{
    begin();
    for (int i = 0; i < N_SIZES; i++) {
        protect(PROT_READ | PROT_WRITE);
        memset(memory, 1, SIZE);
        TRY(cuMemsetD8_v2(data, (unsigned char)(i + 10), SIZE));
        protect(PROT_READ);
        TRY(cuMemcpyDtoH_v2(memory + PAGE + 50, data, sizes[i] - 50));
        say("wrong: %zu %zu; pages: %d\n", differing(PAGE + 50, sizes[i] - 50, (unsigned char)(i + 10)),
            differing(0, PAGE + 50, 1) + differing(PAGE + sizes[i], SIZE - PAGE - sizes[i], 1),
            atomic_load(&opened));
    }
    return 0;
}

/* Copies from pages that may not be accessed. */
static int read_from(void)
{
    begin();
    opens_for = PROT_READ;
    for (int i = 0; i < N_SIZES; i++) {
        protect(PROT_READ | PROT_WRITE);
        memset(memory, i + 20, SIZE);
        protect(PROT_NONE);
        TRY(cuMemcpyHtoD_v2(data, memory + PAGE, sizes[i]));
        const int pages = atomic_load(&opened);
        protect(PROT_READ | PROT_WRITE);
        memset(memory, 0, SIZE);
        TRY(cuMemcpyDtoH_v2(memory, data, sizes[i]));
        say("wrong: %zu; pages: %d\n", differing(0, sizes[i], (unsigned char)(i + 20)), pages);
    }
    return 0;
}

/* Rows with gaps, and asynchronous copies. */
static int in_rows(void)
{
    enum { ROWS = 100, PITCH = 2 * PAGE };
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcPitch = PAGE,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstPitch = PITCH,
                          .WidthInBytes = PAGE,
                          .Height = ROWS};
    begin();
    copy.srcDevice = data;
    copy.dstHost = memory;
    memset(memory, 1, SIZE);
    TRY(cuMemsetD8_v2(data, 30, SIZE));
    protect(PROT_READ);
    TRY(cuMemcpy2D_v2(&copy));
    size_t wrong = 0;
    for (size_t i = 0; i < ROWS; i++)
        wrong += differing(i * PITCH, PAGE, 30) + differing(i * PITCH + PAGE, PAGE, 1);
    say("wrong: %zu; pages: %d\n", wrong, atomic_load(&opened));
    protect(PROT_READ);
    TRY(cuMemcpyDtoHAsync_v2(memory, data, SIZE, NULL));
    TRY(cuCtxSynchronize());
    say("wrong: %zu; pages: %d\n", differing(0, SIZE, 30), atomic_load(&opened));
    return 0;
}

/* Beside memory that host and device share, whose pages may be trapped by the same signal. */
static int beside_managed(void)
{
    CUdeviceptr managed;
    begin();
    TRY(cuMemAllocManaged(&managed, 16 * PAGE, CU_MEM_ATTACH_GLOBAL));
    volatile unsigned char *shared = (volatile unsigned char *)managed;
    for (int round = 0; round < 3; round++) {
        TRY(cuMemsetD8_v2(managed, (unsigned char)(round + 40), 16 * PAGE));
        TRY(cuMemsetD8_v2(data, (unsigned char)(round + 50), SIZE));
        TRY(cuCtxSynchronize());
        protect(PROT_READ);
        TRY(cuMemcpyDtoH_v2(memory, data, 20 * PAGE));
        TRY(cuMemcpyDtoH_v2(memory + 20 * PAGE, managed, 16 * PAGE));
        say("wrong: %zu %zu; shared: %d; pages: %d\n", differing(0, 20 * PAGE, (unsigned char)(round + 50)),
            differing(20 * PAGE, 16 * PAGE, (unsigned char)(round + 40)), shared[PAGE], atomic_load(&opened));
    }
    return 0;
}

const struct scenario scenarios[] = {
    {"written", written}, {"read_from", read_from}, {"in_rows", in_rows}, {"beside_managed", beside_managed},
    {NULL, NULL},
};
