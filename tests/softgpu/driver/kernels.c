/* kernels.c - the kernels that tests of the driver launch; see fake_program.h. */
#include "tests/softgpu/driver/kernels.h"

#include "tests/softgpu/driver/fake_program.h"

#include <string.h>
#include <time.h>

const char kernels_ptx[] =
    ".version 9.0\n.target sm_120\n.address_size 64\n"
    ".visible .global .align 8 .b8 table[64];\n"
    ".visible .entry add(\n.param .u64 p,\n.param .u32 n,\n.param .u32 x)\n{ret;}\n"
    ".visible .entry fault()\n{ret;}\n"
    ".visible .entry wait_flag(\n.param .u64 flag)\n{ret;}\n"
    ".visible .entry set_flag(\n.param .u64 flag,\n.param .u32 v)\n{ret;}\n"
    ".visible .entry small()\n.maxntid 64\n{ret;}\n"
    ".visible .entry exact()\n.reqntid 32\n{ret;}\n"
    ".visible .entry slow(\n.param .u32 ms)\n{ret;}\n"
    ".visible .entry count(\n.param .u64 p,\n.param .u32 n,\n.param .u64 flag)\n{ret;}\n"
    ".visible .entry no_code()\n{ret;}\n";

/* p[i] += x for i < n */
static void add(struct sg_block *block, const unsigned char *params)
{
    struct {
        uint32_t *p;
        uint32_t n, x;
    } a;
    memcpy(&a, params, sizeof a);
    for (uint32_t t = 0; t < block->n_threads; t++) {
        uint32_t i = block->ctaid[0] * block->ntid[0] + t;
        if (i < a.n)
            a.p[i] += a.x;
    }
}

static void fault(struct sg_block *block, const unsigned char *params)
{
    (void)params;
    struct sg_thread thread = {.block = block};
    sg_rt_fault(&thread, SG_FAULT_ILLEGAL_ADDRESS);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void wait_flag(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    uint32_t *flag;
    memcpy(&flag, params, sizeof flag);
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0)
        nap();
}

static void set_flag(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    struct {
        uint32_t *flag;
        uint32_t value;
    } a;
    memcpy(&a, params, sizeof(void *) + 4);
    __atomic_store_n(a.flag, a.value, __ATOMIC_RELEASE);
}

static void nothing(struct sg_block *block, const unsigned char *params)
{
    (void)block, (void)params;
}

static void slow(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    uint32_t ms;
    memcpy(&ms, params, sizeof ms);
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* Again and again p[0]++, … p[n - 1]++, until flag[0] is set; flag[1] says how often so far. */
static void count(struct sg_block *block, const unsigned char *params)
{
    (void)block;
    struct {
        uint32_t *p;
        uint32_t n;
        uint32_t *flag;
    } a;
    memcpy(&a, params, sizeof a);
    while (__atomic_load_n(a.flag, __ATOMIC_ACQUIRE) == 0) {
        for (uint32_t i = 0; i < a.n; i++)
            a.p[i]++;
        __atomic_fetch_add(&a.flag[1], 1, __ATOMIC_RELEASE);
    }
}

const struct fake_kernel fake_kernels[] = {
    {"add", add},           {"fault", fault},   {"wait_flag", wait_flag},
    {"set_flag", set_flag}, {"small", nothing}, {"exact", nothing},
    {"slow", slow},         {"count", count},   {NULL, NULL},
};
