/* traits.c - the table of operations: what both sides go by is said once, and names find their operations. */
#include "generated/proto/ops.h"

#include <criterion/criterion.h>

Test(traits, names_find_their_operations)
{
    cr_assert_eq(rg_op_by_name("rgLaunch"), RG_OP_rgLaunch);
    cr_assert_eq(rg_op_by_name(rg_op_names[1]), 1);
    cr_assert_eq(rg_op_by_name("rgOfAnotherBuild"), RG_OP_NONE);
    cr_assert_eq(rg_op_by_name("none"), RG_OP_NONE);
    cr_assert_eq(rg_op_traits[RG_OP_NONE], 0);
}

Test(traits, what_is_idle_is_no_work)
{
    for (enum rg_op op = RG_OP_NONE + 1; op < RG_OP_COUNT; op++)
        cr_assert_neq(!(rg_op_traits[op] & RG_TRAIT_IDLE), !(rg_op_traits[op] & RG_TRAIT_WORK), "%s",
                      rg_op_names[op]);
    /* questions, and memory that no program ever had */
    static const enum rg_op idle[] = {RG_OP_cuMemGetInfo_v2, RG_OP_rgMemReturn, RG_OP_cuEventElapsedTime_v2,
                                      RG_OP_cuStreamQuery, RG_OP_rgThreadSetContext};
    for (unsigned i = 0; i < sizeof idle / sizeof *idle; i++)
        cr_assert(rg_op_traits[idle[i]] & RG_TRAIT_IDLE, "%s", rg_op_names[idle[i]]);
    cr_assert(rg_op_traits[RG_OP_rgLaunch] & RG_TRAIT_WORK);
    cr_assert(rg_op_traits[RG_OP_cuMemFree_v2] & RG_TRAIT_WORK);
}

Test(traits, data_of_copies_takes_credit)
{
    cr_assert(rg_op_traits[RG_OP_rgCopyIn] & RG_TRAIT_CREDIT);
    cr_assert(rg_op_traits[RG_OP_rgBoxIn] & RG_TRAIT_CREDIT);
    cr_assert_not(rg_op_traits[RG_OP_rgCopyInDeferred] & RG_TRAIT_CREDIT);
}
