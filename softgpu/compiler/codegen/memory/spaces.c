/*
 * spaces.c - cvta, isspacep, and addresses in other blocks of the cluster: mapa, getctarank.
 */
#include "softgpu/compiler/codegen/memory/memory.h"

#define B gen->builder

/* --- the windows of a cluster: see SG_WINDOW --- */

static LLVMValueRef wide_const(struct sg_codegen *gen, uint64_t value)
{
    return sg_gen_const(gen, 64, value);
}

static LLVMValueRef offset_of(struct sg_codegen *gen, LLVMValueRef address)
{
    return LLVMBuildAnd(B, address, wide_const(gen, SG_WINDOW - 1), "");
}

static LLVMValueRef window_of(struct sg_codegen *gen, LLVMValueRef address)
{
    return LLVMBuildLShr(B, address, wide_const(gen, SG_WINDOW_BITS), "");
}

/* The .shared::cluster address of a generic one; in the thread's own block the .shared address. */
static LLVMValueRef to_cluster(struct sg_codegen *gen, LLVMValueRef generic)
{
    LLVMValueRef own = LLVMBuildSub(B, generic, sg_gen_shared_address(gen), "");
    LLVMValueRef other = LLVMBuildSub(B, generic, sg_gen_cluster_base(gen), "");
    other = LLVMBuildAdd(B, other, wide_const(gen, SG_WINDOW), "");
    return sg_gen_select(gen, sg_gen_compare(gen, LLVMIntULT, own, wide_const(gen, SG_WINDOW)), own, other);
}

/* An address of the instruction's space and type, widened. */
static LLVMValueRef read_address(struct sg_codegen *gen, uint32_t operand)
{
    enum sg_type type = sg_gen_type_of(gen);
    LLVMValueRef value = sg_gen_read(gen, &gen->insn->operands[operand], type);
    return type == SG_U64 ? value : LLVMBuildZExt(B, value, gen->i64, "");
}

/* mapa: the same place in the shared memory of another block. */
static void map_address(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool window = SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    LLVMValueRef address = read_address(gen, 1);
    LLVMValueRef rank = LLVMBuildZExt(B, sg_gen_operand_u32(gen, 2), gen->i64, "");
    LLVMValueRef there = LLVMBuildShl(B, rank, wide_const(gen, SG_WINDOW_BITS), "");
    if (window)
        there = LLVMBuildAdd(B, there, wide_const(gen, SG_WINDOW), "");
    else
        there = LLVMBuildAdd(B, there, sg_gen_cluster_base(gen), "");
    LLVMValueRef offset =
        offset_of(gen, window ? address : LLVMBuildSub(B, address, sg_gen_cluster_base(gen), ""));
    LLVMValueRef value = LLVMBuildAdd(B, there, offset, "");
    sg_gen_result(gen, insn->types[0] == SG_U64 ? value : LLVMBuildTrunc(B, value, gen->i32, ""));
}

/* getctarank: whose shared memory an address is in. */
static void rank_of_address(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef address = read_address(gen, 1), rank;
    if (SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0) {
        LLVMValueRef mine = sg_gen_special(gen, SG_SPECIAL_CLUSTER_CTARANK, 0);
        LLVMValueRef window = LLVMBuildTrunc(B, window_of(gen, address), gen->i32, "");
        LLVMValueRef own = sg_gen_compare(gen, LLVMIntEQ, window, sg_gen_const(gen, 32, 0));
        rank = sg_gen_select(gen, own, mine, LLVMBuildSub(B, window, sg_gen_const(gen, 32, 1), ""));
    } else {
        LLVMValueRef offset = LLVMBuildSub(B, address, sg_gen_cluster_base(gen), "");
        rank = LLVMBuildTrunc(B, window_of(gen, offset), gen->i32, "");
    }
    sg_gen_write(gen, &insn->operands[0], SG_U32, rank);
}

/* --- cvta --- */

static LLVMValueRef params_address(struct sg_codegen *gen)
{
    return gen->guarded ? sg_gen_block_field(gen, offsetof(struct sg_block, guest_params), gen->i64)
                        : LLVMBuildPtrToInt(B, gen->params, gen->i64, "");
}

/* An address of 32 bits in .param space, which is an offset; what was taken as 64 bits is generic, and far above all offsets. */
static LLVMValueRef widened_param(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef narrow =
        sg_gen_compare(gen, LLVMIntULT, address, sg_gen_const(gen, 64, gen->function->params_size));
    return LLVMBuildSelect(B, narrow, LLVMBuildAdd(B, params_address(gen), address, ""), address, "");
}

/* One of 32 bits in .local or .const space; what was taken as 64 bits is far above all of these. */
static LLVMValueRef widened(struct sg_codegen *gen, LLVMValueRef address, uint8_t space)
{
    LLVMValueRef half = LLVMBuildTrunc(B, address, gen->i32, "");
    LLVMValueRef is_half = sg_gen_compare(gen, LLVMIntULE, address, sg_gen_const(gen, 64, UINT32_MAX));
    return sg_gen_select(gen, is_half, sg_gen_widened(gen, half, space), address);
}

static void convert_address(struct sg_codegen *gen)
{
    const struct sg_operand *from = &gen->insn->operands[1];
    bool to = SG_MOD(gen->insn, SG_GROUP_TO) != 0;
    if (SG_MOD(gen->insn, SG_GROUP_SPACE) == SG_MOD_PARAM && gen->function->narrow_params && !to) {
        sg_gen_result(gen, widened_param(gen, sg_gen_read(gen, from, SG_U64)));
        return;
    }
    uint8_t space = SG_MOD(gen->insn, SG_GROUP_SPACE);
    if (gen->module->narrow_addresses && (space == SG_MOD_LOCAL || space == SG_MOD_CONST) && !to) {
        sg_gen_result(gen, widened(gen, sg_gen_read(gen, from, SG_U64), space));
        return;
    }
    if (space != SG_MOD_SHARED) {
        if (!sg_gen_copy_pointer(gen))
            sg_gen_result(gen, sg_gen_read(gen, from, SG_U64));
        return;
    }
    LLVMValueRef value = sg_gen_read(gen, from, SG_U64);
    /* where other blocks of the cluster are looked at, both spaces have one window, as on a GPU */
    if (gen->reach->clustered)
        value = to ? to_cluster(gen, value)
                   : LLVMBuildPtrToInt(B, sg_gen_cluster_pointer(gen, value), gen->i64, "");
    else
        value = to ? LLVMBuildSub(B, value, sg_gen_shared_address(gen), "")
                   : LLVMBuildAdd(B, value, sg_gen_shared_address(gen), "");
    sg_gen_result(gen, value);
}

/* --- isspacep --- */

static LLVMValueRef in_shared(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef base = sg_gen_shared_address(gen);
    LLVMValueRef size = sg_gen_block_field(gen, offsetof(struct sg_block, shared_total), gen->i32);
    return sg_gen_in_range(gen, address, base, LLVMBuildZExt(B, size, gen->i64, ""));
}

/* In the shared memory of any block of the cluster. */
static LLVMValueRef in_cluster(struct sg_codegen *gen, LLVMValueRef address)
{
    if (!gen->reach->clustered)
        return in_shared(gen, address);
    LLVMValueRef distance = LLVMBuildSub(B, address, sg_gen_cluster_base(gen), "");
    LLVMValueRef blocks = LLVMBuildZExt(B, sg_gen_special(gen, SG_SPECIAL_CLUSTER_NCTARANK, 0), gen->i64, "");
    LLVMValueRef size = sg_gen_block_field(gen, offsetof(struct sg_block, shared_total), gen->i32);
    LLVMValueRef fits =
        sg_gen_compare(gen, LLVMIntULT, offset_of(gen, distance), LLVMBuildZExt(B, size, gen->i64, ""));
    return LLVMBuildAnd(B, fits, sg_gen_compare(gen, LLVMIntULT, window_of(gen, distance), blocks), "");
}

static LLVMValueRef in_const(struct sg_codegen *gen, LLVMValueRef address)
{
    LLVMValueRef value = sg_gen_const(gen, 1, 0);
    for (uint32_t i = 0; i < gen->module->n_vars; i++) {
        const struct sg_var *var = gen->module->vars[i];
        if (var->space == SG_SPACE_CONST)
            value = LLVMBuildOr(B, value,
                                sg_gen_in_range(gen, address, sg_gen_variable_address(gen, var, 0),
                                                sg_gen_const(gen, 64, var->size)),
                                "");
    }
    return value;
}

static void is_in_space(struct sg_codegen *gen)
{
    LLVMValueRef address = sg_gen_read(gen, &gen->insn->operands[1], SG_U64), value;
    switch (SG_MOD(gen->insn, SG_GROUP_SPACE)) {
    case SG_MOD_SHARED:
        value = SG_MOD(gen->insn, SG_GROUP_CLUSTER_WINDOW) != 0 ? in_cluster(gen, address)
                                                                : in_shared(gen, address);
        break;
    case SG_MOD_LOCAL:
        value = sg_gen_in_local(gen, address);
        break;
    case SG_MOD_CONST:
        value = in_const(gen, address);
        break;
    case SG_MOD_PARAM:
        if (!gen->function->is_entry)
            sg_gen_fail(gen, "isspacep.param is supported in kernels only");
        value = sg_gen_in_range(gen, address, params_address(gen),
                                sg_gen_const(gen, 64, gen->function->params_size));
        break;
    default:
        value =
            LLVMBuildNot(B, LLVMBuildOr(B, in_cluster(gen, address), sg_gen_in_local(gen, address), ""), "");
        break;
    }
    sg_gen_write(gen, &gen->insn->operands[0], SG_PRED, value);
}

LLVMValueRef sg_emit_space(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_CVTA:
        convert_address(gen);
        return NULL;
    case SG_OP_ISSPACEP:
        is_in_space(gen);
        return NULL;
    case SG_OP_MAPA:
        map_address(gen);
        return NULL;
    case SG_OP_GETCTARANK:
        rank_of_address(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
