/*
 * instruction.c - one instruction: its row, its operands, and the rules that the table cannot say.
 */
#include "softgpu/compiler/check/checker.h"
#include "softgpu/compiler/ir/video.h"

#include <string.h>

/* --- operand types --- */

/* May an operand of register type `have` stand where an instruction wants `want`? */
static bool register_fits(enum sg_type have, enum sg_type want, bool wider)
{
    if (have == SG_PRED || want == SG_PRED)
        return have == want;
    uint16_t have_bits = sg_types[have].bits, want_bits = sg_types[want].bits;
    if (have_bits != want_bits && !(wider && have_bits > want_bits))
        return false;
    if (have_bits > want_bits) /* .u8 in a .f32 register makes no sense; .b8 is bits */
        return sg_types[have].class != SG_CLASS_FLOAT || sg_types[want].class == SG_CLASS_BITS;
    bool have_float = sg_type_is_float(have), want_float = sg_type_is_float(want);
    bool have_bit = sg_types[have].class == SG_CLASS_BITS, want_bit = sg_types[want].class == SG_CLASS_BITS;
    return have_bit || want_bit || have_float == want_float;
}

static const char *register_type(struct sg_checker *checker, const struct sg_operand *operand)
{
    return sg_types[checker->function->regs[operand->reg].type].name;
}

void sg_check_type(struct sg_checker *checker, const struct sg_operand *operand, enum sg_type type, bool dest,
                   bool wider)
{
    switch (operand->kind) {
    case SG_OPERAND_REG:
        if (!register_fits((enum sg_type)checker->function->regs[operand->reg].type, type, wider))
            sg_check_fail(checker, "a register of type .%s does not fit where .%s is wanted",
                          register_type(checker, operand), sg_types[type].name);
        break;
    case SG_OPERAND_SINK:
        if (!dest)
            sg_check_fail(checker, "'_' cannot be read");
        return;
    case SG_OPERAND_INTEGER:
        if (sg_type_is_float(type))
            sg_check_fail(checker, "an integer where .%s is wanted", sg_types[type].name);
        break;
    case SG_OPERAND_FLOAT32:
    case SG_OPERAND_FLOAT64:
        if (type == SG_PRED || sg_types[type].class == SG_CLASS_SIGNED ||
            sg_types[type].class == SG_CLASS_UNSIGNED)
            sg_check_fail(checker, "a floating-point number where .%s is wanted", sg_types[type].name);
        break;
    case SG_OPERAND_SPECIAL:
        break;
    case SG_OPERAND_VAR:
    case SG_OPERAND_FUNCTION:
        if (sg_types[type].bits < 32 || sg_type_is_float(type))
            sg_check_fail(checker, "an address where .%s is wanted", sg_types[type].name);
        break;
    default:
        sg_check_fail(checker, "wrong kind of operand where .%s is wanted", sg_types[type].name);
    }
    if (dest && operand->kind != SG_OPERAND_REG)
        sg_check_fail(checker, "the result must be a register");
    if (operand->negated && type != SG_PRED)
        sg_check_fail(checker, "'!' is for predicates");
}

void sg_check_address(struct sg_checker *checker, const struct sg_operand *operand)
{
    if (operand->kind == SG_OPERAND_REG) {
        enum sg_type type = (enum sg_type)checker->function->regs[operand->reg].type;
        if ((sg_types[type].bits != 64 && sg_types[type].bits != 32) || sg_type_is_float(type))
            sg_check_fail(checker, "a register of type .%s cannot be an address", sg_types[type].name);
    } else if (operand->kind != SG_OPERAND_VAR && operand->kind != SG_OPERAND_INTEGER) {
        sg_check_fail(checker, "not an address");
    }
}

static enum sg_type operand_type(const struct sg_insn *insn, const struct sg_operand_form *form)
{
    if (form->type_place < 0)
        return form->type;
    enum sg_type type = (enum sg_type)insn->types[form->type_place];
    if (!form->doubled || SG_MOD(insn, SG_GROUP_WIDE) != SG_WIDE)
        return type;
    switch (type) {
    case SG_U16:
        return SG_U32;
    case SG_S16:
        return SG_S32;
    case SG_U32:
        return SG_U64;
    case SG_S32:
        return SG_S64;
    default:
        return SG_TYPE_NONE;
    }
}

static void check_operands(struct sg_checker *checker, struct sg_insn *insn,
                           const struct sg_ast_instruction *ast)
{
    /* one more than written, for the second result of p|q, which becomes the last operand */
    insn->operands = SG_NEW_ARRAY(checker->arena, struct sg_operand, ast->n_operands + 1);
    insn->n_operands = (uint8_t)ast->n_operands;
    uint32_t width = SG_MOD(insn, SG_GROUP_VEC) == 0 ? 1 : 1u << SG_MOD(insn, SG_GROUP_VEC);
    for (uint32_t i = 0; i < ast->n_operands; i++) {
        const struct sg_operand_form *form = &insn->form->operand[i];
        struct sg_operand *operand = &insn->operands[i];
        const struct sg_ast_operand *written = &ast->operands[i];
        if ((form->flags & SG_OPF_ADDRESS) != 0 && written->kind != SG_AST_ADDRESS)
            sg_check_fail(checker, "operand %u must be an address in brackets", i + 1);
        if ((form->flags & (SG_OPF_ADDRESS | SG_OPF_ANY)) == 0 && written->kind == SG_AST_ADDRESS)
            sg_check_fail(checker, "operand %u cannot be an address in brackets", i + 1);
        if (sg_is_video(insn->form))
            sg_check_video_operand(checker, insn, i, written, operand);
        else
            sg_check_operand(checker, written, operand);
        if (written->pair != NULL) {
            if ((form->flags & SG_OPF_PAIR) == 0)
                sg_check_fail(checker, "operand %u cannot be a pair", i + 1);
            sg_check_operand(checker, written->pair, &insn->operands[ast->n_operands]);
            sg_check_type(checker, &insn->operands[ast->n_operands], SG_PRED, true, false);
        }
        if ((form->flags & SG_OPF_ANY) != 0)
            continue;
        if ((form->flags & SG_OPF_ADDRESS) != 0) {
            sg_check_address(checker, operand);
            continue;
        }
        if ((form->flags & SG_OPF_LABEL) != 0) {
            if (operand->kind != SG_OPERAND_LABEL)
                sg_check_fail(checker, "operand %u must be a label", i + 1);
            continue;
        }
        bool dest = (form->flags & SG_OPF_DEST) != 0, wider = (form->flags & SG_OPF_WIDER) != 0;
        enum sg_type type = operand_type(insn, form);
        if (type == SG_TYPE_NONE)
            sg_check_fail(checker, ".wide does not fit the type");
        if ((form->flags & SG_OPF_VECTOR) != 0 && width > 1) {
            if (operand->kind != SG_OPERAND_VECTOR || operand->count != width)
                sg_check_fail(checker, "operand %u must be a vector of %u", i + 1, width);
            for (uint32_t n = 0; n < width; n++)
                sg_check_type(checker, &operand->items[n], type, dest, wider);
            continue;
        }
        /* a vector of one, {r}, is the register */
        if (operand->kind == SG_OPERAND_VECTOR && operand->count == 1 && (form->flags & SG_OPF_VECTOR) != 0)
            *operand = operand->items[0];
        sg_check_type(checker, operand, type, dest, wider);
    }
}

/* --- mov --- */

static enum sg_type mov_part(enum sg_type whole, uint32_t parts)
{
    switch (sg_types[whole].bits / parts) {
    case 8:
        return SG_B8;
    case 16:
        return SG_B16;
    case 32:
        return SG_B32;
    case 64:
        return SG_B64;
    default:
        return SG_TYPE_NONE;
    }
}

static void check_mov(struct sg_checker *checker, struct sg_insn *insn)
{
    enum sg_type type = (enum sg_type)insn->types[0];
    for (int i = 0; i < 2; i++) {
        struct sg_operand *operand = &insn->operands[i];
        if (operand->kind != SG_OPERAND_VECTOR) {
            if (operand->kind == SG_OPERAND_INTEGER && type != SG_PRED)
                continue; /* "mov.f32 %f, 0" too: bits */
            if (operand->kind == SG_OPERAND_REG && operand->value != 0)
                sg_check_fail(checker, "a register has no offset here");
            if (operand->kind == SG_OPERAND_FUNCTION)
                sg_check_take_address(checker, operand->function->alias_of != NULL
                                                   ? operand->function->alias_of
                                                   : operand->function);
            if (type == SG_PRED && operand->kind == SG_OPERAND_INTEGER)
                continue;
            sg_check_type(checker, operand, type, i == 0, false);
            continue;
        }
        enum sg_type part = mov_part(type, operand->count);
        if ((operand->count != 2 && operand->count != 4) || part == SG_TYPE_NONE ||
            sg_types[type].class != SG_CLASS_BITS)
            sg_check_fail(checker, "a vector of %u does not fit .%s", operand->count, sg_types[type].name);
        for (uint32_t n = 0; n < operand->count; n++)
            sg_check_type(checker, &operand->items[n], part, i == 0, part == SG_B8);
    }
}

/* --- rules of single families --- */

static bool type_in(const struct sg_insn *insn, const char *names)
{
    const char *name = sg_types[insn->types[0]].name;
    for (const char *p = names; *p != '\0';) {
        uint32_t size = 0;
        while (p[size] != ' ' && p[size] != '\0')
            size++;
        if (sg_slice_is((struct sg_slice){p, size}, name))
            return true;
        p += size + (p[size] == ' ');
    }
    return false;
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

static void check_atomic(struct sg_checker *checker, struct sg_insn *insn)
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
    if (!type_in(insn, allowed[op]))
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

static bool is_float_round(const struct sg_insn *insn)
{
    return sg_type_is_float((enum sg_type)insn->types[0]) && sg_type_is_float((enum sg_type)insn->types[1]);
}

static void check_conversion(struct sg_checker *checker, struct sg_insn *insn)
{
    enum sg_type to = (enum sg_type)insn->types[0], from = (enum sg_type)insn->types[1];
    bool narrowing = is_float_round(insn) && sg_types[to].bits < sg_types[from].bits;
    bool rounds = SG_MOD(insn, SG_GROUP_ROUND) != 0, to_integer = SG_MOD(insn, SG_GROUP_RINT) != 0;
    if (sg_type_is_float(from) && !sg_type_is_float(to) && to != SG_TF32 && !to_integer)
        sg_check_fail(checker, "a conversion to an integer needs .rni, .rzi, .rmi or .rpi");
    if (!sg_type_is_float(from) && sg_type_is_float(to) && !rounds)
        sg_check_fail(checker, "a conversion from an integer needs .rn, .rz, .rm or .rp");
    if (narrowing && !rounds)
        sg_check_fail(checker, "a narrowing conversion needs .rn, .rz, .rm or .rp");
    if (!sg_type_is_float(from) && !sg_type_is_float(to) && (rounds || to_integer))
        sg_check_fail(checker, "a conversion between integers does not round");
    if (SG_MOD(insn, SG_GROUP_ROUND) == SG_RNA && to != SG_TF32)
        sg_check_fail(checker, ".rna is for .tf32");
}

/* Pairs: halves are rounded to nearest or towards 0, scales towards 0 or up, what is smaller to nearest. */
static void check_pair_conversion(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t round = SG_MOD(insn, SG_GROUP_ROUND);
    enum sg_type to = (enum sg_type)insn->types[0], from = (enum sg_type)insn->types[1];
    bool scale = to == SG_UE8M0X2, halves = (to == SG_F16X2 || to == SG_BF16X2) && from == SG_F32;
    if ((round != SG_RN || scale) && (round != SG_RZ || (!scale && !halves)) && (round != SG_RP || !scale))
        sg_check_fail(checker, "this rounding does not fit .%s", sg_types[to].name);
}

static void check_memory(struct sg_checker *checker, struct sg_insn *insn)
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

/*
 * cp.async.bulk and cp.reduce.async.bulk: into shared memory with the barrier that counts the bytes, out of
 * it as one of a group; then a mask of blocks, a hint, a mask of bytes. Before the barrier, how many bytes
 * are ignored at either end.
 */
static void check_bulk_copy(struct sg_checker *checker, struct sg_insn *insn)
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

/*
 * What may be reduced in bulk, into shared and into global memory; and red.async, which has what shared
 * memory has.
 */
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
    if (!wide_sum && !type_in(insn, shared ? in_shared[op] : in_global[op]))
        sg_check_fail(checker, "the operation does not fit type .%s", sg_types[insn->types[0]].name);
    bool small = insn->types[0] == SG_F16 || insn->types[0] == SG_BF16;
    if ((SG_MOD(insn, SG_GROUP_NOFTZ) != 0) != (small && op == SG_ATOM_ADD))
        sg_check_fail(checker, ".noftz stands with sums of .f16 and .bf16, and only there");
}

static void check_store_async(struct sg_checker *checker, struct sg_insn *insn)
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

/* .rz, .rm and .rp exist for all of these types except half precision. */
static void check_rounding(struct sg_checker *checker, struct sg_insn *insn)
{
    uint8_t round = SG_MOD(insn, SG_GROUP_ROUND);
    if (round == SG_RNA)
        sg_check_fail(checker, ".rna does not fit this instruction");
    if (round > SG_RN && !type_in(insn, "f32 f64 f32x2"))
        sg_check_fail(checker, "only .rn fits .%s", sg_types[insn->types[0]].name);
}

static void check_rules(struct sg_checker *checker, struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_MOV:
        check_mov(checker, insn);
        break;
    case SG_OP_ATOM:
    case SG_OP_RED:
        check_atomic(checker, insn);
        break;
    case SG_OP_CP_BULK:
        check_bulk_copy(checker, insn);
        break;
    case SG_OP_CP_REDUCE_BULK:
        check_bulk_copy(checker, insn);
        check_reduction(checker, insn, SG_MOD(insn, SG_GROUP_SPACE) == SG_MOD_SHARED);
        break;
    case SG_OP_ST_ASYNC:
    case SG_OP_RED_ASYNC:
        check_store_async(checker, insn);
        break;
    case SG_OP_REDUX:
        if (insn->types[0] == SG_F32 && SG_MOD(insn, SG_GROUP_REDUX) != SG_REDUX_MIN &&
            SG_MOD(insn, SG_GROUP_REDUX) != SG_REDUX_MAX)
            sg_check_fail(checker, "the operation does not fit type .f32");
        break;
    case SG_OP_CVT:
        check_conversion(checker, insn);
        break;
    case SG_OP_CVT_PACK:
        check_pair_conversion(checker, insn);
        break;
    case SG_OP_LD:
    case SG_OP_ST:
        check_memory(checker, insn);
        break;
    case SG_OP_FADD:
    case SG_OP_FSUB:
    case SG_OP_FMUL:
    case SG_OP_FMA:
        check_rounding(checker, insn);
        break;
    case SG_OP_FDIV:
    case SG_OP_RCP:
    case SG_OP_SQRT:
        check_rounding(checker, insn);
        if (SG_MOD(insn, SG_GROUP_APPROX) == 0 && SG_MOD(insn, SG_GROUP_ROUND) == 0)
            sg_check_fail(checker, "needs .approx or a rounding mode");
        break;
    case SG_OP_MMA:
    case SG_OP_WMMA_MMA:
    case SG_OP_WMMA_LOAD:
    case SG_OP_WMMA_STORE:
    case SG_OP_LDMATRIX:
    case SG_OP_STMATRIX:
    case SG_OP_MOVMATRIX:
        sg_check_mma(checker, insn);
        break;
    case SG_OP_BRX:
        if (insn->operands[1].kind != SG_OPERAND_TABLE)
            sg_check_fail(checker, "operand 2 must be a .branchtargets label");
        break;
    case SG_OP_CVTA:
        if (insn->operands[1].kind == SG_OPERAND_REG)
            sg_check_type(checker, &insn->operands[1], SG_U64, false, false);
        else if (insn->operands[1].kind != SG_OPERAND_VAR && insn->operands[1].kind != SG_OPERAND_INTEGER)
            sg_check_fail(checker, "operand 2 must be an address");
        break;
    case SG_OP_BAR: {
        bool red = SG_MOD(insn, SG_GROUP_BAR) == SG_BAR_RED;
        if (red != (SG_MOD(insn, SG_GROUP_REDUCE) != 0) ||
            (red && (insn->types[0] == SG_PRED) != (SG_MOD(insn, SG_GROUP_REDUCE) != SG_REDUCE_POPC)) ||
            (SG_MOD(insn, SG_GROUP_BAR) == SG_BAR_ARRIVE && insn->n_operands != 2))
            sg_check_fail(checker, "not a form of this instruction");
        break;
    }
    case SG_OP_VOTE:
        if ((SG_MOD(insn, SG_GROUP_VOTE) == SG_VOTE_BALLOT) != (insn->types[0] == SG_B32))
            sg_check_fail(checker, "not a form of this instruction");
        break;
    case SG_OP_MAD:
        if (SG_MOD(insn, SG_GROUP_CC) != 0 && SG_MOD(insn, SG_GROUP_WIDE) == SG_WIDE)
            sg_check_fail(checker, ".cc does not fit .wide");
        break;
    default:
        break;
    }
}

void sg_check_instruction(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    struct sg_ptx_function *function = checker->function;
    const struct sg_form *texture = sg_check_texture_form(ast->base);
    static const uint8_t no_mods[SG_GROUP_COUNT];
    struct sg_ast_instruction rewritten;
    if (sg_check_rewrite(checker, ast, &rewritten))
        ast = &rewritten;
    const struct sg_opcode *opcode = texture ? NULL : sg_check_opcode(checker, ast);
    struct sg_insn *insn =
        SG_PUSH(checker->arena, function->insns, function->n_insns, function->insn_capacity);
    *insn = (struct sg_insn){.form = opcode ? opcode->form : texture,
                             .mods = opcode ? opcode->mods : no_mods,
                             .line = checker->statement->line,
                             .text = ast->text};
    const struct sg_ast_place *place = &checker->statement->place;
    if (place->file < checker->n_files) {
        insn->source.file = checker->files[place->file];
        insn->source.line = place->line;
    }
    if (opcode != NULL)
        memcpy(insn->types, opcode->types, sizeof(insn->types));
    if (ast->guard.size != 0) {
        uint32_t guard = sg_check_register(checker, ast->guard);
        if (guard == UINT32_MAX || function->regs[guard].type != SG_PRED)
            sg_check_fail(checker, "the guard '%.*s' is not a predicate", (int)ast->guard.size,
                          ast->guard.data);
        insn->guard = guard + 1;
        insn->guard_negated = ast->guard_negated;
    }
    if (insn->form->op == SG_OP_CALL) {
        sg_check_call(checker, insn, ast);
        return;
    }
    if (texture != NULL) {
        sg_check_texture(checker, insn, ast);
        return;
    }
    if (insn->form->op == SG_OP_CP_TENSOR || insn->form->op == SG_OP_CP_REDUCE_TENSOR ||
        insn->form->op == SG_OP_CP_TENSOR_PREFETCH) {
        sg_check_tensor(checker, insn, ast);
        return;
    }
    check_operands(checker, insn, ast);
    check_rules(checker, insn);
    if (sg_is_video(insn->form))
        sg_check_video(checker, insn);
}
