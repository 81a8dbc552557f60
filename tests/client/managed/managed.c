/* Which addresses of a server's managed memory may have. The rest of the client is replaced by what is below. */
#include "client/managed/managed.h"

#include "client/core/address_map.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "common/cuda/advice.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

enum { PAGES = 8 };

static struct rg_session session;
static uint64_t pages;
static unsigned shared;

struct rg_session *rg_session_current(void)
{
    return &session;
}

static uint64_t context = 5;

uint64_t rg_context_current_owner(void)
{
    return context;
}

CUdevice rg_device_current(void)
{
    return 0;
}

bool rg_map_reserve(unsigned number, uint64_t start, uint64_t size)
{
    return number == 0 && start >= pages && start + size <= pages + PAGES * RG_PAGE;
}

bool rg_map_is_reserved(unsigned number, uint64_t start, uint64_t size)
{
    return rg_map_reserve(number, start, size);
}

bool rg_map_add(const struct rg_range *range)
{
    return range != NULL;
}

bool rg_map_remove(uint64_t start, unsigned kinds, struct rg_range *out)
{
    (void)out;
    return start && kinds;
}

void rg_advice_forget(uint64_t start, uint64_t size)
{
    (void)start, (void)size;
}

CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size)
{
    (void)kind;
    shared += start && size;
    return CUDA_SUCCESS;
}

void rg_unified_remove(uint64_t start, bool keep)
{
    shared -= start && !keep;
}

void rg_unified_leave_to_host(uint64_t start)
{
    (void)start;
}

void rg_unified_recall(uint64_t start, uint64_t size)
{
    (void)start, (void)size;
}

void rg_unified_drop_context(uint64_t of)
{
    (void)of;
}

CUresult rg_unified_begin_work(bool kernel, bool *begun)
{
    (void)kernel, (void)begun;
    return CUDA_SUCCESS;
}

static void begin(void)
{
    void *memory = mmap(NULL, PAGES * RG_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(memory != MAP_FAILED);
    pages = (uint64_t)(uintptr_t)memory;
}

static CUresult add(unsigned first, unsigned n)
{
    const uint64_t start = pages + first * RG_PAGE;
    return rg_managed_add(start, start, n * RG_PAGE);
}

TestSuite(managed, .init = begin);

Test(managed, is_beside_other)
{
    cr_expect_eq(add(2, 2), CUDA_SUCCESS);
    cr_expect_eq(add(0, 2), CUDA_SUCCESS);
    cr_expect_eq(add(4, 1), CUDA_SUCCESS);
    cr_expect_eq(shared, 3);
}

Test(managed, is_where_no_other_lives)
{
    cr_assert_eq(add(2, 2), CUDA_SUCCESS);
    *(volatile char *)(uintptr_t)(pages + 3 * RG_PAGE) = 7;
    cr_expect_eq(add(2, 2), CUDA_ERROR_OUT_OF_MEMORY, "the same");
    cr_expect_eq(add(3, 2), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(add(1, 2), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(add(0, PAGES), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(*(volatile char *)(uintptr_t)(pages + 3 * RG_PAGE), 7, "what the program has there stays");
    struct rg_managed_memory gone;
    cr_assert(rg_managed_remove(pages + 2 * RG_PAGE, &gone));
    cr_expect_eq(add(3, 2), CUDA_SUCCESS, "it is free again");
}

Test(managed, of_a_context_that_ends_is_given_again)
{
    cr_assert_eq(add(2, 2), CUDA_SUCCESS);
    rg_managed_before_end(5, false);
    context = 6; /* another thread's, which the server gives what the end has made free */
    cr_expect_eq(add(2, 2), CUDA_SUCCESS);
    rg_managed_drop_context(5);
    cr_expect_eq(shared, 1, "the new memory is still shared");
}

Test(managed, may_share_pages_with_variables)
{
    cr_assert_eq(rg_managed_variables(1, false, pages + RG_PAGE + 64, 64), CUDA_SUCCESS);
    cr_expect_eq(add(1, 1), CUDA_SUCCESS);
}
