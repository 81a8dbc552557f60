/*
 * copy.c - what PTX calls asynchronous: cp.async, copies and reductions in bulk, st.async, red.async. They
 * are made at once, which is one of the times at which they may be made, so that there is nothing to wait for
 * afterwards.
 */
#include "softgpu/compiler/codegen/memory/memory.h"
#include "softgpu/guest.h"

#define B gen->builder

/* cp.async [shared], [global], size{, source size}: what the source lacks is filled with zeros. */
static void copy_async(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef to = sg_gen_address(gen, &insn->operands[0], SG_MOD_SHARED);
    LLVMValueRef from = sg_gen_address(gen, &insn->operands[1], SG_MOD_GLOBAL);
    const struct sg_operand *size = &insn->operands[2];
    bool hint = SG_MOD(insn, SG_GROUP_CACHE_HINT) != 0;
    uint32_t n_operands = insn->n_operands - (hint ? 1u : 0u);
    if (size->kind != SG_OPERAND_INTEGER || (size->value != 4 && size->value != 8 && size->value != 16))
        sg_gen_fail(gen, "the size must be 4, 8 or 16");
    uint32_t bytes = (uint32_t)size->value;
    LLVMValueRef limit = sg_gen_const(gen, 32, bytes);
    sg_gen_access(gen, &insn->operands[0], to, SG_MOD_SHARED, bytes, SG_ACCESS_WRITE);
    if (n_operands <= 3)
        sg_gen_access(gen, &insn->operands[1], from, SG_MOD_GLOBAL, bytes, SG_ACCESS_READ);
    if (n_operands > 3) {
        const struct sg_operand *given = &insn->operands[3];
        bool predicate = given->kind == SG_OPERAND_REG && gen->function->regs[given->reg].type == SG_PRED;
        if (predicate) /* ignore-src */
            limit = sg_gen_select(gen, sg_gen_read(gen, given, SG_PRED), sg_gen_const(gen, 32, 0), limit);
        else
            limit = sg_gen_math(gen, "llvm.umin", sg_gen_read(gen, given, SG_U32), limit, NULL);
    }
    if (n_operands <= 3) {
        LLVMTypeRef type = sg_gen_int(gen, bytes * 8);
        LLVMValueRef value = LLVMBuildLoad2(B, type, from, "");
        LLVMSetAlignment(value, bytes);
        LLVMSetAlignment(LLVMBuildStore(B, value, to), bytes);
        return;
    }
    LLVMBuildMemSet(B, to, sg_gen_const(gen, 8, 0), sg_gen_const(gen, 32, bytes), 1);
    LLVMBuildMemCpy(B, to, 1, sg_gen_confined(gen, from), 1, limit);
}

/* --- in bulk: multiples of 16 bytes (of 8 for st.bulk), made at once --- */

/* Runs `turn` for 0, 1 … below `count` (of 64 bits). */
static void for_each(struct sg_codegen *gen, LLVMValueRef count,
                     void (*turn)(struct sg_codegen *gen, LLVMValueRef i, void *user), void *user)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(B), loop = sg_gen_block(gen, "each"),
                      done = sg_gen_block(gen, "");
    LLVMValueRef zero = sg_gen_const(gen, 64, 0);
    LLVMBuildCondBr(B, sg_gen_compare(gen, LLVMIntEQ, count, zero), done, loop);
    LLVMPositionBuilderAtEnd(B, loop);
    LLVMValueRef i = LLVMBuildPhi(B, gen->i64, "");
    turn(gen, i, user);
    LLVMValueRef next = LLVMBuildAdd(B, i, sg_gen_const(gen, 64, 1), "");
    LLVMAddIncoming(i, (LLVMValueRef[]){zero, next}, (LLVMBasicBlockRef[]){before, LLVMGetInsertBlock(B)}, 2);
    LLVMBuildCondBr(B, sg_gen_compare(gen, LLVMIntULT, next, count), loop, done);
    LLVMPositionBuilderAtEnd(B, done);
}

struct bulk {
    LLVMValueRef to, from, size; /* size of 32 bits */
    LLVMValueRef barrier;        /* the mbarrier that counts the bytes; NULL: none */
    LLVMValueRef mask;           /* of the blocks of a multicast, or of the bytes of each 16 */
};

static LLVMValueRef moved(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef distance)
{
    return LLVMBuildGEP2(B, gen->i8, pointer, &distance, 1, "");
}

/* The copy for block `rank` of the cluster: to the same place there, counted by its barrier. */
static void copy_to_block(struct sg_codegen *gen, LLVMValueRef rank, void *user)
{
    const struct bulk *bulk = user;
    LLVMValueRef to = sg_gen_in_window(gen, bulk->to, rank);
    LLVMBuildMemMove(B, sg_gen_confined(gen, to), 1, sg_gen_confined(gen, bulk->from), 1, bulk->size);
    sg_gen_complete_bytes(gen, sg_gen_in_window(gen, bulk->barrier, rank), bulk->size);
}

struct for_blocks {
    LLVMValueRef mask;
    void (*turn)(struct sg_codegen *gen, LLVMValueRef rank, void *user);
    void *user;
};

static void if_in_mask(struct sg_codegen *gen, LLVMValueRef rank, void *user)
{
    const struct for_blocks *blocks = user;
    LLVMBasicBlockRef there = sg_gen_block(gen, ""), next = sg_gen_block(gen, "");
    LLVMValueRef wanted = LLVMBuildTrunc(B, LLVMBuildLShr(B, blocks->mask, rank, ""), gen->i1, "");
    LLVMBuildCondBr(B, wanted, there, next);
    LLVMPositionBuilderAtEnd(B, there);
    blocks->turn(gen, rank, blocks->user);
    LLVMBuildBr(B, next);
    LLVMPositionBuilderAtEnd(B, next);
}

void sg_gen_for_blocks(struct sg_codegen *gen, LLVMValueRef mask,
                       void (*turn)(struct sg_codegen *gen, LLVMValueRef rank, void *user), void *user)
{
    struct for_blocks blocks = {mask, turn, user};
    LLVMValueRef count = sg_gen_special(gen, SG_SPECIAL_CLUSTER_NCTARANK, 0);
    for_each(gen, LLVMBuildZExt(B, count, gen->i64, ""), if_in_mask, &blocks);
}

/* One element of a reduction. */
static void reduce_element(struct sg_codegen *gen, LLVMValueRef i, void *user)
{
    const struct bulk *bulk = user;
    enum sg_type type = sg_gen_type_of(gen);
    LLVMValueRef distance = LLVMBuildMul(B, i, sg_gen_const(gen, 64, sg_type_bytes(type)), "");
    LLVMValueRef value = LLVMBuildLoad2(B, sg_gen_type(gen, type), moved(gen, bulk->from, distance), "");
    LLVMSetAlignment(value, sg_type_bytes(type));
    sg_gen_reduce(gen, moved(gen, bulk->to, distance), value);
}

/* Byte i of a copy that leaves out some of each 16. */
static void copy_byte(struct sg_codegen *gen, LLVMValueRef i, void *user)
{
    const struct bulk *bulk = user;
    LLVMBasicBlockRef wanted = sg_gen_block(gen, ""), next = sg_gen_block(gen, "");
    LLVMValueRef bit = LLVMBuildAnd(B, i, sg_gen_const(gen, 64, 15), "");
    LLVMBuildCondBr(B, LLVMBuildTrunc(B, LLVMBuildLShr(B, bulk->mask, bit, ""), gen->i1, ""), wanted, next);
    LLVMPositionBuilderAtEnd(B, wanted);
    LLVMBuildStore(B, LLVMBuildLoad2(B, gen->i8, moved(gen, bulk->from, i), ""), moved(gen, bulk->to, i));
    LLVMBuildBr(B, next);
    LLVMPositionBuilderAtEnd(B, next);
}

/*
 * The copy without the bytes at either end that are not to be read; what is there in the destination stays.
 */
static void copy_inner(struct sg_codegen *gen, const struct bulk *bulk)
{
    LLVMValueRef left = sg_gen_operand_u32(gen, 3);
    LLVMValueRef both = LLVMBuildAdd(B, left, sg_gen_operand_u32(gen, 4), "");
    LLVMValueRef none = LLVMBuildICmp(B, LLVMIntUGE, both, bulk->size, "");
    LLVMValueRef size =
        LLVMBuildSelect(B, none, sg_gen_const(gen, 32, 0), LLVMBuildSub(B, bulk->size, both, ""), "");
    LLVMValueRef distance = LLVMBuildZExt(B, left, gen->i64, "");
    LLVMBuildMemMove(B, sg_gen_confined(gen, moved(gen, bulk->to, distance)), 1,
                     sg_gen_confined(gen, moved(gen, bulk->from, distance)), 1, size);
}

/* cp.async.bulk and cp.reduce.async.bulk */
static void copy_bulk(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t to_space = sg_gen_space(gen);
    uint8_t from_space = SG_MOD(insn, SG_GROUP_FROM_BULK) == 1 ? SG_MOD_GLOBAL : SG_MOD_SHARED;
    bool ignores = SG_MOD(insn, SG_GROUP_IGNORE_OOB) != 0;
    struct bulk bulk = {.to = sg_gen_address(gen, &insn->operands[0], to_space),
                        .from = sg_gen_address(gen, &insn->operands[1], from_space),
                        .size = sg_gen_operand_u32(gen, 2)};
    sg_gen_access(gen, &insn->operands[0], bulk.to, to_space, 16, SG_ACCESS_WRITE);
    sg_gen_access(gen, &insn->operands[1], bulk.from, from_space, 16, SG_ACCESS_READ);
    if (SG_MOD(insn, SG_GROUP_COMPLETE) == 1)
        bulk.barrier = sg_gen_address(gen, &insn->operands[ignores ? 5 : 3], to_space);
    if (SG_MOD(insn, SG_GROUP_MULTICAST) != 0) {
        bulk.mask = LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[4], SG_U16), gen->i64, "");
        sg_gen_for_blocks(gen, bulk.mask, copy_to_block, &bulk);
        return;
    }
    LLVMValueRef bytes = LLVMBuildZExt(B, bulk.size, gen->i64, "");
    if (SG_MOD(insn, SG_GROUP_CP_MASK) != 0) {
        bulk.mask =
            LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[insn->n_operands - 1u], SG_U16), gen->i64, "");
        for_each(gen, bytes, copy_byte, &bulk);
    } else if (insn->form->op == SG_OP_CP_REDUCE_BULK) {
        for_each(
            gen,
            LLVMBuildUDiv(B, bytes, sg_gen_const(gen, 64, sg_type_bytes((enum sg_type)insn->types[0])), ""),
            reduce_element, &bulk);
    } else if (ignores) {
        copy_inner(gen, &bulk);
    } else {
        LLVMBuildMemMove(B, sg_gen_confined(gen, bulk.to), 1, sg_gen_confined(gen, bulk.from), 1, bulk.size);
    }
    if (bulk.barrier != NULL)
        sg_gen_complete_bytes(gen, bulk.barrier, bulk.size);
}

/* st.async, red.async: a store, or an operation, whose bytes an mbarrier of the block may count. */
static void store_async(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    const struct sg_operand *from = &insn->operands[1];
    uint32_t width = SG_MOD(insn, SG_GROUP_VEC) == 0 ? 1 : 1u << SG_MOD(insn, SG_GROUP_VEC);
    uint32_t bytes = sg_type_bytes(type);
    bool reduces = insn->form->op == SG_OP_RED_ASYNC;
    LLVMValueRef to = sg_gen_address(gen, &insn->operands[0], sg_gen_space(gen));
    sg_gen_access(gen, &insn->operands[0], to, sg_gen_space(gen), width * bytes,
                  reduces ? SG_ACCESS_ATOMIC : SG_ACCESS_WRITE);
    for (uint32_t i = 0; i < width; i++) {
        LLVMValueRef value = sg_gen_read(gen, width == 1 ? from : &from->items[i], type);
        LLVMValueRef place = moved(gen, to, sg_gen_const(gen, 64, (uint64_t)i * bytes));
        if (reduces) {
            sg_gen_reduce(gen, place, value);
            continue;
        }
        LLVMValueRef store = LLVMBuildStore(B, value, place);
        LLVMSetAlignment(store, bytes);
        if (insn->n_operands < 3) /* others look for it in global memory */
            LLVMSetOrdering(store, LLVMAtomicOrderingRelease);
    }
    if (insn->n_operands > 2)
        sg_gen_complete_bytes(gen, sg_gen_address(gen, &insn->operands[2], sg_gen_space(gen)),
                              sg_gen_const(gen, 32, width * bytes));
}

static void store_bulk(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t space = sg_gen_space(gen);
    LLVMValueRef to = sg_gen_address(gen, &insn->operands[0], space);
    if (insn->operands[2].kind != SG_OPERAND_INTEGER || insn->operands[2].value != 0)
        sg_gen_fail(gen, "the value must be 0");
    sg_gen_access(gen, &insn->operands[0], to, space, 8, SG_ACCESS_WRITE);
    LLVMValueRef size = sg_gen_read(gen, &insn->operands[1], SG_U64);
    if (gen->guarded) /* no farther than where nothing is; one that is undefined is some number */
        size = sg_gen_math(gen, "llvm.umin", LLVMBuildFreeze(B, size, ""),
                           sg_gen_const(gen, 64, SG_GUEST_SLACK / 2), NULL);
    LLVMBuildMemSet(B, sg_gen_confined(gen, to), sg_gen_const(gen, 8, 0), size, 1);
}

/*
 * clusterlaunchcontrol.try_cancel asks for a cluster that has not begun, to do its work. That may always
 * fail, and here it does: all clusters begin by themselves. The answer, which the other instructions read, is
 * 0.
 */
static void try_cancel(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t space = sg_gen_space(gen);
    LLVMValueRef to = sg_gen_address(gen, &insn->operands[0], space);
    if (SG_MOD(insn, SG_GROUP_COMPLETE) != 1 || (space != 0 && space != SG_MOD_SHARED))
        sg_gen_fail(gen, "not a form of this instruction");
    sg_gen_access(gen, &insn->operands[0], to, space, 16, SG_ACCESS_WRITE);
    LLVMSetAlignment(LLVMBuildStore(B, sg_gen_const(gen, 128, 0), to), 16);
    sg_gen_complete_bytes(gen, sg_gen_address(gen, &insn->operands[1], space), sg_gen_const(gen, 32, 16));
}

static void first_ctaid(struct sg_codegen *gen)
{
    const struct sg_operand *to = &gen->insn->operands[0];
    bool vector = to->kind == SG_OPERAND_VECTOR;
    if (vector != (SG_MOD(gen->insn, SG_GROUP_FIRST_CTAID) == 1) || (vector && to->count != 4))
        sg_gen_fail(gen, "not a form of this instruction");
    for (uint32_t i = 0; i < (vector ? 4u : 1u); i++)
        sg_gen_write(gen, vector ? &to->items[i] : to, SG_B32, sg_gen_const(gen, 32, 0));
}

LLVMValueRef sg_emit_copy(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_CP_ASYNC:
        copy_async(gen);
        return NULL;
    case SG_OP_CP_BULK:
    case SG_OP_CP_REDUCE_BULK:
        copy_bulk(gen);
        return NULL;
    case SG_OP_ST_ASYNC:
    case SG_OP_RED_ASYNC:
        store_async(gen);
        return NULL;
    case SG_OP_ST_BULK:
        store_bulk(gen);
        return NULL;
    case SG_OP_CP_ASYNC_STEP:
        return NULL;
    case SG_OP_TRY_CANCEL:
        try_cancel(gen);
        return NULL;
    case SG_OP_IS_CANCELED:
        sg_gen_write(gen, &gen->insn->operands[0], SG_PRED, sg_gen_const(gen, 1, 0));
        return NULL;
    case SG_OP_FIRST_CTAID:
        first_ctaid(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
