/*
 * guard.c - see guard.h. One pass over the instructions of each function.
 *
 * A pointer is followed back through additions of small distances (constants, and integers that were widened
 * from 32 bits or less: indices of arrays), to its root: an argument, what was loaded, a sum of something
 * larger. The root is confined right where it is defined, and the additions are made again from there. All
 * accesses by the same root share that, and if it comes from outside of a loop, so does the mask.
 *
 * What LLVM takes for undefined (a kernel can read a variable that nothing was written to) has no value that a mask would
 * hold for: roots are frozen first. And where LLVM has concluded that control cannot come, the processor would run into
 * whatever code is next: a trap is there.
 */
#include "softgpu/compiler/jit/guard.h"
#include "softgpu/compiler/jit/guard_internal.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8u /* of what is looked at to bound a distance */

/* --- pointers that have been confined in this function --- */

static size_t place_of(const struct guard *guard, LLVMValueRef pointer)
{
    size_t i = ((uintptr_t)pointer >> 4) * UINT64_C(0x9e3779b97f4a7c15) & (guard->capacity - 1);
    while (guard->map[i].pointer != NULL && guard->map[i].pointer != pointer)
        i = (i + 1) & (guard->capacity - 1);
    return i;
}

static bool grow(struct guard *guard)
{
    struct confined *old = guard->map;
    size_t n = guard->capacity;
    if (guard->n * 2 < n)
        return true;
    guard->capacity = n == 0 ? 256 : n * 2;
    guard->map = calloc(guard->capacity, sizeof(*guard->map));
    if (guard->map == NULL) {
        guard->map = old;
        guard->capacity = n;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (old[i].pointer != NULL)
            guard->map[place_of(guard, old[i].pointer)] = old[i];
    free(old);
    return true;
}

static struct confined *find(struct guard *guard, LLVMValueRef pointer)
{
    if (guard->capacity == 0)
        return NULL;
    struct confined *found = &guard->map[place_of(guard, pointer)];
    return found->pointer != NULL ? found : NULL;
}

static struct confined remember(struct guard *guard, LLVMValueRef pointer, LLVMValueRef value,
                                uint64_t distance)
{
    struct confined entry = {pointer, value, distance};
    if (!grow(guard)) {
        guard->no_memory = true;
        return entry;
    }
    guard->map[place_of(guard, pointer)] = entry;
    guard->n++;
    return entry;
}

/* --- what kind of value it is --- */

static LLVMTypeRef scalar_of(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

static bool is_guest(LLVMValueRef value)
{
    LLVMTypeRef type = scalar_of(LLVMTypeOf(value));
    return LLVMGetTypeKind(type) == LLVMPointerTypeKind && LLVMGetPointerAddressSpace(type) == SG_GUEST_SPACE;
}

static LLVMOpcode opcode_of(LLVMValueRef value)
{
    if (LLVMIsAInstruction(value) != NULL)
        return LLVMGetInstructionOpcode(value);
    return LLVMIsAConstantExpr(value) != NULL ? LLVMGetConstOpcode(value) : 0;
}

static uint64_t saturated(uint64_t a, uint64_t b)
{
    return a > SG_GUEST_SLACK - b ? SG_GUEST_SLACK : a + b;
}

static unsigned bits_of(LLVMValueRef value)
{
    return LLVMGetIntTypeWidth(scalar_of(LLVMTypeOf(value)));
}

/*
 * The most that an integer of 64 bits, signed, can differ from 0; SG_GUEST_SLACK: too much, or not known. Sums may
 * wrap or not: what is summed is so small that they do not.
 */
static uint64_t distance_of(LLVMValueRef value, unsigned depth)
{
    if (LLVMIsAConstantInt(value) != NULL) {
        int64_t number = LLVMConstIntGetSExtValue(value);
        uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;
        return size < SG_GUEST_SLACK ? size : SG_GUEST_SLACK;
    }
    if (depth == 0)
        return SG_GUEST_SLACK;
    switch (opcode_of(value)) {
    case LLVMZExt:
    case LLVMSExt: {
        unsigned bits = bits_of(LLVMGetOperand(value, 0));
        return bits <= 32 ? UINT64_C(1) << bits : SG_GUEST_SLACK;
    }
    case LLVMAdd:
    case LLVMSub:
        return saturated(distance_of(LLVMGetOperand(value, 0), depth - 1),
                         distance_of(LLVMGetOperand(value, 1), depth - 1));
    case LLVMShl: {
        LLVMValueRef by = LLVMGetOperand(value, 1);
        uint64_t size = distance_of(LLVMGetOperand(value, 0), depth - 1);
        if (LLVMIsAConstantInt(by) == NULL || LLVMConstIntGetZExtValue(by) > 40)
            return SG_GUEST_SLACK;
        unsigned count = (unsigned)LLVMConstIntGetZExtValue(by);
        return size > SG_GUEST_SLACK >> count ? SG_GUEST_SLACK : size << count;
    }
    case LLVMAnd: {
        LLVMValueRef mask = LLVMGetOperand(value, 1);
        if (LLVMIsAConstantInt(mask) != NULL && LLVMConstIntGetZExtValue(mask) < SG_GUEST_SLACK)
            return LLVMConstIntGetZExtValue(mask);
        return SG_GUEST_SLACK;
    }
    default:
        return SG_GUEST_SLACK;
    }
}

/* --- confining --- */

static LLVMTypeRef integer_like(const struct guard *guard, LLVMTypeRef type)
{
    LLVMTypeRef word = LLVMInt64TypeInContext(guard->context);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMVectorType(word, LLVMGetVectorSize(type)) : word;
}

static LLVMValueRef mask_like(const struct guard *guard, LLVMTypeRef type)
{
    LLVMValueRef mask = LLVMConstInt(LLVMInt64TypeInContext(guard->context), SG_GUEST_MASK, 0);
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind)
        return mask;
    unsigned count = LLVMGetVectorSize(type);
    LLVMValueRef *all = malloc(count * sizeof(LLVMValueRef));
    if (all == NULL)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        all[i] = mask;
    LLVMValueRef vector = LLVMConstVector(all, count);
    free(all);
    return vector;
}

/* Builds right behind the definition of a value. */
static void build_behind(struct guard *guard, LLVMValueRef value)
{
    LLVMValueRef next;
    if (LLVMIsAInstruction(value) == NULL) {
        next = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(guard->function));
        while (next != NULL && LLVMGetInstructionOpcode(next) == LLVMAlloca)
            next = LLVMGetNextInstruction(next);
    } else {
        next = LLVMGetNextInstruction(value);
    }
    while (next != NULL && LLVMGetInstructionOpcode(next) == LLVMPHI)
        next = LLVMGetNextInstruction(next);
    LLVMPositionBuilderBefore(guard->builder, next);
}

static struct confined confine(struct guard *guard, LLVMValueRef pointer);

/* The distance that getelementptr adds: SG_GUEST_SLACK if it is large or not known. */
static uint64_t distance_added(const struct guard *guard, LLVMValueRef gep)
{
    LLVMTypeRef type = LLVMGetGEPSourceElementType(gep);
    if (LLVMGetNumIndices(gep) != 1 || !LLVMTypeIsSized(type))
        return SG_GUEST_SLACK;
    LLVMValueRef index = LLVMGetOperand(gep, 1);
    uint64_t size = LLVMABISizeOfType(guard->layout, type), count = SG_GUEST_SLACK;
    if (bits_of(index) <= 32)
        count = UINT64_C(1) << bits_of(index);
    else if (bits_of(index) == 64)
        count = distance_of(index, DEPTH_MAX);
    return size != 0 && count >= SG_GUEST_SLACK / size ? SG_GUEST_SLACK : count * size;
}

/* An addition of a small distance, made again with a base that is confined. */
static bool confine_sum(struct guard *guard, LLVMValueRef gep, struct confined *out)
{
    LLVMValueRef base = LLVMGetOperand(gep, 0), index = LLVMGetOperand(gep, 1);
    uint64_t distance = distance_added(guard, gep);
    if (distance >= SG_GUEST_SLACK || !is_guest(base) || LLVMIsUndef(index))
        return false;
    struct confined from = confine(guard, base);
    if (from.distance + distance >= SG_GUEST_SLACK)
        return false;
    build_behind(guard, gep);
    LLVMValueRef sum =
        LLVMBuildGEP2(guard->builder, LLVMGetGEPSourceElementType(gep), from.value, &index, 1, "");
    *out = remember(guard, gep, sum, from.distance + distance);
    return true;
}

static struct confined confine(struct guard *guard, LLVMValueRef pointer)
{
    struct confined *known = find(guard, pointer), result;
    if (known != NULL)
        return *known;
    if (LLVMIsAGetElementPtrInst(pointer) != NULL && confine_sum(guard, pointer, &result))
        return result;
    build_behind(guard, pointer);
    LLVMTypeRef type = LLVMTypeOf(pointer), word = integer_like(guard, type);
    LLVMValueRef mask = mask_like(guard, type);
    if (mask == NULL) {
        guard->no_memory = true;
        return (struct confined){pointer, pointer, 0};
    }
    LLVMValueRef value = LLVMBuildPtrToInt(guard->builder, pointer, word, "");
    value = LLVMBuildFreeze(guard->builder, value, "");
    value = LLVMBuildAnd(guard->builder, value, mask, "");
    return remember(guard, pointer, LLVMBuildIntToPtr(guard->builder, value, type, ""), 0);
}

/* --- accesses --- */

static void confine_operand(struct guard *guard, LLVMValueRef insn, unsigned operand)
{
    LLVMValueRef pointer = LLVMGetOperand(insn, operand);
    if (is_guest(pointer))
        LLVMSetOperand(insn, operand, confine(guard, pointer).value);
}

/* An ordinary pointer, confined. */
static LLVMValueRef host_pointer(struct guard *guard, LLVMValueRef pointer, LLVMValueRef before)
{
    if (!is_guest(pointer))
        return pointer;
    LLVMValueRef value = confine(guard, pointer).value;
    LLVMPositionBuilderBefore(guard->builder, before);
    return LLVMBuildAddrSpaceCast(guard->builder, value, LLVMPointerTypeInContext(guard->context, 0), "");
}

/* A length in bytes, no more than leads to where nothing is. */
static LLVMValueRef bounded(struct guard *guard, LLVMValueRef size)
{
    LLVMValueRef most = LLVMConstInt(LLVMTypeOf(size), SG_GUEST_SLACK / 2, 0);
    if (LLVMGetIntTypeWidth(LLVMTypeOf(size)) < 64)
        return size;
    if (LLVMIsAConstantInt(size) == NULL)
        size = LLVMBuildFreeze(guard->builder, size, "");
    return LLVMBuildSelect(guard->builder, LLVMBuildICmp(guard->builder, LLVMIntULT, size, most, ""), size,
                           most, "");
}

/* memset, memcpy and memmove, made again with ordinary pointers, as LLVM has functions to call for these only. */
static bool confine_block(struct guard *guard, LLVMValueRef insn, const char *name)
{
    bool set = strncmp(name, "llvm.memset.p", 13) == 0, copy = strncmp(name, "llvm.memcpy.p", 13) == 0,
         move = strncmp(name, "llvm.memmove.p", 14) == 0;
    if (!set && !copy && !move)
        return false;
    LLVMValueRef to = host_pointer(guard, LLVMGetOperand(insn, 0), insn), second = LLVMGetOperand(insn, 1);
    if (!set)
        second = host_pointer(guard, second, insn);
    LLVMPositionBuilderBefore(guard->builder, insn);
    LLVMValueRef size = bounded(guard, LLVMGetOperand(insn, 2));
    if (set)
        LLVMBuildMemSet(guard->builder, to, second, size, 1);
    else if (copy)
        LLVMBuildMemCpy(guard->builder, to, 1, second, 1, size);
    else
        LLVMBuildMemMove(guard->builder, to, 1, second, 1, size);
    LLVMInstructionEraseFromParent(insn);
    return true;
}

/* Intrinsics that access memory by pointers of kernels. What is called otherwise gets none. */
static bool confine_call(struct guard *guard, LLVMValueRef insn)
{
    int count = LLVMGetNumArgOperands(insn);
    bool any = false;
    for (int i = 0; i < count; i++)
        any |= is_guest(LLVMGetOperand(insn, (unsigned)i));
    if (!any)
        return true;
    static const char *const known[] = {"llvm.masked.", "llvm.prefetch"};
    size_t size = 0;
    LLVMValueRef callee = LLVMGetCalledValue(insn);
    const char *name = callee != NULL ? LLVMGetValueName2(callee, &size) : "";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0) {
            for (int a = 0; a < count; a++)
                confine_operand(guard, insn, (unsigned)a);
            return true;
        }
    if (strncmp(name, "llvm.assume", 11) == 0 || strncmp(name, "llvm.lifetime", 13) == 0)
        return true;
    if (confine_block(guard, insn, name))
        return true;
    sg_text_append(guard->log, "a kernel's pointer goes to '%s', which is not confined\n", name);
    return false;
}

/* --- where control must not come --- */

static void trap_before(struct guard *guard, LLVMValueRef insn)
{
    unsigned id = LLVMLookupIntrinsicID("llvm.trap", 9);
    LLVMTypeRef type = LLVMIntrinsicGetType(guard->context, id, NULL, 0);
    LLVMPositionBuilderBefore(guard->builder, insn);
    LLVMBuildCall2(guard->builder, type, LLVMGetIntrinsicDeclaration(guard->module, id, NULL, 0), NULL, 0,
                   "");
}

/* An access by what is no pointer: whatever a register happens to hold would be taken. */
static void trap_undefined(struct guard *guard, LLVMValueRef insn, LLVMValueRef pointer)
{
    if (LLVMIsUndef(pointer) && !is_guest(pointer))
        trap_before(guard, insn);
}

static bool confine_instruction(struct guard *guard, LLVMValueRef insn)
{
    switch (LLVMGetInstructionOpcode(insn)) {
    case LLVMLoad:
    case LLVMAtomicRMW:
    case LLVMAtomicCmpXchg:
        trap_undefined(guard, insn, LLVMGetOperand(insn, 0));
        confine_operand(guard, insn, 0);
        return true;
    case LLVMStore:
        trap_undefined(guard, insn, LLVMGetOperand(insn, 1));
        confine_operand(guard, insn, 1);
        return true;
    case LLVMUnreachable:
        trap_before(guard, insn);
        return true;
    case LLVMCall:
        trap_undefined(guard, insn, LLVMGetCalledValue(insn));
        return confine_call(guard, insn);
    default:
        return true;
    }
}

static bool confine_function(struct guard *guard)
{
    bool good = true;
    guard->n = 0;
    if (guard->map != NULL)
        memset(guard->map, 0, guard->capacity * sizeof(*guard->map));
    good = sg_guard_move_locals(guard);
    LLVMAddAttributeAtIndex(guard->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateStringAttribute(guard->context, "probe-stack", 11, "inline-asm", 10));
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(guard->function); block != NULL;
         block = LLVMGetNextBasicBlock(block))
        for (LLVMValueRef insn = LLVMGetFirstInstruction(block), next; insn != NULL; insn = next) {
            next = LLVMGetNextInstruction(insn);
            good = confine_instruction(guard, insn) && good;
        }
    return good;
}

bool sg_guard_confine(LLVMModuleRef module, struct sg_text *log)
{
    struct guard guard = {.context = LLVMGetModuleContext(module),
                          .module = module,
                          .layout = LLVMGetModuleDataLayout(module),
                          .log = log};
    bool good = true;
    guard.builder = LLVMCreateBuilderInContext(guard.context);
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f != NULL; f = LLVMGetNextFunction(f)) {
        guard.function = f;
        if (LLVMCountBasicBlocks(f) > 0)
            good = confine_function(&guard) && good;
    }
    LLVMDisposeBuilder(guard.builder);
    free(guard.map);
    return good && !guard.no_memory;
}
