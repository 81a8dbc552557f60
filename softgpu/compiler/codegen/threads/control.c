/*
 * control.c - jumps, calls, returns.
 *
 * A function in .func form is `void f(thread, result pointers…, parameter pointers…)`. The address of a
 * function is the address of its place in the module's list of handles; a call through a pointer looks the
 * place up in a table that each kernel has of its own, and faults if the pointer is none of those addresses.
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/codegen/threads/threads.h"

#include <stdio.h>

#define B gen->builder

static void continue_in_new_block(struct sg_codegen *gen)
{
    LLVMPositionBuilderAtEnd(B, sg_gen_block(gen, ""));
}

static void give_way(struct sg_codegen *gen)
{
    if (gen->insn->waits_in_loop && gen->form == SG_CODE_THREAD)
        sg_gen_runtime(gen, "sg_rt_yield", gen->nothing, &gen->thread, 1);
}

static void branch_indexed(struct sg_codegen *gen)
{
    const struct sg_table *table = &gen->function->tables[gen->insn->operands[1].value];
    LLVMValueRef index = sg_gen_operand_u32(gen, 0);
    LLVMBasicBlockRef outside = sg_gen_block(gen, "");
    give_way(gen);
    LLVMValueRef choice = LLVMBuildSwitch(B, index, outside, table->count);
    for (uint32_t i = 0; i < table->count; i++)
        LLVMAddCase(choice, sg_gen_const(gen, 32, i), gen->labels[table->labels[i]]);
    LLVMPositionBuilderAtEnd(B, outside);
    if (gen->guarded) /* else anything may happen, which is what PTX says */
        sg_gen_fault(gen, SG_FAULT_INVALID_PC);
    else
        LLVMBuildUnreachable(B);
}

/* --- calls --- */

/* Memory that holds an argument or takes a result: the .param object, or a slot for a register or number. */
static LLVMValueRef argument_memory(struct sg_codegen *gen, const struct sg_operand *argument,
                                    const struct sg_var *formal, bool result)
{
    if (argument->kind == SG_OPERAND_VAR)
        return sg_gen_address(gen, argument, SG_MOD_PARAM);
    if (formal == NULL)
        sg_gen_fail(gen, "arguments of this call must be .param variables");
    LLVMValueRef slot = LLVMBuildAlloca(gen->entry_builder, sg_gen_type(gen, formal->type), "");
    LLVMSetAlignment(slot, 16);
    if (!result)
        LLVMBuildStore(B, sg_gen_read(gen, argument, formal->type), slot);
    return slot;
}

static LLVMValueRef argument_value(struct sg_codegen *gen, LLVMValueRef memory, LLVMTypeRef type)
{
    LLVMValueRef value = LLVMBuildLoad2(B, type, memory, "");
    LLVMSetAlignment(value, LLVMGetTypeKind(type) == LLVMPointerTypeKind ? 8 : LLVMGetIntTypeWidth(type) / 8);
    return value;
}

/* Where the call wants the result of a built-in function: declarations may leave it out. */
static void give_result(struct sg_codegen *gen, LLVMValueRef value, LLVMValueRef out, unsigned alignment)
{
    if (gen->insn->call->n_returns > 0)
        LLVMSetAlignment(LLVMBuildStore(B, value, out), alignment);
}

static void call_builtin(struct sg_codegen *gen, enum sg_builtin builtin, LLVMValueRef *in, LLVMValueRef *out)
{
    LLVMValueRef arguments[6] = {gen->thread};
    switch (builtin) {
    case SG_BUILTIN_VPRINTF:
        arguments[1] = argument_value(gen, in[0], gen->guest);
        arguments[2] = argument_value(gen, in[1], gen->guest);
        give_result(gen, sg_gen_runtime(gen, "sg_rt_vprintf", gen->i32, arguments, 3), out[0], 4);
        break;
    case SG_BUILTIN_ASSERTFAIL:
        sg_gen_place(gen);
        for (int i = 0; i < 5; i++)
            arguments[i + 1] = argument_value(gen, in[i], i == 2 ? gen->i32 : i == 4 ? gen->i64 : gen->guest);
        sg_gen_runtime(gen, "sg_rt_assertfail", gen->nothing, arguments, 6);
        LLVMBuildUnreachable(B);
        continue_in_new_block(gen);
        break;
    case SG_BUILTIN_MALLOC:
        arguments[1] = argument_value(gen, in[0], gen->i64);
        give_result(gen, sg_gen_runtime(gen, "sg_rt_malloc", gen->pointer, arguments, 2), out[0], 8);
        break;
    case SG_BUILTIN_SET_CONDITIONAL:
        arguments[1] = argument_value(gen, in[0], gen->i64);
        arguments[2] = argument_value(gen, in[1], gen->i32);
        sg_gen_runtime(gen, "sg_rt_set_conditional", gen->nothing, arguments, 3);
        break;
    default:
        arguments[1] = argument_value(gen, in[0], gen->guest);
        sg_gen_runtime(gen, "sg_rt_free", gen->nothing, arguments, 2);
        break;
    }
}

/*
 * The table of those functions whose address is taken. Where kernels are guarded, it has those alone that take as many
 * arguments and give as many results as the call: these are addresses of what is in the caller's hands.
 */
static LLVMValueRef table_for(struct sg_codegen *gen, const struct sg_call *call)
{
    char name[48];
    if (!gen->guarded)
        return gen->handle_table;
    snprintf(name, sizeof(name), "sg.handles.%u.%u", call->n_returns, call->n_arguments);
    LLVMValueRef table = LLVMGetNamedGlobal(gen->llvm, name);
    if (table != NULL)
        return table;
    uint32_t count = gen->module->n_handles;
    LLVMValueRef *entries = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const struct sg_ptx_function *function = gen->module->handles[i];
        bool fits = function->n_returns == call->n_returns && function->n_params == call->n_arguments;
        entries[i] = LLVMConstNull(gen->pointer);
        for (uint32_t n = 1; fits && n < gen->reach->count; n++)
            if (gen->reach->functions[n] == function && gen->functions[n] != NULL)
                entries[i] = gen->functions[n];
    }
    table = LLVMAddGlobal(gen->llvm, LLVMArrayType(gen->pointer, count), name);
    LLVMSetInitializer(table, LLVMConstArray(gen->pointer, entries, count));
    LLVMSetLinkage(table, LLVMInternalLinkage);
    LLVMSetGlobalConstant(table, 1);
    return table;
}

/* The code behind a function pointer. */
static LLVMValueRef look_up_target(struct sg_codegen *gen, const struct sg_call *call)
{
    const struct sg_operand *target = &call->target;
    uint32_t count = gen->module->n_handles;
    LLVMValueRef pointer = sg_gen_read(gen, target, SG_B64);
    if (gen->guarded) /* one that is undefined must be the same number in what is tested and what is used */
        pointer = LLVMBuildFreeze(B, pointer, "");
    LLVMValueRef first = sg_gen_handle_address(gen, 0);
    LLVMValueRef offset = LLVMBuildSub(B, pointer, first, "");
    LLVMValueRef inside = sg_gen_compare(gen, LLVMIntULT, offset, sg_gen_const(gen, 64, (uint64_t)count * 8));
    LLVMValueRef whole = sg_gen_compare(gen, LLVMIntEQ, LLVMBuildAnd(B, offset, sg_gen_const(gen, 64, 7), ""),
                                        sg_gen_const(gen, 64, 0));
    LLVMBasicBlockRef good = sg_gen_block(gen, ""), bad = sg_gen_block(gen, "bad.pointer"),
                      go = sg_gen_block(gen, "");
    LLVMBuildCondBr(B, LLVMBuildAnd(B, inside, whole, ""), good, bad);
    LLVMPositionBuilderAtEnd(B, bad);
    sg_gen_fault(gen, SG_FAULT_INVALID_PC);
    LLVMPositionBuilderAtEnd(B, good);
    LLVMValueRef place = LLVMBuildGEP2(B, gen->i8, table_for(gen, call), &offset, 1, "");
    LLVMValueRef code = LLVMBuildLoad2(B, gen->pointer, place, "");
    LLVMBuildCondBr(B, LLVMBuildIsNull(B, code, ""), bad, go);
    LLVMPositionBuilderAtEnd(B, go);
    return code;
}

static LLVMValueRef direct_target(struct sg_codegen *gen, const struct sg_ptx_function *callee)
{
    for (uint32_t i = 0; i < gen->reach->count; i++)
        if (gen->reach->functions[i] == callee && gen->functions[i] != NULL)
            return gen->functions[i];
    sg_fail(gen->arena->diagnostics, SG_COMPILE_UNRESOLVED, gen->insn->line, "undefined function '%s'",
            callee->name);
}

/* The engine gets the addresses of the arguments, and gives a number. */
static void call_device_runtime(struct sg_codegen *gen, const struct sg_ptx_function *callee,
                                LLVMValueRef *in, LLVMValueRef out)
{
    uint32_t count = callee->n_params;
    LLVMTypeRef row = LLVMArrayType(gen->pointer, count + 1);
    LLVMValueRef list = LLVMBuildAlloca(gen->entry_builder, row, "");
    for (uint32_t i = 0; i < count; i++) {
        LLVMValueRef offset = sg_gen_const(gen, 64, i * sizeof(void *));
        LLVMBuildStore(B, in[i], LLVMBuildGEP2(B, gen->i8, list, &offset, 1, ""));
    }
    LLVMValueRef arguments[] = {gen->thread, sg_gen_const(gen, 32, sg_device_call_find(callee)), list};
    LLVMValueRef result = sg_gen_runtime(gen, "sg_rt_device_call", gen->i64, arguments, 3);
    if (callee->returns[0].size <= 4)
        result = LLVMBuildTrunc(B, result, gen->i32, "");
    LLVMSetAlignment(LLVMBuildStore(B, result, out), 4);
}

static void call(struct sg_codegen *gen)
{
    const struct sg_call *call = gen->insn->call;
    uint32_t count = 1 + call->n_returns + call->n_arguments;
    LLVMValueRef *arguments = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    LLVMTypeRef *types = SG_NEW_ARRAY(gen->arena, LLVMTypeRef, count);
    LLVMValueRef *out = arguments + 1, *in = out + call->n_returns;
    arguments[0] = gen->thread;
    for (uint32_t i = 0; i < call->n_returns; i++)
        out[i] = argument_memory(gen, &call->returns[i],
                                 call->formals_out == NULL ? NULL : &call->formals_out[i], true);
    for (uint32_t i = 0; i < call->n_arguments; i++)
        in[i] = argument_memory(gen, &call->arguments[i],
                                call->formals_in == NULL ? NULL : &call->formals_in[i], false);
    enum sg_builtin builtin = call->callee == NULL ? SG_BUILTIN_NONE : sg_builtin_find(call->callee);
    if (builtin == SG_BUILTIN_DEVICE_CALL) {
        call_device_runtime(gen, call->callee, in, out[0]);
    } else if (builtin != SG_BUILTIN_NONE) {
        call_builtin(gen, builtin, in, out);
    } else {
        for (uint32_t i = 0; i < count; i++)
            types[i] = gen->pointer;
        LLVMTypeRef type = LLVMFunctionType(gen->nothing, types, count, 0);
        LLVMValueRef target =
            call->callee != NULL ? direct_target(gen, call->callee) : look_up_target(gen, call);
        LLVMBuildCall2(B, type, target, arguments, count, "");
    }
    for (uint32_t i = 0; i < call->n_returns; i++) {
        if (call->returns[i].kind != SG_OPERAND_REG)
            continue;
        enum sg_type type = call->formals_out[i].type;
        sg_gen_write(gen, &call->returns[i], type, LLVMBuildLoad2(B, sg_gen_type(gen, type), out[i], ""));
    }
}

void sg_gen_end(struct sg_codegen *gen)
{
    sg_gen_report_misaligned(gen);
    if (sg_gen_in_loops(gen))
        LLVMBuildRet(B, sg_gen_const(gen, 32, SG_POINT_END));
    else
        LLVMBuildRetVoid(B);
}

/* Results that are registers in the function's signature go to where the caller wants them. */
static void give_back(struct sg_codegen *gen)
{
    struct sg_ptx_function *function = gen->function;
    for (uint32_t i = 0; i < function->n_returns; i++) {
        const struct sg_var *formal = &function->returns[i];
        struct sg_operand operand = {.kind = SG_OPERAND_REG, .reg = formal->reg};
        if (formal->by_register)
            LLVMBuildStore(B, sg_gen_read(gen, &operand, formal->type), gen->formals_out[i]);
    }
    sg_gen_end(gen);
}

LLVMValueRef sg_emit_control(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_BRA:
        give_way(gen);
        LLVMBuildBr(B, gen->labels[gen->insn->operands[0].value]);
        break;
    case SG_OP_BRX:
        branch_indexed(gen);
        break;
    case SG_OP_CALL:
        call(gen);
        return NULL;
    case SG_OP_RET:
        give_back(gen);
        break;
    case SG_OP_EXIT:
        if (gen->function->is_entry) {
            sg_gen_end(gen);
        } else {
            sg_gen_report_misaligned(gen);
            sg_gen_runtime(gen, "sg_rt_exit", gen->nothing, &gen->thread, 1);
            LLVMBuildUnreachable(B);
        }
        break;
    case SG_OP_TRAP:
        sg_gen_fault(gen, gen->function->unknown != NULL ? SG_FAULT_ILLEGAL_INSTRUCTION : SG_FAULT_TRAP);
        break;
    case SG_OP_NOP: /* hints, and what waits for grids that have ended before this one starts */
        return NULL;
    case SG_OP_POLICY:
        return sg_gen_const(gen, 64, 0);
    default:
        sg_gen_lacks(gen);
    }
    continue_in_new_block(gen);
    return NULL;
}
