/* Handles: stale and foreign ones are told, kinds do not mix, slots are used again. */
#include "client/core/handle.h"

#include <criterion/criterion.h>

Test(handle, live_until_deleted)
{
    uint64_t stream = rg_handle_create(RG_KIND_STREAM);
    cr_assert_neq(stream, 0);
    cr_assert_eq(stream >> 47, 0);
    cr_assert_eq(rg_handle_kind(stream), RG_KIND_STREAM);
    cr_assert_not_null(rg_handle_shadow(RG_KIND_STREAM, stream));
    cr_assert_null(rg_handle_shadow(RG_KIND_EVENT, stream), "kinds do not mix");
    rg_handle_delete(RG_KIND_STREAM, stream);
    cr_assert_null(rg_handle_shadow(RG_KIND_STREAM, stream));
    uint64_t again = rg_handle_create(RG_KIND_STREAM);
    cr_assert_eq(rg_handle_index(again), rg_handle_index(stream), "the slot is used again");
    cr_assert_neq(again, stream);
    cr_assert_null(rg_handle_shadow(RG_KIND_STREAM, stream), "and the old handle is still stale");
}

Test(handle, anything_may_be_asked_about)
{
    static const uint64_t wild[] = {0, 3, 4096, UINT64_MAX, 0x7fff12345678, 0x1234567890abcdef};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++)
        for (int kind = 0; kind < RG_KIND_COUNT; kind++)
            cr_assert_null(rg_handle_shadow((enum rg_kind)kind, wild[i]));
    cr_assert(rg_handle_known(RG_KIND_STREAM, 0) && rg_handle_known(RG_KIND_STREAM, 2));
    cr_assert(!rg_handle_known(RG_KIND_STREAM, 3) && !rg_handle_known(RG_KIND_EVENT, 0));
}

Test(handle, functions_may_be_kernels)
{
    uint64_t kernel = rg_handle_create(RG_KIND_KERNEL);
    cr_assert(rg_handle_known(RG_KIND_FUNCTION, kernel));
    cr_assert(!rg_handle_known(RG_KIND_MODULE, kernel));
}

Test(handle, found_objects)
{
    uint64_t first = rg_handle_create(RG_KIND_POOL);
    uint64_t proposed = rg_handle_create(RG_KIND_POOL);
    cr_assert_eq(rg_handle_found(RG_KIND_POOL, proposed, first, CUDA_SUCCESS), CUDA_SUCCESS);
    cr_assert(!rg_handle_known(RG_KIND_POOL, proposed), "the proposal was not taken");
    cr_assert(rg_handle_known(RG_KIND_POOL, first));
    proposed = rg_handle_create(RG_KIND_POOL);
    cr_assert_eq(rg_handle_found(RG_KIND_POOL, proposed, 0, CUDA_ERROR_INVALID_DEVICE),
                 CUDA_ERROR_INVALID_DEVICE);
    cr_assert(!rg_handle_known(RG_KIND_POOL, proposed));
    proposed = rg_handle_create(RG_KIND_POOL);
    cr_assert_eq(rg_handle_found(RG_KIND_POOL, proposed, 0x1230, CUDA_SUCCESS), CUDA_ERROR_UNKNOWN);
}

Test(handle, thousands)
{
    enum { N = 5000 };
    static uint64_t handles[N];
    for (int i = 0; i < N; i++) {
        handles[i] = rg_handle_create(RG_KIND_EVENT);
        rg_handle_shadow(RG_KIND_EVENT, handles[i])->event.flags = (unsigned)i;
    }
    for (int i = 0; i < N; i++)
        cr_assert_eq(rg_handle_shadow(RG_KIND_EVENT, handles[i])->event.flags, (unsigned)i);
}
