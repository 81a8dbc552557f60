/*
 * codegen_texture.c - textures and surfaces: calls of the engine, with coordinates and values by way of memory of the
 * function's frame.
 */
#include "softgpu/compiler/codegen.h"

#define B gen->builder

static LLVMValueRef frame_memory(struct sg_codegen *gen, unsigned size)
{
    LLVMValueRef memory = LLVMBuildAlloca(gen->entry_builder, LLVMArrayType(gen->i8, size), "");
    LLVMSetAlignment(memory, 16);
    return memory;
}

static LLVMValueRef element(struct sg_codegen *gen, LLVMValueRef memory, uint32_t offset)
{
    LLVMValueRef index = sg_gen_const(gen, 64, offset);
    return LLVMBuildGEP2(B, gen->i8, memory, &index, 1, "");
}

static void store_items(struct sg_codegen *gen, const struct sg_operand *vector, enum sg_type type,
                        LLVMValueRef memory)
{
    const uint32_t size = sg_type_bytes(type);
    for (uint32_t i = 0; i < vector->count; i++) {
        LLVMValueRef store =
            LLVMBuildStore(B, sg_gen_read(gen, &vector->items[i], type), element(gen, memory, i * size));
        LLVMSetAlignment(store, size);
    }
}

static void load_items(struct sg_codegen *gen, const struct sg_operand *vector, enum sg_type type,
                       LLVMValueRef memory)
{
    const uint32_t size = sg_type_bytes(type);
    for (uint32_t i = 0; i < vector->count; i++) {
        if (vector->items[i].kind == SG_OPERAND_SINK)
            continue;
        LLVMValueRef value = LLVMBuildLoad2(B, sg_gen_type(gen, type), element(gen, memory, i * size), "");
        LLVMSetAlignment(value, size);
        sg_gen_write(gen, &vector->items[i], type, value);
    }
}

static LLVMValueRef coordinates(struct sg_codegen *gen)
{
    LLVMValueRef memory = frame_memory(gen, 16);
    store_items(gen, &gen->insn->operands[1], SG_B32, memory);
    return memory;
}

bool sg_gen_texture(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    const enum sg_op op = insn->form->op;
    const enum sg_type type = (enum sg_type)insn->types[0];
    if (op != SG_OP_TEX && op != SG_OP_TXQ && op != SG_OP_SULD && op != SG_OP_SUST && op != SG_OP_SURED)
        return false;
    LLVMValueRef arguments[5] = {gen->thread, sg_gen_read(gen, &insn->operands[0], SG_B64),
                                 sg_gen_const(gen, 32, insn->texture)};
    if (op == SG_OP_TXQ) {
        LLVMValueRef value = sg_gen_runtime(gen, "sg_rt_txq", gen->i32, arguments, 3);
        sg_gen_write(gen, &insn->operands[1].items[0], SG_B32, value);
        return true;
    }
    const struct sg_operand *values = &insn->operands[2];
    arguments[3] = coordinates(gen);
    if (op == SG_OP_SURED) {
        LLVMValueRef value = sg_gen_read(gen, &values->items[0], type);
        arguments[4] = sg_type_bytes(type) == 8  ? value
                       : sg_type_is_signed(type) ? LLVMBuildSExt(B, value, gen->i64, "")
                                                 : LLVMBuildZExt(B, value, gen->i64, "");
        sg_gen_runtime(gen, "sg_rt_sured", gen->nothing, arguments, 5);
        return true;
    }
    LLVMValueRef memory = arguments[4] = frame_memory(gen, 16);
    if (op == SG_OP_SUST) {
        store_items(gen, values, type, memory);
        sg_gen_runtime(gen, "sg_rt_sust", gen->nothing, arguments, 5);
        return true;
    }
    sg_gen_runtime(gen, op == SG_OP_TEX ? "sg_rt_tex" : "sg_rt_suld", gen->nothing, arguments, 5);
    load_items(gen, values, type, memory);
    return true;
}
