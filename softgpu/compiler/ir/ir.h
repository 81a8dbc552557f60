/*
 * ir.h - a checked module: every name resolved, every instruction matched with a row of the instruction
 * table, every operand of a type that its instruction takes. Analyses and the code generator read it and
 * trust it.
 */
#ifndef SG_COMPILER_IR_IR_H
#define SG_COMPILER_IR_IR_H

#include "softgpu/compiler/ir/instruction.h"

struct sg_ptx_function;
struct sg_ast_initial;

/** A variable: module scope, or a function's .local, .shared or .param. */
struct sg_var {
    const char *name;
    enum sg_space space;
    enum sg_type type;
    uint64_t size;
    uint32_t align;
    uint32_t line;
    enum sg_linkage linkage;
    struct sg_ast_initial *initial;
    struct sg_ptx_function *function; /* whose it is; NULL at module scope */
    bool unsized;                     /* extern .shared x[]: the dynamic part */
    bool managed;
    uint8_t reference; /* enum sg_reference: its content is the handle of an object */
    uint32_t index;    /* among the function's variables of its kind; for params their number */
    bool is_return;    /* a .param that returns a value */
    bool by_register;  /* a formal declared in .reg space */
    uint32_t reg;      /* that register */
    uint32_t offset;   /* of an entry's parameter */
    /* global and const */
    uint32_t program_index;
    unsigned char *address;
};

enum sg_special {
    SG_SPECIAL_NONE,
    SG_SPECIAL_TID, /* the vector ones: + component 0..2 in sg_operand.component */
    SG_SPECIAL_NTID,
    SG_SPECIAL_CTAID,
    SG_SPECIAL_NCTAID,
    SG_SPECIAL_LANEID,
    SG_SPECIAL_WARPID,
    SG_SPECIAL_NWARPID,
    SG_SPECIAL_SMID,
    SG_SPECIAL_NSMID,
    SG_SPECIAL_GRIDID,
    SG_SPECIAL_LANEMASK_EQ,
    SG_SPECIAL_LANEMASK_LE,
    SG_SPECIAL_LANEMASK_LT,
    SG_SPECIAL_LANEMASK_GE,
    SG_SPECIAL_LANEMASK_GT,
    SG_SPECIAL_CLOCK,
    SG_SPECIAL_CLOCK_HI,
    SG_SPECIAL_CLOCK64,
    SG_SPECIAL_GLOBALTIMER,
    SG_SPECIAL_GLOBALTIMER_LO,
    SG_SPECIAL_GLOBALTIMER_HI,
    SG_SPECIAL_ENVREG, /* number in sg_operand.component */
    SG_SPECIAL_DYNAMIC_SMEM_SIZE,
    SG_SPECIAL_TOTAL_SMEM_SIZE,
    SG_SPECIAL_AGGR_SMEM_SIZE,
    SG_SPECIAL_CLUSTERID,
    SG_SPECIAL_NCLUSTERID,
    SG_SPECIAL_CLUSTER_CTAID,
    SG_SPECIAL_CLUSTER_NCTAID,
    SG_SPECIAL_CLUSTER_CTARANK,
    SG_SPECIAL_CLUSTER_NCTARANK,
    SG_SPECIAL_IS_EXPLICIT_CLUSTER,
    SG_SPECIAL_RESERVED_SMEM, /* component: enum sg_reserved */
    SG_SPECIAL_ZERO,          /* registers that are always 0 here: %pm0 … */
};

/** The places in the reserved part of shared memory that programs may ask for. */
enum sg_reserved { SG_RESERVED_BEGIN, SG_RESERVED_END, SG_RESERVED_CAP };

enum sg_operand_kind {
    SG_OPERAND_NONE,
    SG_OPERAND_REG,
    SG_OPERAND_INTEGER,
    SG_OPERAND_FLOAT32,
    SG_OPERAND_FLOAT64,
    SG_OPERAND_SPECIAL,
    SG_OPERAND_VAR,      /* address of a variable, + value */
    SG_OPERAND_FUNCTION, /* address of a function */
    SG_OPERAND_VECTOR,
    SG_OPERAND_SINK,
    SG_OPERAND_LABEL, /* value: number of the label */
    SG_OPERAND_TABLE, /* value: number of the .branchtargets */
};

struct sg_operand {
    uint8_t kind;
    bool negated;
    uint8_t component;
    bool minus;        /* of video instructions: the operand is subtracted … */
    uint16_t count;    /* of a vector */
    uint16_t selector; /* … and a part or lanes of it are selected: video.h */
    uint32_t reg;      /* number in the function; for SPECIAL an enum sg_special */
    uint64_t value;    /* number, bits, offset */
    union {
        struct sg_var *var;
        struct sg_ptx_function *function;
        struct sg_operand *items;
    };
};

/** A call. */
struct sg_call {
    struct sg_ptx_function *callee; /* NULL: indirect */
    struct sg_operand target;       /* the register of an indirect call */
    struct sg_operand *returns, *arguments;
    uint32_t n_returns, n_arguments;
    /* what the callee declares: sizes of its formals, for arguments that are registers or numbers */
    const struct sg_var *formals_in, *formals_out;
};

/** There are many of these: libraries have half a million of them. */
struct sg_insn {
    const struct sg_form *form;
    const uint8_t *mods; /* [SG_GROUP_COUNT], of its words: 1 + place in the group's list, or 0 */
    struct sg_operand *operands;
    struct sg_call *call;
    struct sg_slice text;
    struct {
        const char *file; /* NULL: unknown */
        uint32_t line;
    } source;
    uint32_t line;
    uint32_t guard;   /* register + 1, or 0 */
    uint32_t texture; /* of texture and surface instructions: the operation of kernel_abi.h */
    uint8_t types[SG_INSN_TYPES];
    uint8_t n_operands;
    bool guard_negated;
    bool waits_in_loop; /* by analysis: gives way to other threads before it jumps */
    bool passes;        /* by analysis: a jump back that the threads of a block had better take together */
    bool aligns;        /* by analysis: there is a point before it, where the lanes of a warp come together */
    bool yields; /* by analysis, for loop form: the thread waits here for what another does (points.c) */
    bool joins;  /* by analysis: on matrices, done at the same point as the instruction before it */
};

/** The modifier of a group, as an enum of that group; 0 if the instruction has none. */
#define SG_MOD(insn, group) ((insn)->mods[(group)])

struct sg_reg {
    uint8_t type;
    bool pointer; /* by analysis: kept as a pointer, because addresses are made from it */
};

struct sg_label {
    struct sg_slice name;
    uint32_t insn; /* the instruction that follows */
    uint32_t line;
};

struct sg_table {
    uint32_t *labels;
    uint32_t count;
};

struct sg_ptx_function {
    const char *name;
    uint32_t line;
    bool is_entry, defined, no_return, address_taken;
    enum sg_linkage linkage;
    struct sg_ptx_function *alias_of;
    struct sg_var *params, *returns;
    uint32_t n_params, n_returns;
    uint32_t params_size;
    uint32_t maxntid[3], reqntid[3];
    uint32_t reqnctapercluster[3]; /* zeros if none */
    bool explicit_cluster, blocks_are_clusters;
    struct sg_reg *regs;
    uint32_t n_regs, reg_capacity;
    struct sg_insn *insns;
    uint32_t n_insns, insn_capacity;
    struct sg_label *labels;
    uint32_t n_labels, label_capacity;
    struct sg_table *tables;
    uint32_t n_tables, table_capacity;
    struct sg_var **vars; /* .local, .shared, .param inside the body */
    uint32_t n_vars, var_capacity;
    uint32_t handle; /* among the functions whose address is taken: see analysis.h */
    uint32_t mark;   /* scratch of graph walks */
    /* the first instruction in it that is not known ("ptx:LINE: …"), in place of all of which it has a trap; or NULL */
    const char *unknown;
    /* by analysis */
    bool waits, exits, calls_indirect, has_local, uses_grid_workspace, uses_reserved_shared;
    bool narrow_params;   /* a kernel that takes addresses of parameters as 32 bits: offsets */
    bool clustered;       /* looks beyond its block, into the cluster */
    uint8_t ways_to_wait; /* that it, or what it calls, has for its caller: loops.c */
};

struct sg_ptx_module {
    struct sg_arena *arena;
    uint32_t version, target;
    struct sg_var **vars; /* module scope, and statics of functions */
    uint32_t n_vars, var_capacity;
    struct sg_ptx_function **functions;
    uint32_t n_functions, function_capacity;
    struct sg_map symbols;            /* name → struct sg_symbol; of names that modules share */
    struct sg_ptx_function **handles; /* functions whose address is taken */
    uint32_t n_handles, handle_capacity;
    bool narrow_addresses; /* by analysis: addresses of .local or .const variables are taken as 32 bits */
    uint32_t walk;
};

struct sg_symbol {
    enum {
        SG_SYMBOL_VAR,
        SG_SYMBOL_FUNCTION,
        SG_SYMBOL_REG,
        SG_SYMBOL_RANGE,
        SG_SYMBOL_VECTOR, /* of registers */
        SG_SYMBOL_LABEL,
        SG_SYMBOL_TABLE,
        SG_SYMBOL_PROTOTYPE
    } kind;
    union {
        struct sg_var *var;
        struct sg_ptx_function *function;
        struct {
            uint32_t first, count;
        } regs;
        uint32_t number;
        struct sg_ptx_function *prototype; /* a nameless function that has the signature */
    };
};

#endif
