/*
 * tensor.c - copies of boxes of tensors: calls of the engine, which does what the tensor map says, at once.
 * The operands are the map's address, the coordinates, the place in shared memory, and what the form has
 * besides: the mbarrier, the mask of a multicast (tensor.c).
 */
#include "softgpu/compiler/codegen/memory/memory.h"

#define B gen->builder

enum { MAP, COORDINATES, SHARED, BARRIER, MASK };

static LLVMValueRef coordinates(struct sg_codegen *gen)
{
    const struct sg_operand *vector = &gen->insn->operands[COORDINATES];
    LLVMValueRef memory = LLVMBuildAlloca(gen->entry_builder, LLVMArrayType(gen->i32, 5), "");
    for (uint32_t i = 0; i < vector->count; i++) {
        LLVMValueRef offset = sg_gen_const(gen, 64, i * sizeof(int32_t));
        LLVMValueRef place = LLVMBuildGEP2(B, gen->i8, memory, &offset, 1, "");
        LLVMSetAlignment(LLVMBuildStore(B, sg_gen_read(gen, &vector->items[i], SG_S32), place), 4);
    }
    return memory;
}

static uint32_t operation(const struct sg_insn *insn)
{
    static const uint8_t reductions[] = {
        [SG_ATOM_AND] = SG_TENSOR_AND, [SG_ATOM_OR] = SG_TENSOR_OR,   [SG_ATOM_XOR] = SG_TENSOR_XOR,
        [SG_ATOM_ADD] = SG_TENSOR_ADD, [SG_ATOM_INC] = SG_TENSOR_INC, [SG_ATOM_DEC] = SG_TENSOR_DEC,
        [SG_ATOM_MIN] = SG_TENSOR_MIN, [SG_ATOM_MAX] = SG_TENSOR_MAX};
    if (insn->form->op == SG_OP_CP_REDUCE_TENSOR)
        return reductions[SG_MOD(insn, SG_GROUP_ATOM)];
    return SG_MOD(insn, SG_GROUP_COMPLETE) == 1 ? SG_TENSOR_LOAD : SG_TENSOR_STORE;
}

struct tensor_copy {
    LLVMValueRef arguments[6], shared, barrier, mask;
};

static void copy_here(struct sg_codegen *gen, struct tensor_copy *copy, LLVMValueRef shared,
                      LLVMValueRef barrier)
{
    copy->arguments[4] = shared;
    LLVMValueRef bytes = sg_gen_runtime(gen, "sg_rt_tensor", gen->i32, copy->arguments, 6);
    if (barrier != NULL)
        sg_gen_complete_bytes(gen, barrier, bytes);
}

static void copy_to_block(struct sg_codegen *gen, LLVMValueRef rank, void *user)
{
    struct tensor_copy *copy = user;
    copy_here(gen, copy, sg_gen_in_window(gen, copy->shared, rank),
              sg_gen_in_window(gen, copy->barrier, rank));
}

static void copy_box(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool load = operation(insn) == SG_TENSOR_LOAD;
    uint8_t space = load ? sg_gen_space(gen) : SG_MOD_SHARED;
    struct tensor_copy copy = {.shared =
                                   sg_gen_as_guest(gen, sg_gen_address(gen, &insn->operands[SHARED], space))};
    sg_gen_access(gen, &insn->operands[SHARED], copy.shared, space, 16,
                  load ? SG_ACCESS_WRITE : SG_ACCESS_READ);
    copy.arguments[0] = gen->thread;
    copy.arguments[1] = sg_gen_const(gen, 32, operation(insn));
    copy.arguments[2] = sg_gen_const(gen, 32, SG_MOD(insn, SG_GROUP_DIMENSIONS));
    /* of whatever size the variables are that are named, the engine reads a whole map and goes over a whole box */
    copy.arguments[3] = sg_gen_as_guest(gen, sg_gen_address(gen, &insn->operands[MAP], 0));
    copy.arguments[5] = coordinates(gen);
    if (load)
        copy.barrier = sg_gen_address(gen, &insn->operands[BARRIER], space);
    if (SG_MOD(insn, SG_GROUP_MULTICAST) != 0) {
        LLVMValueRef mask = LLVMBuildZExt(B, sg_gen_read(gen, &insn->operands[MASK], SG_U16), gen->i64, "");
        sg_gen_for_blocks(gen, mask, copy_to_block, &copy);
    } else {
        copy_here(gen, &copy, copy.shared, copy.barrier);
    }
}

/* tensormap.cp_fenceproxy: a map that was made in shared memory to where copies find it. */
static void copy_map(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef to = sg_gen_address(gen, &insn->operands[0], SG_MOD_GLOBAL);
    LLVMValueRef from = sg_gen_address(gen, &insn->operands[1], SG_MOD_SHARED);
    if (insn->operands[2].kind != SG_OPERAND_INTEGER || insn->operands[2].value != 128)
        sg_gen_fail(gen, "the size must be 128");
    sg_gen_access(gen, &insn->operands[0], to, SG_MOD_GLOBAL, 16, SG_ACCESS_WRITE);
    sg_gen_access(gen, &insn->operands[1], from, SG_MOD_SHARED, 16, SG_ACCESS_READ);
    LLVMBuildMemCpy(B, sg_gen_confined(gen, to), 1, from, 1, sg_gen_const(gen, 64, 128));
    LLVMBuildFence(B, LLVMAtomicOrderingRelease, 0, "");
}

LLVMValueRef sg_emit_tensor(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    switch (insn->form->op) {
    case SG_OP_CP_TENSOR:
    case SG_OP_CP_REDUCE_TENSOR:
        copy_box(gen);
        return NULL;
    case SG_OP_CP_TENSOR_PREFETCH:
        return NULL;
    case SG_OP_TENSORMAP_COPY:
        copy_map(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
