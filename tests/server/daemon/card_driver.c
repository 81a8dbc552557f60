/*
 * card_driver.c - the software device as a card of 1 GiB that all processes share, and of which a context takes 256 MiB, as on a GPU:
 * of the device's own, each process has all the memory for itself, and a context takes none.
 *
 * The card is the file that CUDA_TEST_CARD names: what each process has, which goes with the process. Its other functions are the
 * software device's, which this library brings with it.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { PROCESSES = 32, BLOCKS = 64 };
static const uint64_t CARD = 1ull << 30, CONTEXT = 256ull << 20;

struct process {
    _Atomic int32_t pid;
    _Atomic uint64_t used;
};

static struct block {
    CUdeviceptr address;
    uint64_t size;
} blocks[BLOCKS];
static bool has_context;

/* This process's place on the card, and what others have. NULL: there is no card. */
static struct process *look(uint64_t *others)
{
    static struct process *card, *own;
    const char *path = getenv("CUDA_TEST_CARD");
    const int fd = card || !path ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, PROCESSES * sizeof *card) == 0) {
        card = mmap(NULL, PROCESSES * sizeof *card, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    *others = 0;
    for (int i = 0; card && i < PROCESSES; i++) {
        int32_t pid = atomic_load(&card[i].pid);
        if (pid == getpid() || (!own && (pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH)) &&
                                atomic_compare_exchange_strong(&card[i].pid, &pid, getpid()))) {
            if (!own)
                atomic_store(&card[i].used, 0);
            own = &card[i];
        } else if (pid && (kill(pid, 0) == 0 || errno != ESRCH)) {
            *others += atomic_load(&card[i].used);
        }
    }
    return own;
}

static bool take(uint64_t bytes)
{
    uint64_t others;
    struct process *own = look(&others);
    if (!own || others + atomic_load(&own->used) + bytes > CARD)
        return false;
    atomic_fetch_add(&own->used, bytes);
    return true;
}

/* By whose address the server's probe finds out which library it is. */
EXPORTED CUresult cuInit(unsigned int flags)
{
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(RTLD_NEXT, "cuInit");
    return init(flags);
}

/* By whose number it is found out that it is not the software device, whose memory is accounted for in another way. */
EXPORTED CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    (void)device;
    memset(uuid->bytes, 'c', sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    uint64_t others;
    const struct process *own = look(&others);
    *total = CARD;
    *available = own ? CARD - others - atomic_load(&own->used) : CARD;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = CARD;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRetain");
    if (!has_context && !take(CONTEXT))
        return CUDA_ERROR_OUT_OF_MEMORY;
    has_context = true;
    return retain(out, device);
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (!take(size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = allocate(out, size);
    for (int i = 0; result == CUDA_SUCCESS && i < BLOCKS; i++)
        if (!blocks[i].address) {
            blocks[i] = (struct block){*out, size};
            break;
        }
    return result;
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult (*release)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(RTLD_NEXT, "cuMemFree_v2");
    uint64_t others;
    struct process *own = look(&others);
    for (int i = 0; own && i < BLOCKS; i++)
        if (blocks[i].address && blocks[i].address == address) {
            atomic_fetch_sub(&own->used, blocks[i].size);
            blocks[i].address = 0;
        }
    return release(address);
}
