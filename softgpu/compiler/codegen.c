/*
 * codegen.c - the LLVM module of one kernel: its functions, and the frame around it.
 *
 * Thread form: the kernel's body is the code. Block form: a loop over the block's threads calls the body,
 * which LLVM inlines; accesses to memory in it carry an access group that the loop names as parallel, since
 * threads that do not wait for each other may not depend on each other either. The loop is written as LLVM's
 * text because only the text can make distinct metadata; the body is added to the module that the text makes.
 */
#include "softgpu/compiler/codegen.h"

#include <llvm-c/IRReader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY "sg.body"

/* tid in thread 0, 4, 8; linear 12; block 16 */
static const char block_frame[] =
    "declare void @" BODY "(ptr, ptr)\n"
    "define void @%s(ptr noalias %%block, ptr noalias readonly %%params) #0 {\n"
    "entry:\n"
    "  %%thread = alloca [%zu x i8], align 16\n"
    "  %%nx.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%nx = load i32, ptr %%nx.p, align 4, !invariant.load !3, !llvm.access.group !0\n"
    "  %%ny.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%ny = load i32, ptr %%ny.p, align 4, !invariant.load !3\n"
    "  %%nz.p = getelementptr i8, ptr %%block, i64 %zu\n"
    "  %%nz = load i32, ptr %%nz.p, align 4, !invariant.load !3\n"
    "  %%x.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%y.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%z.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%linear.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%block.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  %%engine.p = getelementptr i8, ptr %%thread, i64 %zu\n"
    "  br label %%plane\n"
    "plane:\n"
    "  %%z = phi i32 [ 0, %%entry ], [ %%z.next, %%plane.end ]\n"
    "  %%plane.rows = mul i32 %%z, %%ny\n"
    "  br label %%row\n"
    "row:\n"
    "  %%y = phi i32 [ 0, %%plane ], [ %%y.next, %%row.end ]\n"
    "  %%rows = add i32 %%plane.rows, %%y\n"
    "  %%first = mul i32 %%rows, %%nx\n"
    "  br label %%thread.loop\n"
    "thread.loop:\n"
    "  %%x = phi i32 [ 0, %%row ], [ %%x.next, %%thread.loop ]\n"
    "  %%linear = add i32 %%first, %%x\n"
    "  store i32 %%x, ptr %%x.p, align 4\n"
    "  store i32 %%y, ptr %%y.p, align 4\n"
    "  store i32 %%z, ptr %%z.p, align 4\n"
    "  store i32 %%linear, ptr %%linear.p, align 4\n"
    "  store ptr %%block, ptr %%block.p, align 8\n"
    "  store ptr null, ptr %%engine.p, align 8\n"
    "  call void @" BODY "(ptr %%thread, ptr %%params)\n"
    "  %%x.next = add nuw nsw i32 %%x, 1\n"
    "  %%x.more = icmp ult i32 %%x.next, %%nx\n"
    "  br i1 %%x.more, label %%thread.loop, label %%row.end, !llvm.loop !1\n"
    "row.end:\n"
    "  %%y.next = add nuw nsw i32 %%y, 1\n"
    "  %%y.more = icmp ult i32 %%y.next, %%ny\n"
    "  br i1 %%y.more, label %%row, label %%plane.end\n"
    "plane.end:\n"
    "  %%z.next = add nuw nsw i32 %%z, 1\n"
    "  %%z.more = icmp ult i32 %%z.next, %%nz\n"
    "  br i1 %%z.more, label %%plane, label %%end\n"
    "end:\n"
    "  ret void\n"
    "}\n"
    "attributes #0 = { nounwind null_pointer_is_valid }\n"
    "!0 = distinct !{}\n"
    "!1 = distinct !{!1, !2}\n"
    "!2 = !{!\"llvm.loop.parallel_accesses\", !0}\n"
    "!3 = !{}\n";

static void add_attribute(struct sg_codegen *gen, LLVMValueRef function, LLVMAttributeIndex index,
                          const char *name, uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(function, index, LLVMCreateEnumAttribute(gen->context, kind, value));
}

static bool parse_frame(struct sg_codegen *gen, const char *symbol)
{
    char text[sizeof(block_frame) + 512];
    size_t ntid = offsetof(struct sg_block, ntid), tid = offsetof(struct sg_thread, tid);
    int size = snprintf(text, sizeof(text), block_frame, symbol, sizeof(struct sg_thread), ntid, ntid + 4,
                        ntid + 8, tid, tid + 4, tid + 8, offsetof(struct sg_thread, linear),
                        offsetof(struct sg_thread, block), offsetof(struct sg_thread, engine));
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, (size_t)size, "frame");
    char *message = NULL;
    if (LLVMParseIRInContext(gen->context, buffer, &gen->llvm, &message)) {
        sg_text_append(gen->arena->diagnostics->log, "block frame: %s\n", message);
        LLVMDisposeMessage(message);
        return false;
    }
    return true;
}

/* The access group hangs on one load of the frame. */
static void find_access_group(struct sg_codegen *gen, const char *symbol)
{
    LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(LLVMGetNamedFunction(gen->llvm, symbol));
    for (LLVMValueRef i = LLVMGetFirstInstruction(entry); i != NULL; i = LLVMGetNextInstruction(i)) {
        LLVMValueRef group = LLVMGetMetadata(i, gen->access_group_kind);
        if (group != NULL)
            gen->access_group = group;
    }
}

static void set_types(struct sg_codegen *gen)
{
    gen->i1 = LLVMInt1TypeInContext(gen->context);
    gen->i8 = LLVMInt8TypeInContext(gen->context);
    gen->i16 = LLVMInt16TypeInContext(gen->context);
    gen->i32 = LLVMInt32TypeInContext(gen->context);
    gen->i64 = LLVMInt64TypeInContext(gen->context);
    gen->f32 = LLVMFloatTypeInContext(gen->context);
    gen->f64 = LLVMDoubleTypeInContext(gen->context);
    gen->pointer = LLVMPointerTypeInContext(gen->context, 0);
    gen->nothing = LLVMVoidTypeInContext(gen->context);
    gen->access_group_kind = LLVMGetMDKindIDInContext(gen->context, "llvm.access.group", 17);
    gen->invariant_kind = LLVMGetMDKindIDInContext(gen->context, "invariant.load", 14);
}

static LLVMValueRef declare_function(struct sg_codegen *gen, const struct sg_function *function,
                                     uint32_t index)
{
    char name[32];
    uint32_t count = 1 + function->n_params + function->n_returns;
    LLVMTypeRef *types = SG_NEW_ARRAY(gen->arena, LLVMTypeRef, count);
    for (uint32_t i = 0; i < count; i++)
        types[i] = gen->pointer;
    snprintf(name, sizeof(name), "sg.f%u", index);
    LLVMValueRef value = LLVMAddFunction(gen->llvm, name, LLVMFunctionType(gen->nothing, types, count, 0));
    LLVMSetLinkage(value, LLVMInternalLinkage);
    add_attribute(gen, value, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
    add_attribute(gen, value, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "null_pointer_is_valid", 0);
    for (uint32_t i = 0; i < count - 1; i++) {
        const struct sg_var *formal =
            i < function->n_returns ? &function->returns[i] : &function->params[i - function->n_returns];
        add_attribute(gen, value, i + 2, "nonnull", 0);
        add_attribute(gen, value, i + 2, "align", formal->align);
        if (formal->size > 0)
            add_attribute(gen, value, i + 2, "dereferenceable", formal->size);
    }
    return value;
}

static LLVMValueRef declare_kernel(struct sg_codegen *gen, const struct sg_function *kernel,
                                   const char *symbol)
{
    LLVMTypeRef types[2] = {gen->pointer, gen->pointer};
    LLVMTypeRef type = LLVMFunctionType(gen->nothing, types, 2, 0);
    LLVMValueRef value = gen->thread_form ? NULL : LLVMGetNamedFunction(gen->llvm, BODY);
    if (value == NULL)
        value = LLVMAddFunction(gen->llvm, symbol, type);
    add_attribute(gen, value, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
    add_attribute(gen, value, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "null_pointer_is_valid", 0);
    LLVMValueRef frame = gen->thread_form ? value : LLVMGetNamedFunction(gen->llvm, symbol);
    for (int i = 0; i < 2 && kernel->params_size > 0; i++) {
        /* so that loading a parameter early is known to be harmless */
        add_attribute(gen, i == 0 ? value : frame, 2, "dereferenceable", kernel->params_size);
        add_attribute(gen, i == 0 ? value : frame, 2, "align", 16);
    }
    if (!gen->thread_form) {
        LLVMSetLinkage(value, LLVMInternalLinkage);
        add_attribute(gen, value, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "alwaysinline", 0);
    }
    return value;
}

/* The code of the functions whose address is taken; those that this kernel cannot reach are null. */
static void make_handle_table(struct sg_codegen *gen)
{
    uint32_t count = gen->module->n_handles;
    if (!gen->reach->indirect)
        return;
    LLVMValueRef *entries = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = LLVMConstNull(gen->pointer);
        for (uint32_t n = 1; n < gen->reach->count; n++)
            if (gen->reach->functions[n] == gen->module->handles[i] && gen->functions[n] != NULL)
                entries[i] = gen->functions[n];
    }
    LLVMTypeRef type = LLVMArrayType(gen->pointer, count);
    gen->handle_table = LLVMAddGlobal(gen->llvm, type, "sg.handles");
    LLVMSetInitializer(gen->handle_table, LLVMConstArray(gen->pointer, entries, count));
    LLVMSetLinkage(gen->handle_table, LLVMInternalLinkage);
    LLVMSetGlobalConstant(gen->handle_table, 1);
}

static void check_resolved(struct sg_codegen *gen)
{
    for (uint32_t i = 0; i < gen->reach->count; i++) {
        const struct sg_function *function = gen->reach->functions[i];
        if (!function->defined && sg_builtin_find(function) == SG_BUILTIN_NONE &&
            !(function->address_taken && gen->reach->indirect))
            sg_fail(gen->arena->diagnostics, SG_COMPILE_UNRESOLVED, 0, "undefined function '%s'",
                    function->name);
    }
}

LLVMModuleRef sg_generate(struct sg_codegen *gen, struct sg_function *kernel, const char *symbol)
{
    check_resolved(gen);
    set_types(gen);
    if (gen->thread_form)
        gen->llvm = LLVMModuleCreateWithNameInContext(kernel->name, gen->context);
    else if (!parse_frame(gen, symbol))
        return NULL;
    else
        find_access_group(gen, symbol);
    gen->builder = LLVMCreateBuilderInContext(gen->context);
    gen->entry_builder = LLVMCreateBuilderInContext(gen->context);
    gen->functions = SG_NEW_ARRAY(gen->arena, LLVMValueRef, gen->reach->count);
    gen->functions[0] = declare_kernel(gen, kernel, symbol);
    for (uint32_t i = 1; i < gen->reach->count; i++)
        if (gen->reach->functions[i]->defined)
            gen->functions[i] = declare_function(gen, gen->reach->functions[i], i);
    make_handle_table(gen);
    for (uint32_t i = 0; i < gen->reach->count; i++)
        if (gen->functions[i] != NULL)
            sg_gen_function(gen, gen->reach->functions[i], gen->functions[i]);
    return gen->llvm;
}
