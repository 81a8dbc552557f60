/*
 * codegen.c - the LLVM module of one kernel: its functions, and the table of those whose address is taken.
 * The kernel's body is the code in thread form; in the other forms the loops of frame.c call it, and LLVM
 * inlines it.
 */
#include "softgpu/compiler/codegen/codegen.h"
#include "softgpu/compiler/codegen/loops/loops.h"
#include "softgpu/compiler/jit/guard.h"

#include <stdio.h>
#include <string.h>

#define DIVERGENCE_POINTS_MAX 48u /* kernels with more points would take long to compile */

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
    gen->guest = LLVMPointerTypeInContext(gen->context, gen->guarded ? SG_GUEST_SPACE : 0);
    gen->nothing = LLVMVoidTypeInContext(gen->context);
    gen->access_group_kind = LLVMGetMDKindIDInContext(gen->context, "llvm.access.group", 17);
    gen->invariant_kind = LLVMGetMDKindIDInContext(gen->context, "invariant.load", 14);
}

static LLVMValueRef declare_function(struct sg_codegen *gen, const struct sg_ptx_function *function,
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
    sg_gen_add_attribute(gen, value, LLVMAttributeFunctionIndex, "nounwind", 0);
    sg_gen_add_attribute(gen, value, LLVMAttributeFunctionIndex, "null_pointer_is_valid", 0);
    for (uint32_t i = 0; i < count - 1; i++) {
        const struct sg_var *formal =
            i < function->n_returns ? &function->returns[i] : &function->params[i - function->n_returns];
        sg_gen_add_attribute(gen, value, (int)i + 2, "nonnull", 0);
        sg_gen_add_attribute(gen, value, (int)i + 2, "align", formal->align);
        if (formal->size > 0)
            sg_gen_add_attribute(gen, value, (int)i + 2, "dereferenceable", formal->size);
    }
    return value;
}

static void describe_params(struct sg_codegen *gen, LLVMValueRef function,
                            const struct sg_ptx_function *kernel)
{
    /* so that loading a parameter early is known to be harmless */
    if (kernel->params_size > 0) {
        sg_gen_add_attribute(gen, function, 2, "dereferenceable", kernel->params_size);
        sg_gen_add_attribute(gen, function, 2, "align", 16);
    }
}

static LLVMValueRef declare_kernel(struct sg_codegen *gen, const struct sg_ptx_function *kernel,
                                   const char *symbol)
{
    LLVMTypeRef types[2] = {gen->pointer, gen->pointer};
    LLVMTypeRef type = LLVMFunctionType(gen->nothing, types, 2, 0);
    LLVMValueRef value = gen->form == SG_CODE_THREAD ? LLVMAddFunction(gen->llvm, symbol, type)
                                                     : LLVMGetNamedFunction(gen->llvm, SG_GEN_BODY);
    sg_gen_add_attribute(gen, value, LLVMAttributeFunctionIndex, "nounwind", 0);
    sg_gen_add_attribute(gen, value, LLVMAttributeFunctionIndex, "null_pointer_is_valid", 0);
    describe_params(gen, value, kernel);
    if (gen->form == SG_CODE_THREAD)
        return value;
    for (LLVMValueRef frame = LLVMGetFirstFunction(gen->llvm); frame != NULL;
         frame = LLVMGetNextFunction(frame))
        if (LLVMCountBasicBlocks(frame) > 0 && LLVMCountParams(frame) > 1 &&
            LLVMTypeOf(LLVMGetParam(frame, 1)) == gen->pointer)
            describe_params(gen, frame, kernel);
    LLVMSetLinkage(value, LLVMInternalLinkage);
    sg_gen_add_attribute(gen, value, LLVMAttributeFunctionIndex, "alwaysinline", 0);
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

/* What the loops of the frame are made for. */
static void find_divergence(struct sg_codegen *gen, const struct sg_ptx_function *kernel)
{
    struct sg_flow flow = {0};
    gen->loops.divergence = SG_NEW_ARRAY(gen->arena, struct sg_divergence, gen->loops.regions.n_points + 1);
    if (gen->form == SG_CODE_BLOCK && !sg_guards_wanted(kernel))
        return;
    if (gen->loops.regions.n_points > DIVERGENCE_POINTS_MAX)
        return;
    sg_flow_build(gen->arena, kernel, &flow);
    for (uint32_t point = 0; point <= gen->loops.regions.n_points; point++)
        sg_divergence_find(gen->arena, &flow, &gen->loops.regions, point, &gen->loops.tests,
                           &gen->loops.divergence[point]);
    if (gen->form != SG_CODE_BLOCK || gen->loops.divergence[0].first != NULL)
        return;
    sg_guards_find(kernel, gen->loops.regions.rematerialised, &gen->loops.guards);
    for (uint32_t i = 0; i < gen->loops.guards.count; i++)
        gen->loops.tests.insns[i] = gen->loops.guards.insns[i];
    gen->loops.tests.count = gen->loops.guards.count;
}

LLVMModuleRef sg_generate(struct sg_codegen *gen, struct sg_ptx_function *kernel, const char *symbol)
{
    sg_check_resolved(gen->arena->diagnostics, gen->reach, true);
    set_types(gen);
    gen->emit = sg_gen_instruction;
    if (gen->form == SG_CODE_LOOPS)
        sg_regions_compute(gen->arena, kernel, &gen->loops.regions);
    if (gen->form == SG_CODE_BLOCK)
        gen->loops.regions.rematerialised = sg_rematerialise_find(gen->arena, kernel);
    if (gen->form != SG_CODE_THREAD)
        find_divergence(gen, kernel);
    if (gen->form == SG_CODE_THREAD)
        gen->llvm = LLVMModuleCreateWithNameInContext(kernel->name, gen->context);
    else if (!sg_gen_frame(gen, symbol))
        return NULL;
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
    if (gen->loops.guards.count > 0)
        sg_gen_guard_function(gen, kernel);
    for (uint32_t point = 0; gen->form != SG_CODE_THREAD && point <= gen->loops.regions.n_points; point++)
        sg_gen_divergence_function(gen, kernel, point);
    if (gen->form == SG_CODE_LOOPS)
        sg_gen_loop_code(gen, symbol);
    return gen->llvm;
}
