/*
 * special.c - special registers. Those that do not change are read once, at the function's start.
 */
#include "softgpu/compiler/codegen/builder/builder.h"

static LLVMValueRef field(struct sg_codegen *gen, LLVMBuilderRef builder, LLVMValueRef base, size_t offset,
                          LLVMTypeRef type, bool invariant)
{
    LLVMValueRef index = sg_gen_const(gen, 64, offset);
    LLVMValueRef address = LLVMBuildGEP2(builder, gen->i8, base, &index, 1, "");
    LLVMValueRef load = LLVMBuildLoad2(builder, type, address, "");
    if (invariant)
        sg_gen_set_invariant(gen, load);
    if (invariant &&
        gen->access_group != NULL) /* or LLVM takes the loop for one whose turns depend on each other */
        LLVMSetMetadata(load, gen->access_group_kind, gen->access_group);
    return load;
}

static LLVMValueRef block_pointer(struct sg_codegen *gen)
{
    if (gen->block_pointer == NULL)
        gen->block_pointer = field(gen, gen->entry_builder, gen->thread, offsetof(struct sg_thread, block),
                                   gen->pointer, false);
    return gen->block_pointer;
}

LLVMValueRef sg_gen_block_field(struct sg_codegen *gen, size_t offset, LLVMTypeRef type)
{
    return field(gen, gen->entry_builder, block_pointer(gen), offset, type, true);
}

LLVMValueRef sg_gen_shared_base(struct sg_codegen *gen)
{
    if (gen->shared_base == NULL)
        gen->shared_base = sg_gen_block_field(gen, offsetof(struct sg_block, shared), gen->pointer);
    return gen->shared_base;
}

LLVMValueRef sg_gen_linear(struct sg_codegen *gen)
{
    return field(gen, gen->entry_builder, gen->thread, offsetof(struct sg_thread, linear), gen->i32, false);
}

static LLVMValueRef lane(struct sg_codegen *gen)
{
    return LLVMBuildAnd(gen->entry_builder, sg_gen_linear(gen), sg_gen_const(gen, 32, 31), "");
}

static LLVMValueRef mask(struct sg_codegen *gen, enum sg_special special)
{
    LLVMBuilderRef builder = gen->entry_builder;
    LLVMValueRef one = LLVMBuildShl(builder, sg_gen_const(gen, 32, 1), lane(gen), "");
    LLVMValueRef below = LLVMBuildSub(builder, one, sg_gen_const(gen, 32, 1), "");
    switch (special) {
    case SG_SPECIAL_LANEMASK_EQ:
        return one;
    case SG_SPECIAL_LANEMASK_LT:
        return below;
    case SG_SPECIAL_LANEMASK_LE:
        return LLVMBuildOr(builder, below, one, "");
    case SG_SPECIAL_LANEMASK_GE:
        return LLVMBuildNot(builder, below, "");
    default:
        return LLVMBuildNot(builder, LLVMBuildOr(builder, below, one, ""), "");
    }
}

/* The blocks of a cluster in one direction. */
static LLVMValueRef cluster_shape(struct sg_codegen *gen, uint32_t component)
{
    return sg_gen_block_field(gen, offsetof(struct sg_block, cluster_nctaid) + component * sizeof(uint32_t),
                              gen->i32);
}

static LLVMValueRef cluster_rank(struct sg_codegen *gen)
{
    LLVMBuilderRef builder = gen->entry_builder;
    LLVMValueRef rank = sg_gen_special(gen, SG_SPECIAL_CLUSTER_CTAID, 2);
    for (uint32_t i = 2; i-- > 0;)
        rank = LLVMBuildAdd(builder, LLVMBuildMul(builder, rank, cluster_shape(gen, i), ""),
                            sg_gen_special(gen, SG_SPECIAL_CLUSTER_CTAID, i), "");
    return rank;
}

/* Those that are fields of struct sg_block: words, or rows of them, or a number of 64 bits. */
static const struct {
    enum sg_special special;
    size_t offset;
    bool wide;
} block_fields[] = {
    {SG_SPECIAL_NTID, offsetof(struct sg_block, ntid), false},
    {SG_SPECIAL_CTAID, offsetof(struct sg_block, ctaid), false},
    {SG_SPECIAL_NCTAID, offsetof(struct sg_block, nctaid), false},
    {SG_SPECIAL_SMID, offsetof(struct sg_block, sm_id), false},
    {SG_SPECIAL_NSMID, offsetof(struct sg_block, n_sm), false},
    {SG_SPECIAL_GRIDID, offsetof(struct sg_block, grid_id), true},
    {SG_SPECIAL_TOTAL_SMEM_SIZE, offsetof(struct sg_block, shared_total), false},
    {SG_SPECIAL_AGGR_SMEM_SIZE, offsetof(struct sg_block, shared_total), false},
};

/* Values that stay the same while a thread runs. */
static LLVMValueRef constant_special(struct sg_codegen *gen, enum sg_special special, uint32_t component)
{
    LLVMBuilderRef builder = gen->entry_builder;
    size_t offset = component * sizeof(uint32_t);
    if (component == 3)
        return sg_gen_const(gen, 32,
                            special == SG_SPECIAL_NTID || special == SG_SPECIAL_NCTAID ||
                                special == SG_SPECIAL_NCLUSTERID || special == SG_SPECIAL_CLUSTER_NCTAID);
    for (size_t i = 0; i < sizeof(block_fields) / sizeof(block_fields[0]); i++)
        if (block_fields[i].special == special)
            return sg_gen_block_field(gen, block_fields[i].offset + offset,
                                      block_fields[i].wide ? gen->i64 : gen->i32);
    switch (special) {
    case SG_SPECIAL_TID:
        return field(gen, builder, gen->thread, offsetof(struct sg_thread, tid) + offset, gen->i32, false);
    case SG_SPECIAL_CLUSTERID:
        return LLVMBuildUDiv(builder, sg_gen_special(gen, SG_SPECIAL_CTAID, component),
                             cluster_shape(gen, component), "");
    case SG_SPECIAL_CLUSTER_CTAID:
        return LLVMBuildURem(builder, sg_gen_special(gen, SG_SPECIAL_CTAID, component),
                             cluster_shape(gen, component), "");
    case SG_SPECIAL_NCLUSTERID:
        return LLVMBuildUDiv(builder, sg_gen_special(gen, SG_SPECIAL_NCTAID, component),
                             cluster_shape(gen, component), "");
    case SG_SPECIAL_CLUSTER_NCTAID:
        return cluster_shape(gen, component);
    case SG_SPECIAL_CLUSTER_NCTARANK:
        return LLVMBuildMul(builder, cluster_shape(gen, 0),
                            LLVMBuildMul(builder, cluster_shape(gen, 1), cluster_shape(gen, 2), ""), "");
    case SG_SPECIAL_CLUSTER_CTARANK:
        return cluster_rank(gen);
    case SG_SPECIAL_IS_EXPLICIT_CLUSTER:
        return LLVMBuildTrunc(builder,
                              sg_gen_block_field(gen, offsetof(struct sg_block, cluster_explicit), gen->i32),
                              gen->i1, "");
    case SG_SPECIAL_LANEID:
        return lane(gen);
    case SG_SPECIAL_WARPID:
        return LLVMBuildLShr(builder, sg_gen_linear(gen), sg_gen_const(gen, 32, 5), "");
    case SG_SPECIAL_NWARPID: {
        LLVMValueRef threads = sg_gen_block_field(gen, offsetof(struct sg_block, n_threads), gen->i32);
        threads = LLVMBuildAdd(builder, threads, sg_gen_const(gen, 32, 31), "");
        return LLVMBuildLShr(builder, threads, sg_gen_const(gen, 32, 5), "");
    }
    case SG_SPECIAL_LANEMASK_EQ:
    case SG_SPECIAL_LANEMASK_LE:
    case SG_SPECIAL_LANEMASK_LT:
    case SG_SPECIAL_LANEMASK_GE:
    case SG_SPECIAL_LANEMASK_GT:
        return mask(gen, special);
    case SG_SPECIAL_DYNAMIC_SMEM_SIZE:
        return LLVMBuildSub(builder,
                            sg_gen_block_field(gen, offsetof(struct sg_block, shared_total), gen->i32),
                            sg_gen_block_field(gen, offsetof(struct sg_block, shared_static), gen->i32), "");
    default:
        return sg_gen_const(gen, 32, 0);
    }
}

static LLVMValueRef timer(struct sg_codegen *gen, const char *name, unsigned shift, bool narrow)
{
    LLVMValueRef value = sg_gen_runtime(gen, name, gen->i64, &gen->thread, 1);
    if (shift != 0)
        value = LLVMBuildLShr(gen->builder, value, sg_gen_const(gen, 64, shift), "");
    return narrow ? LLVMBuildTrunc(gen->builder, value, gen->i32, "") : value;
}

/* %envreg1 and 2: the halves of the address of the grid's workspace (cooperative launches). */
static LLVMValueRef environment(struct sg_codegen *gen, uint32_t number)
{
    if (number != 1 && number != 2)
        return sg_gen_const(gen, 32, 0);
    LLVMValueRef address = sg_gen_block_field(gen, offsetof(struct sg_block, grid_workspace), gen->i64);
    if (number == 1)
        address = LLVMBuildLShr(gen->entry_builder, address, sg_gen_const(gen, 64, 32), "");
    return LLVMBuildTrunc(gen->entry_builder, address, gen->i32, "");
}

LLVMValueRef sg_gen_special(struct sg_codegen *gen, enum sg_special special, uint32_t component)
{
    switch (special) {
    case SG_SPECIAL_CLOCK:
        return timer(gen, "sg_rt_clock", 0, true);
    case SG_SPECIAL_CLOCK_HI:
        return timer(gen, "sg_rt_clock", 32, true);
    case SG_SPECIAL_CLOCK64:
        return timer(gen, "sg_rt_clock", 0, false);
    case SG_SPECIAL_GLOBALTIMER:
        return timer(gen, "sg_rt_globaltimer", 0, false);
    case SG_SPECIAL_GLOBALTIMER_LO:
        return timer(gen, "sg_rt_globaltimer", 0, true);
    case SG_SPECIAL_GLOBALTIMER_HI:
        return timer(gen, "sg_rt_globaltimer", 32, true);
    case SG_SPECIAL_RESERVED_SMEM:
        return sg_gen_const(gen, 32,
                            component == SG_RESERVED_BEGIN ? gen->shared->reserved
                            : component == SG_RESERVED_END ? gen->shared->reserved + SG_SHARED_RESERVED
                                                           : SG_SHARED_RESERVED);
    case SG_SPECIAL_ENVREG:
        return environment(gen, component);
    default:
        break;
    }
    LLVMValueRef *known = &gen->specials[special][component];
    if (*known == NULL)
        *known = constant_special(gen, special, component);
    return *known;
}
