/*
 * guard_locals.c - moves variables that a kernel computes addresses of from the processor's stack, where return
 * addresses are, to the stack of the kernel's own (struct sg_local_stack). See guard.h.
 *
 * What is left on the processor's stack after optimisation is accessed at constant places inside of it, or by the
 * engine. All else moves: where the address becomes a kernel's pointer or a number, is chosen among several,
 * or goes to another function of the kernel.
 */
#include "softgpu/compiler/jit/guard.h"
#include "softgpu/compiler/jit/guard_internal.h"
#include "softgpu/guest.h"
#include "softgpu/kernel_abi.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_LEAST 16u
#define DEPTH_MAX   16u

struct local {
    LLVMValueRef variable;
    uint64_t offset; /* from the frame's start */
};

static bool has_prefix(LLVMValueRef function, const char *prefix)
{
    size_t size = 0;
    const char *name = LLVMIsAFunction(function) != NULL ? LLVMGetValueName2(function, &size) : "";
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool leaves_place(const struct guard *guard, LLVMValueRef pointer, uint64_t at, uint64_t size,
                         unsigned depth);

/* The frame's thread (codegen/loops/frame_text.c), which is the engine's. */
static bool is_thread(LLVMValueRef variable)
{
    static const char name[] = "thread";
    size_t size = 0;
    return LLVMIsAAllocaInst(variable) != NULL &&
           strncmp(LLVMGetValueName2(variable, &size), name, sizeof(name) - 1) == 0;
}

/* What a call does with a pointer to a variable. The first argument of all that is a kernel's is the thread, if it is used. */
static bool leaves_by_call(LLVMValueRef call, LLVMValueRef pointer)
{
    LLVMValueRef callee = LLVMGetCalledValue(call);
    if (callee == pointer)
        return true;
    if (has_prefix(callee, "llvm.lifetime") || has_prefix(callee, "llvm.assume"))
        return false;
    if (has_prefix(callee, "llvm."))
        return true;
    /* the engine's functions, which know how much there is; and parts of the frame, with the frame's variables */
    if (LLVMIsAFunction(callee) != NULL && !has_prefix(callee, "sg.f"))
        return false;
    for (unsigned i = 0; i < LLVMGetNumArgOperands(call); i++)
        if (LLVMGetOperand(call, i) == pointer && !(i == 0 && is_thread(pointer)))
            return true;
    return false;
}

static uint64_t size_of(const struct guard *guard, LLVMTypeRef type)
{
    return LLVMStoreSizeOfType(guard->layout, type);
}

static bool leaves_by(const struct guard *guard, LLVMValueRef user, LLVMValueRef pointer, uint64_t at,
                      uint64_t size, unsigned depth)
{
    LLVMTypeRef type;
    switch (LLVMGetInstructionOpcode(user)) {
    case LLVMLoad:
        return size_of(guard, LLVMTypeOf(user)) > size - at;
    case LLVMStore:
        type = LLVMTypeOf(LLVMGetOperand(user, 0));
        return LLVMGetOperand(user, 0) == pointer || size_of(guard, type) > size - at;
    case LLVMGetElementPtr: {
        LLVMValueRef index = LLVMGetOperand(user, 1);
        if (LLVMGetNumIndices(user) != 1 || LLVMIsAConstantInt(index) == NULL)
            return true;
        uint64_t scale = LLVMABISizeOfType(guard->layout, LLVMGetGEPSourceElementType(user));
        int64_t distance;
        if (__builtin_mul_overflow(LLVMConstIntGetSExtValue(index), (int64_t)scale, &distance) ||
            distance < -(int64_t)at || distance > (int64_t)(size - at))
            return true;
        return leaves_place(guard, user, at + (uint64_t)distance, size, depth);
    }
    case LLVMCall:
        return leaves_by_call(user, pointer);
    default:
        return true;
    }
}

/* Whether a pointer to byte `at` of a variable is used for more than the variable's own bytes. */
static bool leaves_place(const struct guard *guard, LLVMValueRef pointer, uint64_t at, uint64_t size,
                         unsigned depth)
{
    if (depth == 0)
        return true;
    for (LLVMUseRef use = LLVMGetFirstUse(pointer); use != NULL; use = LLVMGetNextUse(use)) {
        LLVMValueRef user = LLVMGetUser(use);
        if (LLVMIsAInstruction(user) == NULL || leaves_by(guard, user, pointer, at, size, depth - 1))
            return true;
    }
    return false;
}

/* The variable's bytes; 0: their number is not constant. */
static uint64_t bytes_of(const struct guard *guard, LLVMValueRef variable)
{
    LLVMValueRef count = LLVMGetOperand(variable, 0);
    if (LLVMIsAConstantInt(count) == NULL)
        return 0;
    uint64_t one = LLVMABISizeOfType(guard->layout, LLVMGetAllocatedType(variable)), all;
    return __builtin_mul_overflow(one, LLVMConstIntGetZExtValue(count), &all) || all > SG_GUEST_SLACK / 4
               ? 0
               : all;
}

static void remove_lifetimes(LLVMValueRef variable)
{
    for (LLVMUseRef use = LLVMGetFirstUse(variable), next; use != NULL; use = next) {
        LLVMValueRef user = LLVMGetUser(use);
        next = LLVMGetNextUse(use);
        if (LLVMIsACallInst(user) != NULL && has_prefix(LLVMGetCalledValue(user), "llvm.lifetime"))
            LLVMInstructionEraseFromParent(user);
    }
}

/* A pointer to the stack's description; `at` says where it goes. */
static LLVMValueRef call_for_stack(struct guard *guard)
{
    static const char name[] = "sg_rt_local_stack";
    LLVMTypeRef pointer = LLVMPointerTypeInContext(guard->context, 0);
    LLVMTypeRef type = LLVMFunctionType(pointer, NULL, 0, 0);
    LLVMValueRef function = LLVMGetNamedFunction(guard->module, name);
    if (function == NULL) {
        function = LLVMAddFunction(guard->module, name, type);
        LLVMAddAttributeAtIndex(
            function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
            LLVMCreateEnumAttribute(guard->context, LLVMGetEnumAttributeKindForName("nounwind", 8), 0));
    }
    _Static_assert(offsetof(struct sg_local_stack, top) == 0, "the top is at the pointer");
    return LLVMBuildCall2(guard->builder, type, function, NULL, 0, "");
}

/* Makes the frame at the function's start and gives it back before each return. */
static LLVMValueRef make_frame(struct guard *guard, uint64_t size, uint64_t align)
{
    LLVMTypeRef word = LLVMInt64TypeInContext(guard->context);
    LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(guard->function);
    LLVMValueRef first = LLVMGetFirstInstruction(entry);
    while (LLVMGetInstructionOpcode(first) == LLVMAlloca)
        first = LLVMGetNextInstruction(first);
    LLVMPositionBuilderBefore(guard->builder, first);
    LLVMValueRef stack = call_for_stack(guard);
    LLVMValueRef before = LLVMBuildLoad2(guard->builder, word, stack, "");
    LLVMValueRef frame = LLVMBuildSub(guard->builder, before, LLVMConstInt(word, size, 0), "");
    frame = LLVMBuildAnd(guard->builder, frame, LLVMConstInt(word, SG_GUEST_MASK & -align, 0), "");
    LLVMBuildStore(guard->builder, frame, stack);
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(guard->function); block != NULL;
         block = LLVMGetNextBasicBlock(block)) {
        LLVMValueRef last = LLVMGetBasicBlockTerminator(block);
        if (last == NULL || LLVMGetInstructionOpcode(last) != LLVMRet)
            continue;
        LLVMPositionBuilderBefore(guard->builder, last);
        LLVMBuildStore(guard->builder, before, stack);
    }
    LLVMPositionBuilderBefore(guard->builder, first);
    return frame;
}

static bool move_all(struct guard *guard, const struct local *locals, size_t count, uint64_t size,
                     uint64_t align)
{
    LLVMTypeRef word = LLVMInt64TypeInContext(guard->context);
    LLVMValueRef frame = make_frame(guard, size, align);
    for (size_t i = 0; i < count; i++) {
        LLVMValueRef variable = locals[i].variable;
        remove_lifetimes(variable);
        LLVMValueRef place = LLVMBuildAdd(guard->builder, frame, LLVMConstInt(word, locals[i].offset, 0), "");
        place = LLVMBuildIntToPtr(guard->builder, place, LLVMTypeOf(variable), "");
        LLVMReplaceAllUsesWith(variable, place);
        LLVMInstructionEraseFromParent(variable);
    }
    return true;
}

bool sg_guard_move_locals(struct guard *guard)
{
    struct local *locals = NULL;
    size_t count = 0, capacity = 0;
    uint64_t size = 0, most = ALIGN_LEAST;
    bool good = true;
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(guard->function); block != NULL && good;
         block = LLVMGetNextBasicBlock(block))
        for (LLVMValueRef insn = LLVMGetFirstInstruction(block); insn != NULL && good;
             insn = LLVMGetNextInstruction(insn)) {
            if (LLVMGetInstructionOpcode(insn) != LLVMAlloca)
                continue;
            uint64_t bytes = bytes_of(guard, insn), align = LLVMGetAlignment(insn);
            if (bytes != 0 && !leaves_place(guard, insn, 0, bytes, DEPTH_MAX))
                continue;
            good = bytes != 0 && block == LLVMGetEntryBasicBlock(guard->function);
            if (!good)
                sg_text_append(guard->log,
                               "a variable of the kernel's cannot be moved off the processor's stack\n");
            if (good && count == capacity) {
                capacity = capacity == 0 ? 32 : capacity * 2;
                struct local *more = realloc(locals, capacity * sizeof(*locals));
                good = more != NULL;
                locals = good ? more : locals;
            }
            if (!good)
                continue;
            align = align < ALIGN_LEAST ? ALIGN_LEAST : align;
            most = align > most ? align : most;
            size = (size + align - 1) & ~(align - 1);
            locals[count++] = (struct local){insn, size};
            size += bytes;
        }
    good = good && size < SG_GUEST_SLACK / 2;
    if (good && count > 0)
        good = move_all(guard, locals, count, size + SG_GUARD_OVERHANG, most);
    free(locals);
    return good;
}
