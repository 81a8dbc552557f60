/*
 * memory.c - the rules of loads and stores, atomic operations, copies in bulk, and cvta.
 */
#include "softgpu/compiler/check/checker.h"

void sg_check_memory(struct sg_checker *checker, struct sg_insn *insn)
{
    bool load = insn->form->op == SG_OP_LD;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    const struct sg_operand *address = &insn->operands[load ? 1 : 0];
    if (!load && space == SG_MOD_CONST)
        sg_check_fail(checker, "constant memory cannot be written");
    if (address->kind == SG_OPERAND_VAR && address->var->space == SG_SPACE_PARAM && space != SG_MOD_PARAM &&
        space != 0)
        sg_check_fail(checker, "'%s' is a parameter", address->var->name);
    if (space == SG_MOD_PARAM && address->kind == SG_OPERAND_VAR && address->var->space != SG_SPACE_PARAM)
        sg_check_fail(checker, "'%s' is not a parameter", address->var->name);
}

void sg_check_cvta(struct sg_checker *checker, struct sg_insn *insn)
{
    if (insn->operands[1].kind == SG_OPERAND_REG)
        sg_check_type(checker, &insn->operands[1], SG_U64, false, false);
    else if (insn->operands[1].kind != SG_OPERAND_VAR && insn->operands[1].kind != SG_OPERAND_INTEGER)
        sg_check_fail(checker, "operand 2 must be an address");
}

/* Vectors of up to 16 bytes in global memory; each element is an atomic operation of its own. */
static void check_vector_atomic(struct sg_checker *checker, struct sg_insn *insn, uint8_t op, uint32_t width)
{
    bool extreme = op == SG_ATOM_MIN || op == SG_ATOM_MAX;
    if (op != SG_ATOM_ADD && !(extreme && insn->types[0] != SG_F32))
        sg_check_fail(checker, "the operation does not fit a vector of type .%s",
                      sg_types[insn->types[0]].name);
    if (width * sg_types[insn->types[0]].bits > 128)
        sg_check_fail(checker, "a vector of more than 16 bytes");
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    if (space != 0 && space != SG_MOD_GLOBAL)
        sg_check_fail(checker, "atomic operations on vectors work on .global memory");
}

void sg_check_atomic(struct sg_checker *checker, struct sg_insn *insn)
{
    static const char *const allowed[] = {[SG_ATOM_AND] = "b32 b64",
                                          [SG_ATOM_OR] = "b32 b64",
                                          [SG_ATOM_XOR] = "b32 b64",
                                          [SG_ATOM_CAS] = "b16 b32 b64 b128 u32 s32 u64 s64",
                                          [SG_ATOM_EXCH] = "b32 b64 b128 u32 s32 u64 s64 f32",
                                          [SG_ATOM_ADD] = "u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2",
                                          [SG_ATOM_INC] = "u32",
                                          [SG_ATOM_DEC] = "u32",
                                          [SG_ATOM_MIN] = "u32 s32 u64 s64",
                                          [SG_ATOM_MAX] = "u32 s32 u64 s64"};
    uint8_t op = SG_MOD(insn, SG_GROUP_ATOM), vec = SG_MOD(insn, SG_GROUP_VEC);
    if (vec != 0) {
        check_vector_atomic(checker, insn, op, 1u << vec);
        return;
    }
    if (!sg_check_type_in(insn, allowed[op]))
        sg_check_fail(checker, "the operation does not fit type .%s", sg_types[insn->types[0]].name);
    bool cas = op == SG_ATOM_CAS;
    const struct sg_operand_form *last = &insn->form->operand[insn->form->n_operands - 1];
    uint32_t hint =
        last->type_place < 0 && (last->flags & SG_OPF_ADDRESS) == 0 ? 1 : 0; /* a policy of the cache */
    if (cas != (insn->form->op == SG_OP_ATOM && insn->n_operands - hint == 4))
        sg_check_fail(checker, "wrong number of operands");
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    if (space != 0 && space != SG_MOD_GLOBAL && space != SG_MOD_SHARED)
        sg_check_fail(checker, "atomic operations work on .global and .shared memory");
}

/*
 * cp.async.bulk and cp.reduce.async.bulk: into shared memory with the barrier that counts the bytes, out of
 * it as one of a group; then a mask of blocks, a hint, a mask of bytes. Before the barrier, how many bytes
 * are ignored at either end.
 */
void sg_check_bulk_copy(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t to = SG_MOD(insn, SG_GROUP_SPACE), from = SG_MOD(insn, SG_GROUP_FROM_BULK);
    bool counted = SG_MOD(insn, SG_GROUP_COMPLETE) == 1, masked = SG_MOD(insn, SG_GROUP_CP_MASK) != 0;
    bool several = SG_MOD(insn, SG_GROUP_MULTICAST) != 0,
         cluster = SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    bool ignores = SG_MOD(insn, SG_GROUP_IGNORE_OOB) != 0;
    uint32_t barrier = ignores ? 5 : 3;
    uint32_t wanted = barrier + counted + several + (SG_MOD(insn, SG_GROUP_CACHE_HINT) != 0) + masked;
    if ((to != SG_MOD_SHARED && to != SG_MOD_GLOBAL) || counted != (to == SG_MOD_SHARED) ||
        (to == SG_MOD_GLOBAL && from != 2) || (to == SG_MOD_SHARED && from == 2 && !cluster) ||
        (several && (from == 2 || !cluster)) || (masked && counted) ||
        (ignores && (!counted || from == 2 || cluster)))
        sg_check_fail(checker, "not a form of this instruction");
    if (insn->n_operands != wanted)
        sg_check_fail(checker, "wrong number of operands");
    if (counted)
        sg_check_address(checker, &insn->operands[barrier]);
    if (several)
        sg_check_type(checker, &insn->operands[4], SG_B16, false, false);
    if (masked)
        sg_check_type(checker, &insn->operands[wanted - 1], SG_B16, false, false);
}

/* What may be reduced in bulk, into shared memory (by red.async, too) and into global memory. */
static void check_reduction(struct sg_checker *checker, struct sg_insn *insn, bool shared)
{
    static const char *const in_shared[] = {
        [SG_ATOM_AND] = "b32",    [SG_ATOM_OR] = "b32",  [SG_ATOM_XOR] = "b32",
        [SG_ATOM_CAS] = "",       [SG_ATOM_EXCH] = "",   [SG_ATOM_ADD] = "u32 s32 u64",
        [SG_ATOM_INC] = "u32",    [SG_ATOM_DEC] = "u32", [SG_ATOM_MIN] = "u32 s32",
        [SG_ATOM_MAX] = "u32 s32"};
    static const char *const in_global[] = {[SG_ATOM_AND] = "b32 b64",
                                            [SG_ATOM_OR] = "b32 b64",
                                            [SG_ATOM_XOR] = "b32 b64",
                                            [SG_ATOM_CAS] = "",
                                            [SG_ATOM_EXCH] = "",
                                            [SG_ATOM_ADD] = "u32 s32 u64 f16 bf16 f32 f64",
                                            [SG_ATOM_INC] = "u32",
                                            [SG_ATOM_DEC] = "u32",
                                            [SG_ATOM_MIN] = "u32 s32 u64 s64 f16 bf16",
                                            [SG_ATOM_MAX] = "u32 s32 u64 s64 f16 bf16"};
    uint8_t op = SG_MOD(insn, SG_GROUP_ATOM);
    bool wide_sum = insn->form->op == SG_OP_RED_ASYNC && op == SG_ATOM_ADD && insn->types[0] == SG_S64;
    if (!wide_sum && !sg_check_type_in(insn, shared ? in_shared[op] : in_global[op]))
        sg_check_fail(checker, "the operation does not fit type .%s", sg_types[insn->types[0]].name);
    bool small = insn->types[0] == SG_F16 || insn->types[0] == SG_BF16;
    if ((SG_MOD(insn, SG_GROUP_NOFTZ) != 0) != (small && op == SG_ATOM_ADD))
        sg_check_fail(checker, ".noftz stands with sums of .f16 and .bf16, and only there");
}

void sg_check_store_async(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    bool counted = SG_MOD(insn, SG_GROUP_COMPLETE) != 0, cluster = SG_MOD(insn, SG_GROUP_CLUSTER_WINDOW) != 0;
    if (SG_MOD(insn, SG_GROUP_COMPLETE) > 1 || (space != 0 && (counted ? !cluster : space != SG_MOD_GLOBAL)))
        sg_check_fail(checker, "not a form of this instruction");
    uint32_t width = SG_MOD(insn, SG_GROUP_VEC) == 0 ? 1 : 1u << SG_MOD(insn, SG_GROUP_VEC);
    if (width * sg_types[insn->types[0]].bits > 128)
        sg_check_fail(checker, "a vector of more than 16 bytes");
    if (insn->form->op == SG_OP_RED_ASYNC)
        check_reduction(checker, insn, true);
}

void sg_check_bulk_reduction(struct sg_checker *checker, struct sg_insn *insn)
{
    sg_check_bulk_copy(checker, insn);
    check_reduction(checker, insn, SG_MOD(insn, SG_GROUP_SPACE) == SG_MOD_SHARED);
}
