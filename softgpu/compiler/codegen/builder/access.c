/*
 * access.c - what an access to memory demands: alignment, and in kernels that are watched everything that a
 * report names.
 *
 * Processors carry out misaligned accesses, GPUs do not. Of each function's accesses the low bits that should
 * be zero are gathered in one value, which goes to the thread when the function ends; the engine, or the
 * frame of block form, looks at it when the thread has ended. That costs no branch, so loops over threads can
 * still be turned into vector code; the price is that the fault is told late, without its place. Watched
 * kernels (SOFTGPU_REPORT) call the engine before each access instead.
 */
#include "softgpu/compiler/codegen/builder/builder.h"

#include <string.h>

#define B gen->builder

/* --- watched kernels --- */

static LLVMValueRef text_constant(struct sg_codegen *gen, const char *text, size_t size)
{
    if (text == NULL)
        return LLVMConstNull(gen->pointer);
    LLVMValueRef value = LLVMConstStringInContext(gen->context, text, (unsigned)size, 0);
    LLVMValueRef global = LLVMAddGlobal(gen->llvm, LLVMTypeOf(value), "sg.text");
    LLVMSetInitializer(global, value);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(global, 1);
    LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
    return global;
}

/* A struct sg_site. */
static LLVMValueRef site_constant(struct sg_codegen *gen, uint8_t space, uint32_t bytes, uint32_t align,
                                  enum sg_access access)
{
    const struct sg_insn *insn = gen->insn;
    const char *file = insn->source.file;
    LLVMValueRef fields[] = {text_constant(gen, gen->function->name, strlen(gen->function->name)),
                             text_constant(gen, insn->text.data, insn->text.size),
                             text_constant(gen, file, file == NULL ? 0 : strlen(file)),
                             sg_gen_const(gen, 32, insn->source.line),
                             sg_gen_const(gen, 32, insn->line),
                             sg_gen_const(gen, 32, bytes),
                             sg_gen_const(gen, 8, align),
                             sg_gen_const(gen, 8, access),
                             sg_gen_const(gen, 8, space)};
    LLVMValueRef value =
        LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0);
    LLVMValueRef global = LLVMAddGlobal(gen->llvm, LLVMTypeOf(value), "sg.site");
    LLVMSetInitializer(global, value);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(global, 1);
    return global;
}

void sg_gen_place(struct sg_codegen *gen)
{
    if (!gen->watched)
        return;
    LLVMValueRef arguments[3] = {gen->thread, LLVMConstNull(gen->pointer),
                                 site_constant(gen, 0, 0, 1, SG_ACCESS_NONE)};
    sg_gen_runtime(gen, "sg_rt_access", gen->nothing, arguments, 3);
}

void sg_gen_fault(struct sg_codegen *gen, enum sg_fault kind)
{
    LLVMValueRef arguments[2] = {gen->thread, sg_gen_const(gen, 32, kind)};
    sg_gen_place(gen);
    sg_gen_runtime(gen, "sg_rt_fault", gen->nothing, arguments, 2);
    LLVMBuildUnreachable(B);
}

/* --- alignment --- */

static LLVMValueRef low_word(struct sg_codegen *gen, uint32_t reg)
{
    bool pointer = gen->function->regs[reg].pointer;
    LLVMTypeRef type = pointer ? gen->guest : sg_gen_type(gen, (enum sg_type)gen->function->regs[reg].type);
    LLVMValueRef value = LLVMBuildLoad2(B, type, gen->registers[reg], "");
    if (pointer)
        value = LLVMBuildPtrToInt(B, value, gen->i64, "");
    return LLVMTypeOf(value) == gen->i32 ? value : LLVMBuildTrunc(B, value, gen->i32, "");
}

/* Of the parameter that the instruction loads, from where it lies: the register may hold something else. */
static LLVMValueRef low_byte_of_param(struct sg_codegen *gen, const struct sg_insn *insn)
{
    LLVMBuilderRef here = gen->builder;
    gen->builder = gen->entry_builder;
    LLVMValueRef byte =
        LLVMBuildLoad2(gen->builder, gen->i8, sg_gen_address(gen, &insn->operands[1], SG_MOD_PARAM), "");
    sg_gen_set_invariant(gen, byte);
    LLVMValueRef word = LLVMBuildZExt(gen->builder, byte, gen->i32, "");
    gen->builder = here;
    return word;
}

/* The bits of an address that an alignment wants to be zero; NULL if they are known to be. */
static LLVMValueRef misalignment(struct sg_codegen *gen, const struct sg_operand *operand, uint32_t align)
{
    uint32_t mask = align - 1;
    if (operand->kind == SG_OPERAND_INTEGER)
        return (operand->value & mask) == 0 ? NULL : sg_gen_const(gen, 32, operand->value & mask);
    if (operand->kind == SG_OPERAND_VAR) {
        if (operand->var->align >= align)
            return (operand->value & mask) == 0 ? NULL : sg_gen_const(gen, 32, operand->value & mask);
        LLVMValueRef address = sg_gen_variable_address(gen, operand->var, operand->value);
        return LLVMBuildAnd(B, LLVMBuildTrunc(B, address, gen->i32, ""), sg_gen_const(gen, 32, mask), "");
    }
    LLVMValueRef word;
    uint32_t reg = operand->reg;
    uint64_t offset = operand->value;
    const struct sg_low_bits *known = &gen->low_bits[reg];
    if (known->written && mask >> known->bits == 0) {
        offset += known->offset;
        if (known->base == UINT32_MAX)
            return (offset & mask) == 0 ? NULL : sg_gen_const(gen, 32, offset & mask);
        word = low_byte_of_param(gen, &gen->function->insns[known->base]);
    } else {
        word = low_word(gen, reg);
    }
    if ((offset & mask) != 0)
        word = LLVMBuildAdd(B, word, sg_gen_const(gen, 32, offset & mask), "");
    return LLVMBuildAnd(B, word, sg_gen_const(gen, 32, mask), "");
}

void sg_gen_access(struct sg_codegen *gen, const struct sg_operand *operand, LLVMValueRef address,
                   uint8_t space, uint32_t bytes, enum sg_access access)
{
    uint32_t align = bytes > 32 ? 32 : bytes;
    if (space == SG_MOD_PARAM)
        return;
    if (space == SG_MOD_CLUSTER) /* bounds are those of several blocks */
        space = SG_SITE_GENERIC;
    if (gen->watched) {
        if (LLVMTypeOf(address) != gen->pointer) /* the engine looks at it only */
            address = LLVMBuildAddrSpaceCast(B, address, gen->pointer, "");
        LLVMValueRef arguments[3] = {gen->thread, address, site_constant(gen, space, bytes, align, access)};
        sg_gen_runtime(gen, "sg_rt_access", gen->nothing, arguments, 3);
        return;
    }
    LLVMValueRef wrong = align <= 1 ? NULL : misalignment(gen, operand, align);
    if (wrong == NULL)
        return;
    LLVMValueRef sum = LLVMBuildLoad2(B, gen->i32, gen->misaligned, "");
    LLVMBuildStore(B, LLVMBuildOr(B, sum, wrong, ""), gen->misaligned);
}

void sg_gen_report_misaligned(struct sg_codegen *gen)
{
    if (gen->watched)
        return;
    LLVMValueRef offset = sg_gen_const(gen, 64, offsetof(struct sg_thread, misaligned));
    LLVMValueRef field = LLVMBuildGEP2(B, gen->i8, gen->thread, &offset, 1, "");
    LLVMValueRef before = LLVMBuildLoad2(B, gen->i32, field, "");
    LLVMValueRef mine = LLVMBuildLoad2(B, gen->i32, gen->misaligned, "");
    LLVMBuildStore(B, LLVMBuildOr(B, before, mine, ""), field);
}
