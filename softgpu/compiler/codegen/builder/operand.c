/*
 * operand.c - operands of PTX instructions to LLVM values and back, and the addresses that they name.
 */
#include "softgpu/compiler/codegen/builder/builder.h"
#include "softgpu/compiler/jit/symbols.h"

#include <stdio.h>

static unsigned width(LLVMTypeRef type)
{
    switch (LLVMGetTypeKind(type)) {
    case LLVMFloatTypeKind:
        return 32;
    case LLVMDoubleTypeKind:
        return 64;
    case LLVMPointerTypeKind:
        return 64;
    default:
        return LLVMGetIntTypeWidth(type);
    }
}

/* Bits of one type as another of the same or a smaller width (cut), or a greater one (extended). */
static LLVMValueRef convert_bits(struct sg_codegen *gen, LLVMValueRef value, LLVMTypeRef to, bool is_signed)
{
    LLVMTypeRef from = LLVMTypeOf(value);
    if (from == to)
        return value;
    unsigned from_bits = width(from), to_bits = width(to);
    if (LLVMGetTypeKind(from) == LLVMPointerTypeKind)
        value = LLVMBuildPtrToInt(gen->builder, value, gen->i64, "");
    else if (LLVMGetTypeKind(from) != LLVMIntegerTypeKind)
        value = sg_gen_cast(gen, value, sg_gen_int(gen, from_bits));
    if (from_bits > to_bits)
        value = LLVMBuildTrunc(gen->builder, value, sg_gen_int(gen, to_bits), "");
    else if (from_bits < to_bits && is_signed)
        value = LLVMBuildSExt(gen->builder, value, sg_gen_int(gen, to_bits), "");
    else if (from_bits < to_bits)
        value = LLVMBuildZExt(gen->builder, value, sg_gen_int(gen, to_bits), "");
    if (LLVMGetTypeKind(to) == LLVMPointerTypeKind)
        return LLVMBuildIntToPtr(gen->builder, value, to, "");
    return LLVMGetTypeKind(to) == LLVMIntegerTypeKind ? value : sg_gen_cast(gen, value, to);
}

static LLVMTypeRef slot_type(struct sg_codegen *gen, const struct sg_reg *reg)
{
    return reg->pointer ? gen->guest : sg_gen_type(gen, (enum sg_type)reg->type);
}

static LLVMValueRef read_slot(struct sg_codegen *gen, uint32_t reg)
{
    return LLVMBuildLoad2(gen->builder, slot_type(gen, &gen->function->regs[reg]), gen->registers[reg], "");
}

/* A literal: floating-point literals become the operation's type, bits keep their width. */
static LLVMValueRef read_literal(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type)
{
    uint64_t bits = operand->value;
    union {
        uint32_t bits;
        float value;
    } narrow = {(uint32_t)bits};
    union {
        uint64_t bits;
        double value;
    } wide = {bits};
    if (operand->kind == SG_OPERAND_FLOAT32 && sg_types[type].bits == 64) {
        wide.value = narrow.value;
        bits = wide.bits;
    } else if (operand->kind == SG_OPERAND_FLOAT64 && sg_types[type].bits == 32) {
        narrow.value = (float)wide.value;
        bits = narrow.bits;
    }
    if (type == SG_PRED)
        bits = bits != 0;
    if (sg_types[type].bits == 128) {
        /* sign-extended */
        uint64_t words[2] = {bits, (uint64_t)((int64_t)bits >> 63)};
        return LLVMConstIntOfArbitraryPrecision(sg_gen_int(gen, 128), 2, words);
    }
    LLVMValueRef value = sg_gen_const(gen, sg_types[type].bits, bits);
    return type == SG_F32 || type == SG_F64 ? LLVMConstBitCast(value, sg_gen_type(gen, type)) : value;
}

/* What the name is bound to when the code is loaded, `size` bytes (0: perhaps nothing), as a constant. */
static LLVMValueRef symbol_address(struct sg_codegen *gen, const char *name, uint64_t size, uint64_t offset)
{
    LLVMValueRef symbol = LLVMGetNamedGlobal(gen->llvm, name), bytes = sg_gen_const(gen, 64, offset);
    if (symbol == NULL) {
        unsigned known = size <= UINT32_MAX ? (unsigned)size : 0;
        symbol = LLVMAddGlobal(gen->llvm, LLVMArrayType(gen->i8, known), name);
        LLVMSetAlignment(symbol, 1);
    }
    return LLVMConstPtrToInt(LLVMConstGEP2(gen->i8, symbol, &bytes, 1), gen->i64);
}

LLVMValueRef sg_gen_handle_address(struct sg_codegen *gen, uint32_t handle)
{
    return symbol_address(gen, SG_SYMBOL_HANDLES, 0, handle * sizeof(void *));
}

/* Is it a parameter of the function, and not an object of .param space in it? */
static bool is_formal(const struct sg_codegen *gen, const struct sg_var *var)
{
    return !(gen->function->n_vars > var->index && gen->function->vars[var->index] == var);
}

LLVMValueRef sg_gen_variable_address(struct sg_codegen *gen, const struct sg_var *var, uint64_t offset)
{
    char name[SG_SYMBOL_SIZE];
    switch (var->space) {
    case SG_SPACE_GLOBAL:
    case SG_SPACE_CONST:
        snprintf(name, sizeof(name), SG_SYMBOL_VARIABLE, var->program_index);
        return symbol_address(gen, name, var->linkage == SG_LINKAGE_EXTERN ? 0 : var->size, offset);
    case SG_SPACE_SHARED:
        return sg_gen_const(gen, 64, sg_shared_offset(gen->shared, var) + offset);
    case SG_SPACE_PARAM:
        if (gen->guarded && gen->function->is_entry && is_formal(gen, var)) /* as a kernel may reach it */
            return LLVMBuildAdd(gen->builder,
                                sg_gen_block_field(gen, offsetof(struct sg_block, guest_params), gen->i64),
                                sg_gen_const(gen, 64, var->offset + offset), "");
        // fallthrough
    default: {
        struct sg_operand operand = {.kind = SG_OPERAND_VAR, .value = offset, .var = (struct sg_var *)var};
        return LLVMBuildPtrToInt(gen->builder, sg_gen_address(gen, &operand, 0), gen->i64, "");
    }
    }
}

LLVMValueRef sg_gen_read(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type)
{
    LLVMTypeRef to = sg_gen_type(gen, type);
    LLVMValueRef value;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        value = convert_bits(gen, read_slot(gen, operand->reg), to, false);
        break;
    case SG_OPERAND_SPECIAL:
        value = convert_bits(gen, sg_gen_special(gen, (enum sg_special)operand->reg, operand->component), to,
                             false);
        break;
    case SG_OPERAND_VAR:
        if (gen->function->narrow_params && operand->var->space == SG_SPACE_PARAM && to == gen->i32 &&
            is_formal(gen, operand->var))
            value = sg_gen_const(gen, 32, operand->var->offset + operand->value);
        else
            value = convert_bits(gen, sg_gen_variable_address(gen, operand->var, operand->value), to, false);
        break;
    case SG_OPERAND_FUNCTION: {
        /* a handle, not code: see the indirect call */
        struct sg_ptx_function *function =
            operand->function->alias_of != NULL ? operand->function->alias_of : operand->function;
        value = convert_bits(gen, sg_gen_handle_address(gen, function->handle), to, false);
        break;
    }
    default:
        value = read_literal(gen, operand, type);
        break;
    }
    return operand->negated ? LLVMBuildNot(gen->builder, value, "") : value;
}

void sg_gen_write(struct sg_codegen *gen, const struct sg_operand *operand, enum sg_type type,
                  LLVMValueRef value)
{
    if (operand->kind != SG_OPERAND_REG)
        return; /* _ */
    LLVMTypeRef to = slot_type(gen, &gen->function->regs[operand->reg]);
    LLVMBuildStore(gen->builder, convert_bits(gen, value, to, sg_type_is_signed(type)),
                   gen->registers[operand->reg]);
}

LLVMValueRef sg_gen_operand(struct sg_codegen *gen, uint32_t i)
{
    return sg_gen_read(gen, &gen->insn->operands[i], sg_gen_type_of(gen));
}

LLVMValueRef sg_gen_operand_u32(struct sg_codegen *gen, uint32_t i)
{
    return sg_gen_read(gen, &gen->insn->operands[i], SG_U32);
}

LLVMValueRef sg_gen_operand_predicate(struct sg_codegen *gen, uint32_t i)
{
    LLVMValueRef value = sg_gen_read(gen, &gen->insn->operands[i], SG_PRED);
    return LLVMBuildZExt(gen->builder, value, gen->i32, "");
}

void sg_gen_result(struct sg_codegen *gen, LLVMValueRef value)
{
    sg_gen_write(gen, &gen->insn->operands[0], sg_gen_type_of(gen), value);
}

/* --- addresses --- */

static LLVMValueRef offset_pointer(struct sg_codegen *gen, LLVMValueRef base, LLVMValueRef offset)
{
    return LLVMBuildGEP2(gen->builder, gen->i8, base, &offset, 1, "");
}

static LLVMValueRef variable_pointer(struct sg_codegen *gen, const struct sg_var *var)
{
    if (var->space == SG_SPACE_LOCAL || (var->space == SG_SPACE_PARAM && !is_formal(gen, var)))
        return gen->variables[var->index];
    if (var->space == SG_SPACE_PARAM && gen->function->is_entry)
        return offset_pointer(gen, gen->params, sg_gen_const(gen, 64, var->offset));
    if (var->space == SG_SPACE_PARAM)
        return var->is_return ? gen->formals_out[var->index] : gen->formals_in[var->index];
    if (var->space == SG_SPACE_SHARED)
        return offset_pointer(gen, sg_gen_shared_base(gen), sg_gen_variable_address(gen, var, 0));
    return LLVMConstIntToPtr(sg_gen_variable_address(gen, var, 0), gen->pointer);
}

LLVMValueRef sg_gen_as_guest(struct sg_codegen *gen, LLVMValueRef pointer)
{
    return gen->guarded && LLVMTypeOf(pointer) == gen->pointer
               ? LLVMBuildAddrSpaceCast(gen->builder, pointer, gen->guest, "")
               : pointer;
}

/*
 * Whether a constant distance leads from a variable's start into it; in .shared, to where only guests' memory is. What is
 * declared may be larger than what there is (.extern), but nothing else is that near.
 */
static bool is_within(const struct sg_var *var, uint64_t offset)
{
    return offset <= INT32_MAX && (offset < var->size || var->space == SG_SPACE_SHARED);
}

/*
 * Whether it is a parameter of a guarded kernel that is not loaded at the function's start, as parameters are (memory.c,
 * access.c, which stay inside of them), but used as any memory is: the copy that the kernel may reach.
 */
static bool is_param_elsewhere(const struct sg_codegen *gen, const struct sg_var *var)
{
    return gen->guarded && var->space == SG_SPACE_PARAM && gen->function->is_entry && is_formal(gen, var) &&
           gen->builder != gen->entry_builder;
}

LLVMValueRef sg_gen_address(struct sg_codegen *gen, const struct sg_operand *operand, uint8_t space)
{
    LLVMValueRef base;
    uint64_t offset = operand->value;
    if (operand->kind == SG_OPERAND_VAR && is_param_elsewhere(gen, operand->var)) {
        base = LLVMBuildIntToPtr(gen->builder, sg_gen_variable_address(gen, operand->var, 0), gen->guest, "");
    } else if (operand->kind == SG_OPERAND_VAR) {
        base = variable_pointer(gen, operand->var);
        if (!is_within(operand->var, offset))
            base = sg_gen_as_guest(gen, base);
    } else {
        bool is_register = operand->kind == SG_OPERAND_REG;
        bool pointer = sg_gen_is_pointer(gen, operand);
        LLVMValueRef value = is_register ? read_slot(gen, operand->reg) : sg_gen_const(gen, 64, offset);
        if (!is_register)
            offset = 0;
        if (space == SG_MOD_SHARED || space == SG_MOD_CLUSTER) {
            /*
             * 32-bit windows wrap, so an offset counts before the address is widened; unless it is known not
             * to wrap: then processors add it for nothing
             */
            if (pointer)
                value = LLVMBuildPtrToInt(gen->builder, value, gen->i64, "");
            LLVMTypeRef type = LLVMTypeOf(value);
            bool wraps = !is_register || space == SG_MOD_CLUSTER || offset > INT32_MAX ||
                         gen->bounds[operand->reg] > INT32_MAX;
            if (wraps && offset != 0)
                value = LLVMBuildAdd(gen->builder, value, LLVMConstInt(type, offset, 0), "");
            if (wraps)
                offset = 0;
            if (gen->guarded && type == gen->i64) /* as on a GPU; and no farther than that */
                value = LLVMBuildAnd(gen->builder, value, sg_gen_const(gen, 64, UINT32_MAX), "");
            value = LLVMBuildZExt(gen->builder, value, gen->i64, "");
            base = space == SG_MOD_CLUSTER ? sg_gen_cluster_pointer(gen, value)
                                           : offset_pointer(gen, sg_gen_shared_base(gen), value);
        } else {
            if ((space == SG_MOD_LOCAL || space == SG_MOD_CONST) && LLVMTypeOf(value) == gen->i32)
                value = sg_gen_widened(gen, value, space);
            base = pointer ? value : LLVMBuildIntToPtr(gen->builder, value, gen->guest, "");
        }
    }
    return offset == 0 ? base : offset_pointer(gen, base, sg_gen_const(gen, 64, offset));
}

LLVMValueRef sg_gen_unwrapped(struct sg_codegen *gen, LLVMValueRef value)
{
#if SG_LLVM_MAJOR >= 17 /* before, LLVM's C API had no way to say so */
    LLVMOpcode op = LLVMIsABinaryOperator(value) != NULL ? LLVMGetInstructionOpcode(value) : 0;
    uint64_t most = sg_bound_of_result(gen->bounds, gen->insn);
    if ((op != LLVMAdd && op != LLVMMul && op != LLVMShl) || most == UINT64_MAX ||
        value != LLVMGetLastInstruction(LLVMGetInsertBlock(gen->builder)))
        return value;
    unsigned bits = LLVMGetIntTypeWidth(LLVMTypeOf(value));
    LLVMSetNUW(value, bits == 64 || most >> bits == 0);
    LLVMSetNSW(value, most >> (bits - 1) == 0);
#endif
    return value;
}

bool sg_gen_is_pointer(const struct sg_codegen *gen, const struct sg_operand *operand)
{
    return operand->kind == SG_OPERAND_REG && gen->function->regs[operand->reg].pointer;
}

bool sg_gen_copy_pointer(struct sg_codegen *gen)
{
    const struct sg_operand *to = &gen->insn->operands[0], *from = &gen->insn->operands[1];
    if (!sg_gen_is_pointer(gen, to) || !sg_gen_is_pointer(gen, from))
        return false;
    LLVMBuildStore(gen->builder, LLVMBuildLoad2(gen->builder, gen->guest, gen->registers[from->reg], ""),
                   gen->registers[to->reg]);
    return true;
}
