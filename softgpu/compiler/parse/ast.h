/*
 * ast.h - a PTX module as written: what the parser makes of the text. Names are not resolved here,
 * instructions are a word, dotted modifiers and operands; check.h gives them meaning. Slices point into the
 * text.
 *
 * The bodies of functions, which are nearly all of a module, are parsed one at a time and live only until
 * they are checked: as written they take a kilobyte an instruction, and libraries have half a million of
 * them.
 */
#ifndef SG_COMPILER_PARSE_AST_H
#define SG_COMPILER_PARSE_AST_H

#include "softgpu/compiler/ir/types.h"

enum sg_ast_kind {
    SG_AST_SINK,    /* _ */
    SG_AST_NAME,    /* name, maybe .component, maybe + offset */
    SG_AST_INTEGER, /* value */
    SG_AST_FLOAT32, /* value: bits */
    SG_AST_FLOAT64, /* value: bits */
    SG_AST_ADDRESS, /* [name + value] or [value] (name empty); items: coordinates after a comma */
    SG_AST_VECTOR,  /* {items} */
    SG_AST_LIST,    /* (items) */
};

struct sg_ast_operand {
    enum sg_ast_kind kind;
    bool negated; /* !p */
    bool minus;   /* -name */
    struct sg_slice name;
    struct sg_slice component; /* x of %tid.x */
    uint64_t value;            /* integer, bits, or the offset of a name or address */
    struct sg_ast_operand *items;
    uint32_t n_items;
    struct sg_ast_operand *pair; /* q of p|q */
};

struct sg_symbol;

/** An element of an initialiser: a list, a number, or the address of a symbol. */
struct sg_ast_initial {
    enum {
        SG_INITIAL_LIST,
        SG_INITIAL_INTEGER,
        SG_INITIAL_FLOAT32,
        SG_INITIAL_FLOAT64,
        SG_INITIAL_SYMBOL
    } kind;
    bool generic;
    uint64_t value; /* number, or offset from the symbol */
    uint64_t mask;  /* 0xff00(symbol): the bits to take; 0 if none */
    struct sg_slice symbol;
    const struct sg_symbol *resolved; /* by the checker */
    struct sg_ast_initial *items;
    uint32_t n_items;
    uint32_t line;
};

/** A variable or a parameter. */
struct sg_ast_variable {
    uint32_t line;
    enum sg_linkage linkage;
    enum sg_space space;
    enum sg_type type;
    uint32_t vector; /* 1, 2, 4 */
    uint32_t align;  /* 0: natural */
    bool is_array;
    uint64_t count; /* elements; 0 for name[] */
    bool numbered;  /* it stands for several, whose names are this one and a number */
    bool managed;
    uint8_t reference; /* enum sg_reference */
    struct sg_slice name;
    struct sg_ast_initial *initial;
};

struct sg_ast_registers {
    enum sg_type type;
    struct sg_slice name;
    uint32_t range;  /* N of %r<N>; 0 for a single register */
    uint32_t vector; /* 2 or 4 for a vector of registers, or 0 */
};

struct sg_ast_instruction {
    struct sg_slice text; /* for messages */
    struct sg_slice guard;
    bool guard_negated;
    struct sg_slice base;
    struct sg_slice *modifiers;
    uint32_t n_modifiers;
    struct sg_ast_operand *operands;
    uint32_t n_operands;
};

struct sg_ast_prototype {
    struct sg_ast_variable *returns, *params;
    uint32_t n_returns, n_params;
};

/** Where in a program's sources something comes from, as .loc says; file 0: unknown. */
struct sg_ast_place {
    uint32_t file, line;
};

struct sg_ast_statement {
    enum {
        SG_STATEMENT_INSTRUCTION,
        SG_STATEMENT_LABEL,
        SG_STATEMENT_OPEN,
        SG_STATEMENT_CLOSE,
        SG_STATEMENT_REGISTERS,
        SG_STATEMENT_VARIABLE,
        SG_STATEMENT_TARGETS,   /* name: .branchtargets or .calltargets */
        SG_STATEMENT_PROTOTYPE, /* name: .callprototype */
    } kind;
    uint32_t line;
    struct sg_ast_place place;
    struct sg_slice name;
    union {
        struct sg_ast_instruction instruction;
        struct sg_ast_registers registers;
        struct sg_ast_variable variable;
        struct sg_ast_prototype prototype;
        struct {
            struct sg_slice *names;
            uint32_t count;
        } targets;
    };
};

struct sg_ast_function {
    uint32_t line;
    enum sg_linkage linkage;
    bool is_entry, has_body, no_return;
    struct sg_slice name;
    struct sg_ast_prototype signature;
    uint32_t maxntid[3], reqntid[3];
    uint32_t reqnctapercluster[3];
    bool explicit_cluster, blocks_are_clusters;
    struct sg_slice body; /* text from '{' to '}' */
    uint32_t body_line;
};

/** What a function's braces hold, they included. */
struct sg_ast_body {
    struct sg_ast_statement *statements;
    uint32_t n_statements, capacity;
    uint32_t n_instructions; /* of them */
};

struct sg_ast_alias {
    uint32_t line;
    struct sg_slice name, target;
};

/** .file */
struct sg_ast_file {
    uint32_t number;
    struct sg_slice name;
};

struct sg_ast {
    uint32_t version; /* 90 for 9.0 */
    struct sg_slice target;
    uint32_t target_line;
    struct sg_ast_variable *variables;
    uint32_t n_variables, variable_capacity;
    struct sg_ast_function *functions;
    uint32_t n_functions, function_capacity;
    struct sg_ast_alias *aliases;
    uint32_t n_aliases, alias_capacity;
    struct sg_ast_file *files;
    uint32_t n_files, file_capacity;
};

/** Parses a module, without the bodies of its functions. Fails through the arena's diagnostics. */
struct sg_ast *sg_parse(struct sg_arena *arena, const char *text, size_t size);
/**
 * Parses the body of a function of `ast` that has one, into `scratch`; only the initial values of variables
 * are put into `arena`, for they outlive the body. Fails through the arenas' diagnostics.
 */
struct sg_ast_body *sg_parse_body(struct sg_arena *arena, struct sg_arena *scratch, struct sg_ast *ast,
                                  const struct sg_ast_function *function);

#endif
