/*
 * tensor.c - copies of boxes of tensors: calls of the engine, which does what the tensor map says, at once.
 * The operands are the map's address, the coordinates, the place in shared memory, and what the form has
 * besides: the mbarrier, the mask of a multicast (tensor.c).
 */
#include "softgpu/compiler/codegen/memory/memory.h"
#include "softgpu/tensor_map.h"

#include <stddef.h>

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

/* --- tensormap.replace --- */

#define FIELD(field) offsetof(struct sg_tensor_map, field), sizeof(((struct sg_tensor_map *)NULL)->field) * 8

/* The API's number of a type of elements that PTX has another one for. */
static LLVMValueRef api_type(struct sg_codegen *gen, LLVMValueRef value)
{
    static const uint8_t types[16] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13, 14, 15};
    if (LLVMIsAConstantInt(value) == NULL || LLVMConstIntGetZExtValue(value) >= sizeof(types))
        sg_gen_fail(gen, "the type of elements must be a number from 0 to 15");
    return sg_gen_const(gen, 32, types[LLVMConstIntGetZExtValue(value)]);
}

static void set_field(struct sg_codegen *gen, LLVMValueRef map, size_t offset, size_t bits,
                      LLVMValueRef value)
{
    LLVMValueRef distance = sg_gen_const(gen, 64, offset);
    LLVMTypeRef type = sg_gen_int(gen, (unsigned)bits);
    if (LLVMGetIntTypeWidth(LLVMTypeOf(value)) > bits)
        value = LLVMBuildTrunc(B, value, type, "");
    LLVMSetAlignment(LLVMBuildStore(B, value, LLVMBuildGEP2(B, gen->i8, map, &distance, 1, "")), 1);
}

/* One of the fields that each dimension has; dimensions that a tensor cannot have are refused. */
static void replace_of_dimension(struct sg_codegen *gen, LLVMValueRef map)
{
    const struct sg_insn *insn = gen->insn;
    const struct sg_operand *number = &insn->operands[1];
    uint8_t field = SG_MOD(insn, SG_GROUP_MAP_DIMENSION);
    bool wide = field == SG_GLOBAL_STRIDE;
    if (number->kind != SG_OPERAND_INTEGER || number->value > (wide ? 3 : 4))
        sg_gen_fail(gen, "a tensor has no such dimension");
    if (wide && gen->module->version < 86)
        sg_gen_fail(gen, "what strides are counted in is not certain before PTX 8.6");
    size_t i = (size_t)number->value;
    LLVMValueRef value = sg_gen_read(gen, &insn->operands[2], wide ? SG_B64 : SG_B32);
    if (field == SG_BOX_DIM)
        set_field(gen, map, FIELD(box[i]), value);
    else if (field == SG_GLOBAL_DIM)
        set_field(gen, map, FIELD(last[i]), LLVMBuildSub(B, value, sg_gen_const(gen, 32, 1), ""));
    else if (field == SG_GLOBAL_STRIDE)
        set_field(gen, map, FIELD(strides[i]), value);
    else
        set_field(gen, map, FIELD(steps[i]), value);
}

static void replace_of_tensor(struct sg_codegen *gen, LLVMValueRef map)
{
    uint8_t field = SG_MOD(gen->insn, SG_GROUP_MAP_FIELD);
    LLVMValueRef value =
        sg_gen_read(gen, &gen->insn->operands[1], field == SG_GLOBAL_ADDRESS ? SG_B64 : SG_B32);
    switch (field) {
    case SG_GLOBAL_ADDRESS:
        set_field(gen, map, FIELD(address), value);
        return;
    case SG_RANK: /* given as one less */
        set_field(gen, map, FIELD(rank), LLVMBuildAdd(B, value, sg_gen_const(gen, 32, 1), ""));
        return;
    case SG_ELEMTYPE:
        set_field(gen, map, FIELD(type), api_type(gen, value));
        return;
    case SG_INTERLEAVE_LAYOUT:
        set_field(gen, map, FIELD(interleave), value);
        return;
    case SG_SWIZZLE_MODE:
        set_field(gen, map, FIELD(swizzle), value);
        return;
    default:
        set_field(gen, map, FIELD(fill), value);
    }
}

/* A map may be made of zeros in this way: so every field that is replaced marks it as one. */
static void replace(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    bool of_dimension = SG_MOD(insn, SG_GROUP_MAP_DIMENSION) != 0;
    bool wide = of_dimension ? SG_MOD(insn, SG_GROUP_MAP_DIMENSION) == SG_GLOBAL_STRIDE
                             : SG_MOD(insn, SG_GROUP_MAP_FIELD) == SG_GLOBAL_ADDRESS;
    if ((insn->types[0] == SG_B64) != wide)
        sg_gen_fail(gen, "the field is of another size");
    LLVMValueRef map = sg_gen_address(gen, &insn->operands[0], space);
    sg_gen_access(gen, &insn->operands[0], map, space, 16, SG_ACCESS_WRITE);
    set_field(gen, map, FIELD(magic), sg_gen_const(gen, 32, SG_TENSOR_MAGIC));
    if (of_dimension)
        replace_of_dimension(gen, map);
    else
        replace_of_tensor(gen, map);
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
    case SG_OP_TENSORMAP_REPLACE:
        replace(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
