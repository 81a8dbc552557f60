/*
 * atomic.c - atom, red, fences. What the host has no instruction for is a loop around compare-and-
 * swap; 128 bits go through a function of math.h.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"
#include "softgpu/compiler/codegen/memory/memory.h"

#define B gen->builder

static LLVMAtomicOrdering ordering(struct sg_codegen *gen)
{
    return sg_gen_ordering(gen, true, true);
}

/* A failed exchange is a load: it cannot release. */
static LLVMAtomicOrdering failure_ordering(LLVMAtomicOrdering success)
{
    if (success == LLVMAtomicOrderingAcquireRelease)
        return LLVMAtomicOrderingAcquire;
    return success == LLVMAtomicOrderingRelease ? LLVMAtomicOrderingMonotonic : success;
}

static bool is_small(enum sg_type type)
{
    return type == SG_F16 || type == SG_BF16 || type == SG_F16X2 || type == SG_BF16X2;
}

static LLVMValueRef compute_small(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    enum sg_type type = sg_gen_type_of(gen);
    uint8_t op = SG_MOD(gen->insn, SG_GROUP_ATOM);
    a = sg_gen_small_to_f32(gen, type, a);
    b = sg_gen_small_to_f32(gen, type, b);
    LLVMValueRef value = op == SG_ATOM_MIN   ? sg_gen_math(gen, "llvm.minnum", a, b, NULL)
                         : op == SG_ATOM_MAX ? sg_gen_math(gen, "llvm.maxnum", a, b, NULL)
                                             : LLVMBuildFAdd(B, a, b, "");
    return sg_gen_f32_to_small(gen, type, value, SG_RN);
}

/* The new value of an operation that the host does not have. */
static LLVMValueRef compute(struct sg_codegen *gen, LLVMValueRef old, LLVMValueRef b)
{
    LLVMTypeRef type = LLVMTypeOf(old);
    LLVMValueRef zero = LLVMConstNull(type), one = LLVMConstInt(type, 1, 0);
    switch (SG_MOD(gen->insn, SG_GROUP_ATOM)) {
    case SG_ATOM_INC:
        return sg_gen_select(gen, sg_gen_compare(gen, LLVMIntUGE, old, b), zero,
                             LLVMBuildAdd(B, old, one, ""));
    case SG_ATOM_DEC: {
        LLVMValueRef wraps = LLVMBuildOr(B, sg_gen_compare(gen, LLVMIntEQ, old, zero),
                                         sg_gen_compare(gen, LLVMIntUGT, old, b), "");
        return sg_gen_select(gen, wraps, b, LLVMBuildSub(B, old, one, ""));
    }
    default:
        if (sg_gen_type_of(gen) == SG_F16 || sg_gen_type_of(gen) == SG_BF16)
            return compute_small(gen, old, b);
        LLVMValueRef low = compute_small(gen, sg_gen_part(gen, old, 0, 16), sg_gen_part(gen, b, 0, 16));
        LLVMValueRef high = compute_small(gen, sg_gen_part(gen, old, 1, 16), sg_gen_part(gen, b, 1, 16));
        return sg_gen_join(gen, low, high);
    }
}

static LLVMValueRef exchange_loop(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef b)
{
    LLVMTypeRef type = LLVMTypeOf(b);
    LLVMValueRef first = LLVMBuildLoad2(B, type, address, "");
    LLVMSetAlignment(first, LLVMGetIntTypeWidth(type) / 8);
    LLVMSetOrdering(first, LLVMAtomicOrderingMonotonic);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(B);
    LLVMBasicBlockRef loop = sg_gen_block(gen, "atomic"), done = sg_gen_block(gen, "atomic.done");
    LLVMBuildBr(B, loop);
    LLVMPositionBuilderAtEnd(B, loop);
    LLVMValueRef old = LLVMBuildPhi(B, type, "");
    LLVMAtomicOrdering success = ordering(gen);
    LLVMValueRef pair =
        LLVMBuildAtomicCmpXchg(B, address, old, compute(gen, old, b), success, failure_ordering(success), 0);
    LLVMValueRef seen = LLVMBuildExtractValue(B, pair, 0, "");
    LLVMAddIncoming(old, (LLVMValueRef[]){first, seen}, (LLVMBasicBlockRef[]){before, LLVMGetInsertBlock(B)},
                    2);
    LLVMBuildCondBr(B, LLVMBuildExtractValue(B, pair, 1, ""), done, loop);
    LLVMPositionBuilderAtEnd(B, done);
    return old;
}

static LLVMValueRef operate_wide(struct sg_codegen *gen, LLVMValueRef address, uint32_t first)
{
    /* b128: compare-and-swap and exchange, through memory */
    bool cas = SG_MOD(gen->insn, SG_GROUP_ATOM) == SG_ATOM_CAS;
    LLVMTypeRef type = sg_gen_int(gen, 128);
    LLVMValueRef slots[3];
    for (int i = 0; i < 3; i++) {
        slots[i] = LLVMBuildAlloca(gen->entry_builder, type, "");
        LLVMSetAlignment(slots[i], 16);
    }
    for (uint32_t i = 0; i < (cas ? 2u : 1u); i++)
        LLVMSetAlignment(
            LLVMBuildStore(B, sg_gen_read(gen, &gen->insn->operands[first + i], SG_B128), slots[i]), 16);
    LLVMValueRef arguments[4] = {address, slots[0], slots[1], slots[2]};
    if (cas)
        sg_gen_runtime(gen, "sg_atomic_cas_128", gen->nothing, arguments, 4);
    else
        sg_gen_runtime(gen, "sg_atomic_exch_128", gen->nothing, (LLVMValueRef[]){address, slots[0], slots[2]},
                       3);
    LLVMValueRef old = LLVMBuildLoad2(B, type, slots[2], "");
    LLVMSetAlignment(old, 16);
    return old;
}

static LLVMAtomicRMWBinOp host_operation(uint8_t op, enum sg_type type)
{
    bool is_signed = sg_type_is_signed(type);
    switch (op) {
    case SG_ATOM_AND:
        return LLVMAtomicRMWBinOpAnd;
    case SG_ATOM_OR:
        return LLVMAtomicRMWBinOpOr;
    case SG_ATOM_XOR:
        return LLVMAtomicRMWBinOpXor;
    case SG_ATOM_EXCH:
        return LLVMAtomicRMWBinOpXchg;
    case SG_ATOM_MIN:
        return is_signed ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin;
    case SG_ATOM_MAX:
        return is_signed ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax;
    default:
        return sg_type_is_float(type) ? LLVMAtomicRMWBinOpFAdd : LLVMAtomicRMWBinOpAdd;
    }
}

/*
 * The address that an operation works on. GPUs have no atomic operations on a thread's own memory, which a
 * generic address may mean.
 */
static LLVMValueRef target(struct sg_codegen *gen, const struct sg_operand *operand, uint32_t bytes)
{
    uint8_t space = sg_gen_space(gen);
    LLVMValueRef address = sg_gen_address(gen, operand, space);
    if (space == 0 && gen->reach->has_local) {
        LLVMBasicBlockRef bad = sg_gen_block(gen, "bad.space"), good = sg_gen_block(gen, "");
        LLVMValueRef local = sg_gen_in_local(gen, LLVMBuildPtrToInt(B, address, gen->i64, ""));
        LLVMBuildCondBr(B, local, bad, good);
        LLVMPositionBuilderAtEnd(B, bad);
        sg_gen_fault(gen, SG_FAULT_ADDRESS_SPACE);
        LLVMPositionBuilderAtEnd(B, good);
    }
    sg_gen_access(gen, operand, address, space, bytes, SG_ACCESS_ATOMIC);
    return address;
}

/* The new value of an operation that the host has. */
static LLVMValueRef compute_plain(struct sg_codegen *gen, uint8_t op, enum sg_type type, LLVMValueRef old,
                                  LLVMValueRef b)
{
    bool is_signed = sg_type_is_signed(type);
    switch (op) {
    case SG_ATOM_AND:
        return LLVMBuildAnd(B, old, b, "");
    case SG_ATOM_OR:
        return LLVMBuildOr(B, old, b, "");
    case SG_ATOM_XOR:
        return LLVMBuildXor(B, old, b, "");
    case SG_ATOM_EXCH:
        return b;
    case SG_ATOM_MIN:
        return sg_gen_math(gen, is_signed ? "llvm.smin" : "llvm.umin", old, b, NULL);
    case SG_ATOM_MAX:
        return sg_gen_math(gen, is_signed ? "llvm.smax" : "llvm.umax", old, b, NULL);
    default:
        return sg_type_is_float(type) ? LLVMBuildFAdd(B, old, b, "") : LLVMBuildAdd(B, old, b, "");
    }
}

/*
 * In .shared memory, which only the threads of a block, or of a cluster, see: they run on one core and change
 * only at calls, so that nothing comes between a load and a store. `c` is the new value of a
 * compare-and-swap, else NULL.
 */
static LLVMValueRef operate_in_block(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef b,
                                     LLVMValueRef c)
{
    enum sg_type type = sg_gen_type_of(gen);
    uint8_t op = SG_MOD(gen->insn, SG_GROUP_ATOM);
    unsigned align = (unsigned)sg_type_bytes(type);
    LLVMValueRef old = LLVMBuildLoad2(B, LLVMTypeOf(b), address, ""), value;
    LLVMSetAlignment(old, align);
    if (c != NULL)
        value = sg_gen_select(gen, sg_gen_compare(gen, LLVMIntEQ, old, b), c, old);
    else if (is_small(type) || op == SG_ATOM_INC || op == SG_ATOM_DEC)
        value = compute(gen, old, b);
    else
        value = compute_plain(gen, op, type, old, b);
    LLVMSetAlignment(LLVMBuildStore(B, value, address), align);
    return old;
}

void sg_gen_reduce(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef value)
{
    enum sg_type type = sg_gen_type_of(gen);
    uint8_t op = SG_MOD(gen->insn, SG_GROUP_ATOM);
    if (SG_MOD(gen->insn, SG_GROUP_SPACE) == SG_MOD_SHARED)
        operate_in_block(gen, address, value, NULL);
    else if (is_small(type) || op == SG_ATOM_INC || op == SG_ATOM_DEC)
        exchange_loop(gen, address, value);
    else
        LLVMBuildAtomicRMW(B, host_operation(op, type), address, value, ordering(gen), 0);
}

/* `first`: the operand after the address. */
static LLVMValueRef operate(struct sg_codegen *gen, uint32_t first)
{
    enum sg_type type = sg_gen_type_of(gen);
    uint8_t op = SG_MOD(gen->insn, SG_GROUP_ATOM);
    LLVMValueRef address = target(gen, &gen->insn->operands[first - 1], sg_type_bytes(type));
    if (type == SG_B128)
        return operate_wide(gen, address, first);
    LLVMValueRef b = sg_gen_read(gen, &gen->insn->operands[first], type), c = NULL;
    if (op == SG_ATOM_CAS)
        c = sg_gen_read(gen, &gen->insn->operands[first + 1], type);
    if (op == SG_ATOM_EXCH && type == SG_F32)
        b = sg_gen_cast(gen, b, gen->i32);
    if (SG_MOD(gen->insn, SG_GROUP_SPACE) == SG_MOD_SHARED)
        return operate_in_block(gen, address, b, c);
    if (op == SG_ATOM_CAS) {
        LLVMAtomicOrdering success = ordering(gen);
        LLVMValueRef pair = LLVMBuildAtomicCmpXchg(B, address, b, c, success, failure_ordering(success), 0);
        return LLVMBuildExtractValue(B, pair, 0, "");
    }
    if (is_small(type) || op == SG_ATOM_INC || op == SG_ATOM_DEC)
        return exchange_loop(gen, address, b);
    return LLVMBuildAtomicRMW(B, host_operation(op, type), address, b, ordering(gen), 0);
}

/* Element by element. `from`: the vector after the address; `to`: the vector of old values, or NULL. */
static void operate_vector(struct sg_codegen *gen, const struct sg_operand *to, const struct sg_operand *from)
{
    enum sg_type type = sg_gen_type_of(gen);
    bool small = type != SG_F32;
    LLVMValueRef address = target(gen, from - 1, from->count * sg_type_bytes(type));
    for (uint32_t i = 0; i < from->count; i++) {
        LLVMValueRef offset = sg_gen_const(gen, 64, (uint64_t)i * sg_type_bytes(type));
        LLVMValueRef place = LLVMBuildGEP2(B, gen->i8, address, &offset, 1, "");
        LLVMValueRef b = sg_gen_read(gen, &from->items[i], type);
        LLVMValueRef old = small ? exchange_loop(gen, place, b)
                                 : LLVMBuildAtomicRMW(B, LLVMAtomicRMWBinOpFAdd, place, b, ordering(gen), 0);
        if (to != NULL)
            sg_gen_write(gen, &to->items[i], type, old);
    }
}

static void fence(struct sg_codegen *gen)
{
    LLVMAtomicOrdering order = LLVMAtomicOrderingSequentiallyConsistent;
    if (SG_MOD(gen->insn, SG_GROUP_SEM) == SG_ACQ_REL)
        order = LLVMAtomicOrderingAcquireRelease;
    LLVMBuildFence(B, order, 0, "");
    if (gen->form == SG_CODE_THREAD)
        sg_gen_runtime(gen, "sg_rt_fence", gen->nothing, &gen->thread, 1);
}

LLVMValueRef sg_emit_atomic(struct sg_codegen *gen)
{
    const struct sg_operand *operands = gen->insn->operands;
    bool vector = SG_MOD(gen->insn, SG_GROUP_VEC) != 0;
    switch (gen->insn->form->op) {
    case SG_OP_ATOM:
        if (vector) {
            operate_vector(gen, &operands[0], &operands[2]);
            return NULL;
        }
        return operate(gen, 2);
    case SG_OP_RED:
        if (vector)
            operate_vector(gen, NULL, &operands[1]);
        else
            operate(gen, 1);
        return NULL;
    case SG_OP_FENCE:
        fence(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
