/*
 * instruction.h - the instruction table: which instructions there are, which modifiers and types each takes,
 * and of which kind its operands are. A row (form) is written as text, and compiled on first use:
 *
 *   modifiers  words separated by spaces: a group's name (optional), a group's name with '!' (one of it must
 *              be there), "T:s32,u32" (a type out of the list must be there). Modifiers are taken in any
 *              order, types in order.
 *   operands   words separated by spaces: '=' marks a result; then a type: a digit (the instruction's type of
 *              that place), "wide" (type 0, twice as wide with .wide), 'p' (predicate), or a type's name; 'w'
 *              behind a digit: the register may be wider; 'v' behind it: a vector if the instruction has .v2,
 *              .v4 or .v8; "m" an address; "L" a label; "=0|p" and "=p|p" results with an optional second;
 *              "*" anything (checked by its own code); '?' at the end: optional.
 */
#ifndef SG_COMPILER_IR_INSTRUCTION_H
#define SG_COMPILER_IR_INSTRUCTION_H

#include "softgpu/compiler/ir/groups.h"
#include "softgpu/compiler/ir/types.h"

#define SG_INSN_TYPES    4
#define SG_INSN_OPERANDS 8

/* Groups of modifiers; of each at most one may be present. */
enum sg_group {
#define SG_GROUP(constant, ...) SG_GROUP_##constant,
    SG_GROUPS(SG_GROUP)
#undef SG_GROUP
        SG_GROUP_COUNT
};

/** A set of groups. */
__extension__ typedef unsigned __int128 sg_group_set;
_Static_assert(SG_GROUP_COUNT <= 128, "sets of groups are 128 bits");
#define SG_GROUP_BIT(group) ((sg_group_set)1 << (group))

// clang-format off
enum { SG_RN = 1, SG_RZ, SG_RM, SG_RP, SG_RNA };
enum { SG_RNI = 1, SG_RZI, SG_RMI, SG_RPI };
enum { SG_LO = 1, SG_HI, SG_WIDE };
enum { SG_APPROX = 1, SG_FULL };
enum { SG_WEAK = 1, SG_RELAXED, SG_ACQUIRE, SG_RELEASE, SG_ACQ_REL, SG_VOLATILE, SG_SC };
enum { SG_EQ = 1, SG_NE, SG_LT, SG_LE, SG_GT, SG_GE, SG_CMP_LO, SG_LS, SG_CMP_HI, SG_HS, SG_EQU, SG_NEU,
       SG_LTU, SG_LEU, SG_GTU, SG_GEU, SG_NUM, SG_NAN };
enum { SG_AND = 1, SG_OR, SG_XOR };
enum { SG_ATOM_AND = 1, SG_ATOM_OR, SG_ATOM_XOR, SG_ATOM_CAS, SG_ATOM_EXCH, SG_ATOM_ADD, SG_ATOM_INC,
       SG_ATOM_DEC, SG_ATOM_MIN, SG_ATOM_MAX };
enum { SG_LEFT = 1, SG_RIGHT };
enum { SG_CLAMP = 1, SG_WRAP };
enum { SG_SHFL_UP = 1, SG_SHFL_DOWN, SG_SHFL_BFLY, SG_SHFL_IDX };
enum { SG_VOTE_ALL = 1, SG_VOTE_ANY, SG_VOTE_UNI, SG_VOTE_BALLOT };
enum { SG_PRMT_F4E = 1, SG_PRMT_B4E, SG_PRMT_RC8, SG_PRMT_ECL, SG_PRMT_ECR, SG_PRMT_RC16 };
enum { SG_TESTP_FINITE = 1, SG_TESTP_INFINITE, SG_TESTP_NUMBER, SG_TESTP_NOTANUMBER, SG_TESTP_NORMAL,
       SG_TESTP_SUBNORMAL };
enum { SG_BAR_SYNC = 1, SG_BAR_ARRIVE, SG_BAR_RED };
enum { SG_REDUCE_POPC = 1, SG_REDUCE_AND, SG_REDUCE_OR };
enum { SG_MBARRIER_INIT = 1, SG_MBARRIER_INVAL };
enum { SG_MBARRIER_ARRIVE = 1, SG_MBARRIER_ARRIVE_DROP };
enum { SG_MBARRIER_TEST_WAIT = 1, SG_MBARRIER_TRY_WAIT };
enum { SG_EXPECT_TX = 1, SG_COMPLETE_TX };
enum { SG_CLUSTER_ARRIVE = 1, SG_CLUSTER_WAIT };
enum { SG_MATCH_ANY = 1, SG_MATCH_ALL };
enum { SG_REDUX_ADD = 1, SG_REDUX_MIN, SG_REDUX_MAX, SG_REDUX_AND, SG_REDUX_OR, SG_REDUX_XOR };
enum { SG_SECOND_ADD = 1, SG_SECOND_MIN, SG_SECOND_MAX };
enum { SG_MATRIX_A = 1, SG_MATRIX_B, SG_MATRIX_C, SG_MATRIX_D };
enum { SG_ROW = 1, SG_COL };
/* tensormap.replace */
enum { SG_GLOBAL_ADDRESS = 1, SG_RANK, SG_ELEMTYPE, SG_INTERLEAVE_LAYOUT, SG_SWIZZLE_MODE, SG_FILL_MODE };
enum { SG_BOX_DIM = 1, SG_GLOBAL_DIM, SG_GLOBAL_STRIDE, SG_ELEMENT_STRIDE };
enum { SG_CACHE_CG = 2, SG_CACHE_CV = 5 };
enum { SG_MOD_SHARED = 1, SG_MOD_GLOBAL, SG_MOD_LOCAL, SG_MOD_CONST, SG_MOD_PARAM };
#define SG_MOD_CLUSTER 7 /* .shared::cluster: in addresses; as a modifier it is SG_MOD_SHARED with a mark */

/** Opcodes by group, each of which codegen/function.c has an emitter for, from its first to its last. */
enum sg_op {
    /* integer */
    SG_OP_ADD, SG_OP_SUB, SG_OP_ADDC, SG_OP_SUBC, SG_OP_MUL, SG_OP_MAD, SG_OP_MADC, SG_OP_MUL24, SG_OP_MAD24,
    SG_OP_SAD, SG_OP_DIV, SG_OP_REM, SG_OP_ABS, SG_OP_NEG, SG_OP_MIN, SG_OP_MAX, SG_OP_DP4A, SG_OP_DP2A,
    /* bits */
    SG_OP_POPC, SG_OP_CLZ, SG_OP_BFIND, SG_OP_BREV, SG_OP_BFE, SG_OP_BFI, SG_OP_BMSK, SG_OP_SZEXT, SG_OP_FNS,
    SG_OP_PRMT, SG_OP_SHF, SG_OP_SHL, SG_OP_SHR, SG_OP_AND, SG_OP_OR, SG_OP_XOR, SG_OP_NOT, SG_OP_CNOT,
    SG_OP_LOP3,
    /* floating point */
    SG_OP_FADD, SG_OP_FSUB, SG_OP_FMUL, SG_OP_FMA, SG_OP_FDIV, SG_OP_RCP, SG_OP_SQRT, SG_OP_RSQRT, SG_OP_SIN,
    SG_OP_COS, SG_OP_EX2, SG_OP_LG2, SG_OP_TANH, SG_OP_FMIN, SG_OP_FMAX, SG_OP_FABS, SG_OP_FNEG,
    SG_OP_COPYSIGN, SG_OP_TESTP,
    /* comparison */
    SG_OP_SETP, SG_OP_SET, SG_OP_SELP, SG_OP_SLCT,
    /* conversion */
    SG_OP_CVT, SG_OP_CVT_PACK, SG_OP_CVT_SATURATE_PACK,
    /* memory */
    SG_OP_MOV, SG_OP_LD, SG_OP_ST, SG_OP_PREFETCH, SG_OP_ALLOCA, SG_OP_STACKSAVE, SG_OP_STACKRESTORE,
    /* spaces of addresses */
    SG_OP_CVTA, SG_OP_ISSPACEP, SG_OP_MAPA, SG_OP_GETCTARANK,
    /* copies */
    SG_OP_CP_ASYNC, SG_OP_CP_ASYNC_STEP, SG_OP_CP_BULK, SG_OP_CP_REDUCE_BULK, SG_OP_TRY_CANCEL,
    SG_OP_IS_CANCELED, SG_OP_FIRST_CTAID, SG_OP_ST_ASYNC, SG_OP_RED_ASYNC, SG_OP_ST_BULK,
    /* tensors */
    SG_OP_CP_TENSOR, SG_OP_CP_REDUCE_TENSOR, SG_OP_CP_TENSOR_PREFETCH, SG_OP_TENSORMAP_COPY, SG_OP_TENSORMAP_REPLACE,
    /* atomics */
    SG_OP_ATOM, SG_OP_RED, SG_OP_FENCE,
    /* barriers in shared memory */
    SG_OP_MBARRIER_SETUP, SG_OP_MBARRIER_ARRIVE, SG_OP_MBARRIER_ARRIVE_EXPECT, SG_OP_MBARRIER_EXPECT,
    SG_OP_MBARRIER_WAIT, SG_OP_MBARRIER_COPIED, SG_OP_MBARRIER_COUNT,
    /* control */
    SG_OP_BRA, SG_OP_BRX, SG_OP_CALL, SG_OP_RET, SG_OP_EXIT, SG_OP_TRAP, SG_OP_NOP, SG_OP_POLICY,
    /* threads */
    SG_OP_BAR, SG_OP_CLUSTER_BARRIER, SG_OP_BAR_WARP, SG_OP_SHFL, SG_OP_VOTE, SG_OP_MATCH, SG_OP_REDUX,
    SG_OP_ACTIVEMASK, SG_OP_ELECT, SG_OP_NANOSLEEP,
    /* matrices in the registers of a warp */
    SG_OP_MMA, SG_OP_WMMA_MMA, SG_OP_WMMA_LOAD, SG_OP_WMMA_STORE, SG_OP_LDMATRIX, SG_OP_STMATRIX,
    SG_OP_MOVMATRIX,
    /* video: on one value, or two or four lanes (video.h) */
    SG_OP_VADD, SG_OP_VSUB, SG_OP_VAVRG, SG_OP_VABSDIFF, SG_OP_VMIN, SG_OP_VMAX, SG_OP_VSET, SG_OP_VSHL,
    SG_OP_VSHR, SG_OP_VMAD,
    /* textures and surfaces: check/texture.c, not the table */
    SG_OP_TEX, SG_OP_TXQ, SG_OP_SULD, SG_OP_SUST, SG_OP_SURED,
};
// clang-format on

enum sg_operand_flag {
    SG_OPF_DEST = 1,
    SG_OPF_WIDER = 2,
    SG_OPF_VECTOR = 4,
    SG_OPF_ADDRESS = 8,
    SG_OPF_LABEL = 16,
    SG_OPF_ANY = 32,
    SG_OPF_OPTIONAL = 64,
    SG_OPF_PAIR = 128,
};

/** One operand of a form, compiled. */
struct sg_operand_form {
    uint16_t flags;
    int8_t type_place; /* place of the type among the instruction's, or -1 */
    bool doubled;
    enum sg_type type; /* fixed type if type_place is -1 */
};

struct sg_form {
    const char *base;
    enum sg_op op;
    const char *modifiers;
    const char *operands;
    /* compiled */
    sg_group_set groups, mandatory;
    uint64_t types[SG_INSN_TYPES]; /* sets of enum sg_type */
    uint8_t n_types, n_operands;
    struct sg_operand_form operand[SG_INSN_OPERANDS];
};

/** The first of the rows with this base name, which are neighbours, and their number; NULL if none. */
const struct sg_form *sg_forms_find(struct sg_slice base, uint32_t *count);

/** The words of a group, ended by NULL. */
extern const char *const sg_group_words[SG_GROUP_COUNT][28];

/* From instruction_table.c, for instruction.c only. */
extern struct sg_form sg_form_table[];
extern const uint32_t sg_form_count;

/** Bases that exist in PTX but are not supported: a better message than "unknown". */
bool sg_base_is_unsupported(struct sg_slice base);

#endif
