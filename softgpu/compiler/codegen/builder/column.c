/*
 * column.c - of kernels in loop form: a thread's place in the columns of the context, and its .local memory.
 */
#include "softgpu/compiler/codegen/builder/builder.h"

#define B gen->builder

bool sg_gen_in_loops(const struct sg_codegen *gen)
{
    return gen->form == SG_CODE_LOOPS && gen->function->is_entry;
}

/* The thread's element of the column that begins at `column` times the stride. */
LLVMValueRef sg_gen_column(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type)
{
    LLVMBuilderRef entry = gen->entry_builder;
    LLVMValueRef start = LLVMBuildMul(entry, gen->loops.stride, sg_gen_const(gen, 64, column), "");
    start = LLVMBuildGEP2(entry, gen->i8, gen->loops.context_memory, &start, 1, "");
    LLVMValueRef index = sg_gen_linear(gen);
    index = LLVMBuildZExt(entry, index, gen->i64, "");
    return LLVMBuildGEP2(entry, type, start, &index, 1, "");
}

LLVMValueRef sg_gen_load_column(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type)
{
    LLVMValueRef value = LLVMBuildLoad2(B, type, sg_gen_column(gen, column, type), "");
    LLVMSetMetadata(value, gen->access_group_kind, gen->access_group);
    return value;
}

void sg_gen_store_column(struct sg_codegen *gen, uint32_t column, LLVMValueRef value)
{
    LLVMValueRef store = LLVMBuildStore(B, value, sg_gen_column(gen, column, LLVMTypeOf(value)));
    LLVMSetMetadata(store, gen->access_group_kind, gen->access_group);
}

LLVMValueRef sg_gen_points_local(struct sg_codegen *gen, const struct sg_var *var)
{
    LLVMBuilderRef entry = gen->entry_builder;
    LLVMValueRef thread = LLVMBuildZExt(entry, sg_gen_linear(gen), gen->i64, "");
    LLVMValueRef offset =
        LLVMBuildMul(entry, thread, sg_gen_const(gen, 64, gen->loops.regions.local_size), "");
    offset = LLVMBuildAdd(entry, offset, sg_gen_const(gen, 64, gen->loops.regions.local[var->index]), "");
    return LLVMBuildGEP2(entry, gen->i8, gen->loops.local, &offset, 1, "");
}
