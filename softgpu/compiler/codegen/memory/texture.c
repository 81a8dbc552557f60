/*
 * texture.c - textures and surfaces: calls of the engine, with coordinates and values by way of memory of the
 * function's frame.
 *
 * Plain fetches, of which kernels make many, call a function that the texture itself brings
 * (softgpu/exec/texture/texture.h): all that can be decided when a texture is made is decided then, and
 * coordinates and texels stay in registers. Finding the texture depends on its handle alone, so LLVM does it
 * once for a loop.
 */
#include "softgpu/exec/texture/texture.h"
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"
#include "softgpu/compiler/codegen/memory/memory.h"

#include <stddef.h>
#include <string.h>

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

/* The words that go to the engine: coordinates, then what the operation has besides (kernel_abi.h). */
static LLVMValueRef words(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef memory = frame_memory(gen, 4 * SG_TEX_WORDS);
    store_items(gen, &insn->operands[1], SG_B32, memory);
    if (insn->form->op != SG_OP_TEX)
        return memory;
    const uint32_t end = insn->n_operands - (insn->texture & SG_TEX_RESIDENT ? 1u : 0u);
    const uint32_t extra = end - (insn->texture & SG_TEX_OFFSET ? 1u : 0u);
    for (uint32_t i = 3; i < extra; i++)
        store_items(gen, &insn->operands[i], SG_B32, element(gen, memory, 16 * (i - 2)));
    if (extra < end)
        store_items(gen, &insn->operands[extra], SG_B32, element(gen, memory, 48));
    return memory;
}

/* The texture of a handle: never NULL, and the same while a kernel runs: it may be computed anywhere. */
static LLVMValueRef find_texture(struct sg_codegen *gen, LLVMValueRef handle)
{
    static const char name[] = "sg_rt_texture";
    LLVMTypeRef type = LLVMFunctionType(gen->pointer, &gen->i64, 1, 0);
    LLVMValueRef function = LLVMGetNamedFunction(gen->llvm, name);
    if (function == NULL) {
        function = LLVMAddFunction(gen->llvm, name, type);
        sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "nounwind", 0);
        sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "willreturn", 0);
        sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "speculatable", 0);
        sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "memory", 0);
        sg_gen_add_attribute(gen, function, LLVMAttributeReturnIndex, "nonnull", 0);
        sg_gen_add_attribute(gen, function, LLVMAttributeReturnIndex, "dereferenceable",
                             sizeof(struct sg_texture));
        sg_gen_add_attribute(gen, function, LLVMAttributeReturnIndex, "align", _Alignof(struct sg_texture));
    }
    return LLVMBuildCall2(B, type, function, &handle, 1, "");
}

static LLVMValueRef half_of(struct sg_codegen *gen, LLVMValueRef channel)
{
    return sg_gen_f32_to_half(gen, LLVMBuildBitCast(B, channel, gen->f32, ""), SG_RN);
}

/* What was fetched, four words, goes to the results; all of it is resident. */
static void write_texel(struct sg_codegen *gen, LLVMValueRef texel)
{
    const struct sg_insn *insn = gen->insn;
    const enum sg_type type = sg_gen_type_of(gen);
    const struct sg_operand *values = &insn->operands[2];
    for (unsigned i = 0; i < values->count; i++) {
        if (values->items[i].kind == SG_OPERAND_SINK)
            continue;
        const unsigned first = type == SG_F16X2 ? 2 * i : i;
        LLVMValueRef value = LLVMBuildExtractElement(B, texel, sg_gen_const(gen, 32, first), "");
        if (type == SG_F16X2) {
            LLVMValueRef upper = LLVMBuildExtractElement(B, texel, sg_gen_const(gen, 32, first + 1), "");
            upper = LLVMBuildZExt(B, half_of(gen, upper), gen->i32, "");
            value = LLVMBuildOr(B, LLVMBuildZExt(B, half_of(gen, value), gen->i32, ""),
                                LLVMBuildShl(B, upper, sg_gen_const(gen, 32, 16), ""), "");
        } else if (type == SG_F16) {
            value = half_of(gen, value);
        } else if (type == SG_F32) {
            value = LLVMBuildBitCast(B, value, gen->f32, "");
        }
        sg_gen_write(gen, &values->items[i], type, value);
    }
    const struct sg_operand *last = &insn->operands[insn->n_operands - 1];
    if (insn->texture & SG_TEX_RESIDENT && last->kind != SG_OPERAND_SINK)
        sg_gen_write(gen, last, SG_PRED, LLVMConstInt(gen->i1, 1, false));
}

/* A fetch by a function of the texture. False: it has none for this operation. */
static bool gen_direct(struct sg_codegen *gen, LLVMValueRef handle)
{
    static const struct {
        uint8_t dimensions;
        bool layered;
    } geometries[] = {[SG_TEX_1D] = {1, false},
                      [SG_TEX_2D] = {2, false},
                      [SG_TEX_3D] = {3, false},
                      [SG_TEX_A1D] = {1, true},
                      [SG_TEX_A2D] = {2, true}};
    const struct sg_insn *insn = gen->insn;
    const uint32_t geometry = insn->texture & SG_TEX_GEOMETRY;
    if (insn->texture & ~(SG_TEX_GEOMETRY | SG_TEX_INTEGER | SG_TEX_RESIDENT) || geometry >= SG_TEX_CUBE)
        return false;
    const bool integer = insn->texture & SG_TEX_INTEGER, layered = geometries[geometry].layered;
    const unsigned dimensions = geometries[geometry].dimensions;
    const struct sg_operand *coordinates = insn->operands[1].items;
    LLVMTypeRef number = integer ? gen->i32 : gen->f32, result = LLVMVectorType(gen->i32, 4);
    LLVMTypeRef types[6] = {gen->pointer, gen->pointer, number, number, number, gen->i32};
    LLVMValueRef texture = find_texture(gen, handle);
    LLVMValueRef arguments[6] = {gen->thread, texture};
    for (unsigned d = 0; d < 3; d++)
        arguments[2 + d] = d < dimensions
                               ? sg_gen_read(gen, &coordinates[layered + d], integer ? SG_B32 : SG_F32)
                               : LLVMConstNull(number);
    arguments[5] = layered ? sg_gen_read(gen, &coordinates[0], SG_B32) : LLVMConstNull(gen->i32);
    const size_t table = integer ? offsetof(struct sg_texture, fetch) : offsetof(struct sg_texture, sample);
    LLVMValueRef place = element(gen, texture, (uint32_t)(table + (dimensions - 1) * sizeof(void *)));
    LLVMValueRef function = LLVMBuildLoad2(B, gen->pointer, place, "");
    sg_gen_set_invariant(gen, function);
    LLVMValueRef texel = LLVMBuildCall2(B, LLVMFunctionType(result, types, 6, 0), function, arguments, 6, "");
    LLVMAddCallSiteAttribute(
        texel, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
        LLVMCreateEnumAttribute(gen->context, LLVMGetEnumAttributeKindForName("nounwind", 8), 0));
    write_texel(gen, texel);
    return true;
}

static LLVMValueRef handle_of(struct sg_codegen *gen)
{
    const struct sg_operand *operand = &gen->insn->operands[0];
    LLVMValueRef value = sg_gen_read(gen, operand, SG_B64);
    if (operand->kind != SG_OPERAND_VAR)
        return value;
    /* a reference: what is bound does not change while a kernel runs */
    value = LLVMBuildLoad2(B, gen->i64, LLVMBuildIntToPtr(B, value, gen->guest, ""), "");
    sg_gen_set_invariant(gen, value);
    return value;
}

LLVMValueRef sg_emit_texture(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    const enum sg_op op = insn->form->op;
    const enum sg_type type = sg_gen_type_of(gen);
    LLVMValueRef arguments[5] = {gen->thread, handle_of(gen), sg_gen_const(gen, 32, insn->texture)};
    if (op == SG_OP_TEX && gen_direct(gen, arguments[1]))
        return NULL;
    if (op == SG_OP_TXQ) {
        if (insn->n_operands > 2) { /* of a level; all that are too high are the same */
            LLVMValueRef level = sg_gen_read(gen, &insn->operands[2].items[0], SG_B32);
            LLVMValueRef most = sg_gen_const(gen, 32, 255);
            level = LLVMBuildSelect(B, LLVMBuildICmp(B, LLVMIntULT, level, most, ""), level, most, "");
            level = LLVMBuildShl(B, level, sg_gen_const(gen, 32, SG_TXQ_LEVEL_SHIFT), "");
            arguments[2] = LLVMBuildOr(B, arguments[2], level, "");
        }
        LLVMValueRef value = sg_gen_runtime(gen, "sg_rt_txq", gen->i32, arguments, 3);
        sg_gen_write(gen, &insn->operands[1].items[0], SG_B32, value);
        return NULL;
    }
    const struct sg_operand *values = &insn->operands[2];
    arguments[3] = words(gen);
    if (op == SG_OP_SURED) {
        LLVMValueRef value = sg_gen_read(gen, &values->items[0], type);
        arguments[4] = sg_type_bytes(type) == 8  ? value
                       : sg_type_is_signed(type) ? LLVMBuildSExt(B, value, gen->i64, "")
                                                 : LLVMBuildZExt(B, value, gen->i64, "");
        sg_gen_runtime(gen, "sg_rt_sured", gen->nothing, arguments, 5);
        return NULL;
    }
    LLVMValueRef memory = arguments[4] = frame_memory(gen, 16);
    if (op == SG_OP_SUST) {
        store_items(gen, values, type, memory);
        sg_gen_runtime(gen, "sg_rt_sust", gen->nothing, arguments, 5);
        return NULL;
    }
    sg_gen_runtime(gen, op == SG_OP_TEX ? "sg_rt_tex" : "sg_rt_suld", gen->nothing, arguments, 5);
    if (op == SG_OP_TEX) {
        LLVMValueRef texel = LLVMBuildLoad2(B, LLVMVectorType(gen->i32, 4), memory, "");
        LLVMSetAlignment(texel, 16);
        write_texel(gen, texel);
    } else {
        load_items(gen, values, type, memory);
    }
    return NULL;
}
