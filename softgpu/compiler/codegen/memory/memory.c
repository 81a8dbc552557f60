/*
 * memory.c - mov, ld, st, prefetch, the stack.
 *
 * Weak accesses are ordinary loads and stores. Volatile and relaxed ones are atomic (monotonic) and volatile;
 * acquire and release say so.
 */
#include "softgpu/compiler/codegen/memory/memory.h"
#include "softgpu/guest.h"

#define B gen->builder

LLVMAtomicOrdering sg_gen_ordering(struct sg_codegen *gen, bool load, bool store)
{
    switch (SG_MOD(gen->insn, SG_GROUP_SEM)) {
    case SG_ACQUIRE:
        return load ? LLVMAtomicOrderingAcquire : LLVMAtomicOrderingMonotonic;
    case SG_RELEASE:
        return store ? LLVMAtomicOrderingRelease : LLVMAtomicOrderingMonotonic;
    case SG_ACQ_REL:
        return LLVMAtomicOrderingAcquireRelease;
    case SG_SC:
        return LLVMAtomicOrderingSequentiallyConsistent;
    default:
        return LLVMAtomicOrderingMonotonic;
    }
}

void sg_gen_mark_parallel(struct sg_codegen *gen, LLVMValueRef access, uint8_t space)
{
    /* what may be the thread's own memory is not independent of the other threads' turns: they reuse it */
    bool own = space == SG_MOD_LOCAL || space == SG_MOD_PARAM || (space == 0 && gen->reach->has_local);
    if (gen->access_group != NULL && !own)
        LLVMSetMetadata(access, gen->access_group_kind, gen->access_group);
}

/* .cv asks to fetch again: as .volatile does. */
static bool is_strong(struct sg_codegen *gen)
{
    uint8_t sem = SG_MOD(gen->insn, SG_GROUP_SEM);
    return (sem != 0 && sem != SG_WEAK) || SG_MOD(gen->insn, SG_GROUP_CACHE) == SG_CACHE_CV;
}

static void shape_access(struct sg_codegen *gen, LLVMValueRef access, uint32_t align, bool load)
{
    uint8_t sem = SG_MOD(gen->insn, SG_GROUP_SEM);
    LLVMSetAlignment(access, align);
    if (is_strong(gen) && align <= 8) {
        LLVMSetOrdering(access, sg_gen_ordering(gen, load, !load));
        LLVMSetVolatile(access, sem == SG_VOLATILE || sem == SG_RELAXED || sem == 0);
    } else if (!is_strong(gen)) {
        sg_gen_mark_parallel(gen, access, SG_MOD(gen->insn, SG_GROUP_SPACE));
    }
}

static uint32_t vector_width(const struct sg_insn *insn)
{
    return SG_MOD(insn, SG_GROUP_VEC) == 0 ? 1 : 1u << SG_MOD(insn, SG_GROUP_VEC);
}

/* Memory holds half precision as 16 bits, predicates never. */
static LLVMValueRef element_address(struct sg_codegen *gen, LLVMValueRef address, uint32_t i, uint32_t bytes)
{
    if (i == 0)
        return address;
    LLVMValueRef offset = sg_gen_const(gen, 64, (uint64_t)i * bytes);
    return LLVMBuildGEP2(B, gen->i8, address, &offset, 1, "");
}

/* The alignment PTX promises for element i of a vector access. */
static uint32_t element_align(uint32_t width, uint32_t i, uint32_t bytes)
{
    uint32_t whole = width * bytes, offset = i * bytes;
    uint32_t align = offset == 0 ? whole : offset & -offset;
    return align > 16 ? 16 : align;
}

static bool is_entry_param(struct sg_codegen *gen, const struct sg_operand *address)
{
    return gen->function->is_entry && sg_is_own_param(gen->function, address);
}

/* A kernel's parameters do not change: they are loaded at the function's start. */
static void load_entry_param(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    const struct sg_operand *to = &insn->operands[0];
    uint32_t width = vector_width(insn), bytes = sg_type_bytes(type);
    LLVMBuilderRef here = gen->builder;
    LLVMValueRef values[8];
    uint64_t first = insn->operands[1].var->offset + insn->operands[1].value,
             all = gen->function->params_size;
    if (gen->guarded &&
        (insn->operands[1].value > all || first > all || (uint64_t)width * bytes > all - first))
        sg_gen_fail(gen, "there is no such parameter");
    gen->builder = gen->entry_builder;
    LLVMValueRef address = sg_gen_address(gen, &insn->operands[1], SG_MOD_PARAM);
    for (uint32_t i = 0; i < width; i++) {
        const struct sg_operand *element = width == 1 ? to : &to->items[i];
        bool pointer = sg_gen_is_pointer(gen, element) && bytes == 8;
        LLVMTypeRef llvm = pointer ? gen->guest : sg_gen_type(gen, type);
        values[i] = LLVMBuildLoad2(gen->builder, llvm, element_address(gen, address, i, bytes), "");
        LLVMSetAlignment(values[i], bytes < 16 ? bytes : 16);
        sg_gen_set_invariant(gen, values[i]);
    }
    gen->builder = here;
    for (uint32_t i = 0; i < width; i++)
        sg_gen_write(gen, width == 1 ? to : &to->items[i], type, values[i]);
}

/*
 * Strong accesses of several elements, or of 128 bits, are one access, as on a GPU: programs keep values
 * together with flags that say whether they are there (CUB's look-back). Processors load and store aligned
 * vectors of 16 bytes at once. Order is made by fences, which cost nothing on x86. Returns the vector's type,
 * or NULL where elements are accessed one by one.
 */
static LLVMTypeRef whole_vector(struct sg_codegen *gen, enum sg_type type, uint32_t width)
{
    uint32_t whole = width * sg_type_bytes(type);
    if (!is_strong(gen) || (width == 1 && whole < 16) || (whole != 8 && whole != 16))
        return NULL;
    return width == 1 ? LLVMVectorType(gen->i64, 2) : LLVMVectorType(sg_gen_type(gen, type), width);
}

static void load_whole(struct sg_codegen *gen, LLVMTypeRef vector, enum sg_type type, uint32_t width,
                       LLVMValueRef address)
{
    const struct sg_operand *to = &gen->insn->operands[0];
    LLVMValueRef value = LLVMBuildLoad2(B, vector, address, "");
    LLVMSetVolatile(value, true);
    LLVMSetAlignment(value, sg_type_bytes(type) < 8 ? sg_type_bytes(type) : 8);
    LLVMBuildFence(B, LLVMAtomicOrderingAcquire, false, "");
    if (width == 1)
        sg_gen_write(gen, to, type, LLVMBuildBitCast(B, value, sg_gen_type(gen, type), ""));
    for (uint32_t i = 0; width > 1 && i < width; i++)
        sg_gen_write(gen, &to->items[i], type,
                     LLVMBuildExtractElement(B, value, sg_gen_const(gen, 32, i), ""));
}

static void store_whole(struct sg_codegen *gen, LLVMTypeRef vector, enum sg_type type, uint32_t width,
                        LLVMValueRef address)
{
    const struct sg_operand *from = &gen->insn->operands[1];
    LLVMValueRef value = LLVMGetUndef(vector);
    if (width == 1)
        value = LLVMBuildBitCast(B, sg_gen_read(gen, from, type), vector, "");
    for (uint32_t i = 0; width > 1 && i < width; i++)
        value = LLVMBuildInsertElement(B, value, sg_gen_read(gen, &from->items[i], type),
                                       sg_gen_const(gen, 32, i), "");
    LLVMBuildFence(B, LLVMAtomicOrderingRelease, false, "");
    LLVMValueRef access = LLVMBuildStore(B, value, address);
    LLVMSetVolatile(access, true);
    LLVMSetAlignment(access, sg_type_bytes(type) < 8 ? sg_type_bytes(type) : 8);
}

static void load(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    const struct sg_operand *to = &insn->operands[0], *from = &insn->operands[1];
    uint32_t width = vector_width(insn), bytes = sg_type_bytes(type);
    uint8_t space = sg_gen_space(gen);
    LLVMValueRef address = sg_gen_address(gen, from, space);
    LLVMValueRef values[8];
    sg_gen_access(gen, from, address, space, width * bytes, SG_ACCESS_READ);
    LLVMTypeRef vector = space == SG_MOD_PARAM ? NULL : whole_vector(gen, type, width);
    if (vector != NULL) {
        load_whole(gen, vector, type, width, address);
        return;
    }
    for (uint32_t i = 0; i < width; i++) {
        const struct sg_operand *element = width == 1 ? to : &to->items[i];
        /* a pointer is loaded as one, see analysis */
        bool pointer = sg_gen_is_pointer(gen, element) && bytes == 8;
        LLVMTypeRef llvm = pointer && !is_strong(gen) ? gen->guest : sg_gen_type(gen, type);
        values[i] = LLVMBuildLoad2(B, llvm, element_address(gen, address, i, bytes), "");
        shape_access(gen, values[i], is_strong(gen) ? bytes : element_align(width, i, bytes), true);
        if (space == SG_MOD_PARAM)
            LLVMSetAlignment(values[i], bytes < 16 ? bytes : 16);
    }
    for (uint32_t i = 0; i < width; i++)
        sg_gen_write(gen, width == 1 ? to : &to->items[i], type, values[i]);
}

static void store(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    const struct sg_operand *from = &insn->operands[1];
    uint32_t width = vector_width(insn), bytes = sg_type_bytes(type);
    uint8_t space = sg_gen_space(gen);
    LLVMValueRef address = sg_gen_address(gen, &insn->operands[0], space);
    sg_gen_access(gen, &insn->operands[0], address, space, width * bytes, SG_ACCESS_WRITE);
    LLVMTypeRef vector = space == SG_MOD_PARAM ? NULL : whole_vector(gen, type, width);
    if (vector != NULL) {
        store_whole(gen, vector, type, width, address);
        return;
    }
    for (uint32_t i = 0; i < width; i++) {
        const struct sg_operand *element = width == 1 ? from : &from->items[i];
        LLVMValueRef access =
            LLVMBuildStore(B, sg_gen_read(gen, element, type), element_address(gen, address, i, bytes));
        bool own_align = is_strong(gen) || space == SG_MOD_PARAM;
        shape_access(gen, access, own_align ? (bytes < 16 ? bytes : 16) : element_align(width, i, bytes),
                     false);
    }
}

/* --- mov --- */

static void move_vector(struct sg_codegen *gen, enum sg_type type)
{
    const struct sg_operand *to = &gen->insn->operands[0], *from = &gen->insn->operands[1];
    uint32_t count = to->kind == SG_OPERAND_VECTOR ? to->count : from->count;
    unsigned all = sg_types[type].bits, bits = all / count;
    enum sg_type part = bits == 8 ? SG_B8 : bits == 16 ? SG_B16 : bits == 32 ? SG_B32 : SG_B64;
    LLVMValueRef value = sg_gen_const(gen, all, 0);
    if (from->kind == SG_OPERAND_VECTOR) {
        for (uint32_t i = 0; i < count; i++) {
            LLVMValueRef element =
                LLVMBuildZExt(B, sg_gen_read(gen, &from->items[i], part), sg_gen_int(gen, all), "");
            value = LLVMBuildOr(B, value,
                                LLVMBuildShl(B, element, sg_gen_const(gen, all, (uint64_t)i * bits), ""), "");
        }
    } else {
        value = sg_gen_read(gen, from, type);
    }
    if (to->kind != SG_OPERAND_VECTOR) {
        sg_gen_write(gen, to, type, value);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        LLVMValueRef element = LLVMBuildLShr(B, value, sg_gen_const(gen, all, (uint64_t)i * bits), "");
        sg_gen_write(gen, &to->items[i], part, LLVMBuildTrunc(B, element, sg_gen_int(gen, bits), ""));
    }
}

static void move(struct sg_codegen *gen)
{
    const struct sg_operand *to = &gen->insn->operands[0], *from = &gen->insn->operands[1];
    enum sg_type type = sg_gen_type_of(gen);
    if (to->kind == SG_OPERAND_VECTOR || from->kind == SG_OPERAND_VECTOR) {
        move_vector(gen, type);
    } else if (sg_gen_is_pointer(gen, to) && from->kind == SG_OPERAND_VAR &&
               from->var->space != SG_SPACE_SHARED) {
        LLVMBuildStore(B, sg_gen_as_guest(gen, sg_gen_address(gen, from, 0)), gen->registers[to->reg]);
    } else if (!sg_gen_copy_pointer(gen)) {
        sg_gen_result(gen, sg_gen_read(gen, from, type));
    }
}

/* --- the rest --- */

/* Where kernels are guarded: the top of the stack of their own, confined whenever it is set. */
static LLVMValueRef local_top(struct sg_codegen *gen)
{
    return sg_gen_runtime(gen, "sg_rt_local_stack", gen->pointer, NULL, 0);
}

static void set_local_top(struct sg_codegen *gen, LLVMValueRef stack, LLVMValueRef top)
{
    LLVMBuildStore(B, LLVMBuildAnd(B, top, sg_gen_const(gen, 64, SG_GUEST_MASK), ""), stack);
}

static LLVMValueRef allocate_local(struct sg_codegen *gen, LLVMValueRef size, unsigned align)
{
    LLVMValueRef stack = local_top(gen), top = LLVMBuildLoad2(B, gen->i64, stack, "");
    if (LLVMTypeOf(size) != gen->i64)
        size = LLVMBuildZExt(B, size, gen->i64, "");
    /* what is too large leads to where nothing is, not around */
    size = sg_gen_math(gen, "llvm.umin", size, sg_gen_const(gen, 64, (SG_GUEST_MASK + 1) / 2), NULL);
    top = LLVMBuildSub(B, top, size, "");
    top = LLVMBuildAnd(B, top, sg_gen_const(gen, 64, SG_GUEST_MASK & -(uint64_t)align), "");
    set_local_top(gen, stack, top);
    return top;
}

static void allocate(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    LLVMValueRef size = sg_gen_read(gen, &insn->operands[1], (enum sg_type)insn->types[0]);
    bool given =
        insn->n_operands > 2 && insn->operands[2].kind == SG_OPERAND_INTEGER && insn->operands[2].value != 0;
    unsigned align = given ? (unsigned)insn->operands[2].value : 16;
    if (gen->guarded) {
        sg_gen_result(gen, allocate_local(gen, size, align < 16 ? 16 : align));
        return;
    }
    LLVMValueRef memory = LLVMBuildArrayAlloca(B, gen->i8, size, "");
    LLVMSetAlignment(memory, align);
    sg_gen_result(gen, LLVMBuildPtrToInt(B, memory, gen->i64, ""));
}

static void prefetch(struct sg_codegen *gen)
{
    if (SG_MOD(gen->insn, SG_GROUP_SPACE) != 0 && SG_MOD(gen->insn, SG_GROUP_SPACE) != SG_MOD_GLOBAL)
        return;
    LLVMValueRef arguments[4] = {
        sg_gen_address(gen, &gen->insn->operands[0], SG_MOD_GLOBAL), sg_gen_const(gen, 32, 0),
        sg_gen_const(gen, 32, SG_MOD(gen->insn, SG_GROUP_LEVEL) == 1 ? 3 : 2), sg_gen_const(gen, 32, 1)};
    LLVMTypeRef type = LLVMTypeOf(arguments[0]);
    sg_gen_intrinsic(gen, "llvm.prefetch", &type, 1, arguments, 4);
}

LLVMValueRef sg_emit_memory(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_MOV:
        move(gen);
        return NULL;
    case SG_OP_LD:
        if (is_entry_param(gen, &gen->insn->operands[1]))
            load_entry_param(gen);
        else
            load(gen);
        return NULL;
    case SG_OP_ST:
        store(gen);
        return NULL;
    case SG_OP_PREFETCH:
        prefetch(gen);
        return NULL;
    case SG_OP_ALLOCA:
        allocate(gen);
        return NULL;
    case SG_OP_STACKSAVE: {
        if (gen->guarded)
            return LLVMBuildLoad2(B, gen->i64, local_top(gen), "");
        LLVMValueRef stack = sg_gen_intrinsic(
            gen, "llvm.stacksave", &gen->pointer,
            LLVMIntrinsicIsOverloaded(LLVMLookupIntrinsicID("llvm.stacksave", 14)) ? 1 : 0, NULL, 0);
        return LLVMBuildPtrToInt(B, stack, gen->i64, "");
    }
    case SG_OP_STACKRESTORE: {
        if (gen->guarded) {
            LLVMValueRef top = sg_gen_operand(gen, 0);
            if (LLVMTypeOf(top) != gen->i64)
                top = LLVMBuildZExt(B, top, gen->i64, "");
            set_local_top(gen, local_top(gen), top);
            return NULL;
        }
        LLVMValueRef stack = LLVMBuildIntToPtr(B, sg_gen_operand(gen, 0), gen->pointer, "");
        sg_gen_intrinsic(gen, "llvm.stackrestore", &gen->pointer,
                         LLVMIntrinsicIsOverloaded(LLVMLookupIntrinsicID("llvm.stackrestore", 17)) ? 1 : 0,
                         &stack, 1);
        return NULL;
    }
    default:
        sg_gen_lacks(gen);
    }
}
