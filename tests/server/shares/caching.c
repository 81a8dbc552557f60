/*
 * caching.c - a program that takes device memory as a framework's caching allocator does: in segments of 2 and 20 MiB, from which it cuts
 * blocks, merges them again, and which it gives back when there is no more.
 *
 * usage: caching segments|ordered|expandable
 *
 * The segments are cuMemAlloc's; or each block is one of cuMemAllocAsync's, in a pool that keeps everything; or the segments grow by
 * mapping memory (cuMemCreate) behind what they have. A few "training steps" allocate and free blocks of 512 bytes to 12 MiB in an order
 * that is always the same, and check that no block's content is another's. It says what it had, and ends with status 3 when it runs out
 * of memory after having given back what it kept.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB           1024ull
#define MIB           (1024 * KIB)
#define SMALL         (1 * MIB) /* blocks up to here are cut from small segments */
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define OWN_SEGMENT   (10 * MIB) /* larger blocks have a segment of their own */
#define UNIT          512ull
#define SPLIT_LARGE   (1 * MIB)    /* what is left of a large block is cut off if it is more */
#define RANGE         (1024 * MIB) /* addresses of an expandable segment */
enum { BLOCKS_MAX = 4096, LIVE = 24, STEPS = 3, PER_STEP = 60, CHUNKS_MAX = 512 };

struct block {
    CUdeviceptr address;
    size_t size;
    unsigned segment;
    bool used, small;
};

enum way { SEGMENTS, ORDERED, EXPANDABLE };

static enum way way;
static struct block blocks[BLOCKS_MAX]; /* of a segment in the order of their addresses, one after another */
static unsigned n_blocks, n_segments;
static size_t reserved, most_reserved;

static void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    exit(2);
}
#define CHECK(call) must(call, #call)

/* False: there is no more. */
static bool had(CUresult result, const char *call)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        must(result, call);
    return result == CUDA_SUCCESS;
}

static void count(size_t more)
{
    reserved += more;
    most_reserved = reserved > most_reserved ? reserved : most_reserved;
}

static void insert(unsigned at, struct block block)
{
    if (n_blocks == BLOCKS_MAX)
        exit(2);
    memmove(&blocks[at + 1], &blocks[at], (n_blocks - at) * sizeof *blocks);
    blocks[at] = block;
    n_blocks++;
}

static void drop(unsigned at)
{
    n_blocks--;
    memmove(&blocks[at], &blocks[at + 1], (n_blocks - at) * sizeof *blocks);
}

/* --- segments that grow: one of each kind, by pieces that are mapped one behind the other ------------------------- */

static struct grown {
    CUdeviceptr base;
    size_t size, piece;
    unsigned n;
    CUmemGenericAllocationHandle handles[CHUNKS_MAX];
} grown[2];

static bool grow(bool small)
{
    struct grown *of = &grown[small];
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    of->piece = small ? SMALL_SEGMENT : LARGE_SEGMENT;
    if (!of->base)
        CHECK(cuMemAddressReserve(&of->base, RANGE, 0, 0, 0));
    if (of->n == CHUNKS_MAX || of->size + of->piece > RANGE)
        exit(2);
    if (!had(cuMemCreate(&of->handles[of->n], of->piece, &properties, 0), "cuMemCreate"))
        return false;
    CHECK(cuMemMap(of->base + of->size, of->piece, 0, of->handles[of->n], 0));
    CHECK(cuMemSetAccess(of->base + of->size, of->piece, &access, 1));
    unsigned at = 0;
    while (at < n_blocks && (blocks[at].segment != (unsigned)small || blocks[at].address < of->base))
        at++;
    unsigned last = at;
    while (last < n_blocks && blocks[last].segment == (unsigned)small)
        last++;
    if (last > at && !blocks[last - 1].used)
        blocks[last - 1].size += of->piece;
    else
        insert(last, (struct block){of->base + of->size, of->piece, (unsigned)small, false, small});
    of->size += of->piece;
    of->n++;
    count(of->piece);
    return true;
}

/* Unmaps what is free at the end. */
static void shrink(bool small)
{
    struct grown *of = &grown[small];
    for (unsigned i = n_blocks; i-- > 0;) {
        struct block *last = &blocks[i];
        if (last->segment != (unsigned)small || last->address + last->size != of->base + of->size)
            continue;
        while (!last->used && last->size >= of->piece) {
            of->size -= of->piece;
            CHECK(cuMemUnmap(of->base + of->size, of->piece));
            CHECK(cuMemRelease(of->handles[--of->n]));
            last->size -= of->piece;
            reserved -= of->piece;
        }
        if (!last->size)
            drop(i);
        return;
    }
}

/* --- segments ------------------------------------------------------------------------------------------------------ */

/* A new segment in which a block of that size fits. */
static bool add_segment(size_t size, bool small)
{
    const size_t wanted = small                ? SMALL_SEGMENT
                          : size < OWN_SEGMENT ? LARGE_SEGMENT
                                               : (size + 2 * MIB - 1) & ~(2 * MIB - 1);
    CUdeviceptr address;
    if (!had(cuMemAlloc_v2(&address, wanted), "cuMemAlloc"))
        return false;
    insert(n_blocks, (struct block){address, wanted, n_segments++, false, small});
    count(wanted);
    return true;
}

/* Gives back segments that are one free block. False: there was none. */
static bool give_back(void)
{
    const size_t before = reserved;
    if (way == EXPANDABLE) {
        shrink(false);
        shrink(true);
        return reserved < before;
    }
    for (unsigned i = n_blocks; i-- > 0;) {
        const bool first = i == 0 || blocks[i - 1].segment != blocks[i].segment,
                   last = i + 1 == n_blocks || blocks[i + 1].segment != blocks[i].segment;
        if (blocks[i].used || !first || !last)
            continue;
        CHECK(cuMemFree_v2(blocks[i].address));
        reserved -= blocks[i].size;
        drop(i);
    }
    return reserved < before;
}

/* --- blocks -------------------------------------------------------------------------------------------------------- */

/* The smallest that fits; -1: there is none. */
static int find(size_t size, bool small)
{
    int best = -1;
    for (unsigned i = 0; i < n_blocks; i++)
        if (!blocks[i].used && blocks[i].small == small && blocks[i].size >= size &&
            (best < 0 || blocks[i].size < blocks[best].size))
            best = (int)i;
    return best;
}

static CUdeviceptr cut(unsigned at, size_t size, bool small)
{
    struct block *block = &blocks[at];
    const size_t rest = block->size - size;
    if (rest >= (small ? UNIT : SPLIT_LARGE + 1)) {
        struct block behind = *block;
        behind.address += size;
        behind.size = rest;
        block->size = size;
        insert(at + 1, behind);
    }
    blocks[at].used = true;
    return blocks[at].address;
}

static CUdeviceptr take(size_t wanted)
{
    const size_t size = (wanted + UNIT - 1) & ~(UNIT - 1);
    const bool small = size <= SMALL;
    CUdeviceptr address;
    if (way == ORDERED) {
        CUmemoryPool pool;
        if (had(cuMemAllocAsync(&address, size, NULL), "cuMemAllocAsync"))
            return address;
        CHECK(cuCtxSynchronize());
        CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cuMemPoolTrimTo(pool, 0));
        return had(cuMemAllocAsync(&address, size, NULL), "cuMemAllocAsync") ? address : 0;
    }
    for (;;) {
        const int at = find(size, small);
        if (at >= 0)
            return cut((unsigned)at, size, small);
        const bool more = way == EXPANDABLE ? grow(small) : add_segment(size, small);
        if (!more && !give_back())
            return 0;
    }
}

static void merge(unsigned at)
{
    if (at + 1 >= n_blocks || blocks[at].used || blocks[at + 1].used ||
        blocks[at].segment != blocks[at + 1].segment)
        return;
    blocks[at].size += blocks[at + 1].size;
    drop(at + 1);
}

static void put_back(CUdeviceptr address)
{
    if (way == ORDERED) {
        CHECK(cuMemFreeAsync(address, NULL));
        return;
    }
    for (unsigned i = 0; i < n_blocks; i++)
        if (blocks[i].used && blocks[i].address == address) {
            blocks[i].used = false;
            merge(i);
            if (i > 0)
                merge(i - 1);
            return;
        }
    exit(2);
}

/* --- what is done with them ---------------------------------------------------------------------------------------- */

static uint32_t random_state = 1;

static uint32_t next(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

static size_t some_size(void)
{
    switch (next(4)) {
    case 0:
        return 512 * (1 + next(16));
    case 1:
        return KIB * (1 + next(1000));
    case 2:
        return MIB + KIB * next(4000);
    default:
        return 6 * MIB + 64 * KIB * next(100);
    }
}

static struct tensor {
    CUdeviceptr address;
    size_t size;
    unsigned char value;
} tensors[LIVE];

static void check(const struct tensor *tensor)
{
    unsigned char ends[2];
    CHECK(cuMemcpyDtoH_v2(&ends[0], tensor->address, 1));
    CHECK(cuMemcpyDtoH_v2(&ends[1], tensor->address + tensor->size - 1, 1));
    if (ends[0] == tensor->value && ends[1] == tensor->value)
        return;
    printf("a block has the content of another\n");
    exit(1);
}

static void step(int number)
{
    for (int i = 0; i < PER_STEP; i++) {
        struct tensor *tensor = &tensors[next(LIVE)];
        if (tensor->address) {
            check(tensor);
            put_back(tensor->address);
        }
        *tensor = (struct tensor){.size = some_size(), .value = (unsigned char)(number * PER_STEP + i)};
        tensor->address = take(tensor->size);
        if (!tensor->address) {
            printf("out of memory\n");
            exit(3);
        }
        CHECK(cuMemsetD8_v2(tensor->address, tensor->value, tensor->size));
    }
    printf("step %d: %zu MiB\n", number, reserved >> 20);
}

int main(int argc, char **argv)
{
    CUcontext context;
    const char *const names[] = {"segments", "ordered", "expandable"};
    int found = -1;
    for (int i = 0; argc == 2 && i < 3; i++)
        if (strcmp(argv[1], names[i]) == 0)
            found = i;
    if (found < 0)
        return 2;
    way = (enum way)found;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    if (way == ORDERED) {
        CUmemoryPool pool;
        cuuint64_t all = UINT64_MAX;
        CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    for (int i = 0; i < STEPS; i++)
        step(i);
    for (unsigned i = 0; i < LIVE; i++)
        if (tensors[i].address) {
            check(&tensors[i]);
            put_back(tensors[i].address);
        }
    if (way != ORDERED)
        (void)give_back();
    CHECK(cuCtxSynchronize());
    printf("at most %zu MiB, %zu left\n", most_reserved >> 20, reserved >> 20);
    return 0;
}
