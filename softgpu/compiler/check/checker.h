/*
 * checker.h - internal to the checker's files: the state of checking one module and one function.
 */
#ifndef SG_COMPILER_CHECK_CHECKER_H
#define SG_COMPILER_CHECK_CHECKER_H

#include "softgpu/compiler/check/check.h"

#define SG_CHECK_SCOPES 64

struct sg_checker {
    struct sg_arena *arena;
    struct sg_arena *scratch; /* what the function being checked is like as written, and its scopes */
    struct sg_ptx_module *module;
    struct sg_map opcodes; /* text of "base.mod.mod" and number of operands → struct sg_opcode */
    const char **files;    /* of the module in work, by their numbers */
    uint32_t n_files;
    struct sg_map *unit; /* names that the module in work has for itself */
    /* of the function being checked */
    struct sg_ptx_function *function;
    struct sg_map scopes[SG_CHECK_SCOPES];
    uint32_t depth;
    uint32_t *
        spare; /* registers for what instructions are taken apart to, by the numbers of sg_check_spare_register */
    uint32_t n_spare, spare_capacity;
    const struct sg_ast_statement *statement; /* being checked */
    jmp_buf unknown;                          /* where sg_check_unknown continues */
};

/** What a base word and its modifiers mean, whatever the operands. */
struct sg_opcode {
    const struct sg_form *form;
    uint8_t types[SG_INSN_TYPES];
    uint8_t mods[SG_GROUP_COUNT];
};

/** The program is wrong: ends the compilation with the line of the statement at hand and its text. */
_Noreturn void sg_check_fail(struct sg_checker *checker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/**
 * Of an instruction that may well be right and is not known here: it is the function's that holds it to fail, when a kernel that
 * needs it is asked for, not the module's.
 */
_Noreturn void sg_check_unknown(struct sg_checker *checker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** For module scope, where no statement is in work. */
_Noreturn void sg_check_fail_at(struct sg_checker *checker, uint32_t line, const char *message,
                                struct sg_slice name);

/** A name at module scope. */
struct sg_symbol *sg_check_module_symbol(struct sg_checker *checker, struct sg_slice name);
/** What a name means here, in a body; or NULL. */
struct sg_symbol *sg_check_lookup(struct sg_checker *checker, struct sg_slice name);
/** The register of this name, or UINT32_MAX. */
uint32_t sg_check_register(struct sg_checker *checker, struct sg_slice name);
/** Declares a name in the innermost braces; fails if it is declared there. */
void sg_check_declare(struct sg_checker *checker, struct sg_slice name, struct sg_symbol symbol);
/** A variable as declared; fails if it cannot be. */
struct sg_var *sg_check_variable(struct sg_checker *checker, const struct sg_ast_variable *ast,
                                 struct sg_ptx_function *function);
/** The symbols in a variable's initial value. */
void sg_check_initial(struct sg_checker *checker, struct sg_ast_initial *initial);
uint32_t sg_check_new_register(struct sg_checker *checker, enum sg_type type);
/** The address of the function, or of what it is an alias of, is taken. */
void sg_check_take_address(struct sg_checker *checker, struct sg_ptx_function *function);
/** The body of a function whose header is known. */
void sg_check_body(struct sg_checker *checker, struct sg_ptx_function *function,
                   const struct sg_ast_function *ast, const struct sg_ast_body *body);
/** Params and returns of a signature. */
void sg_check_signature(struct sg_checker *checker, struct sg_ptx_function *function,
                        const struct sg_ast_prototype *prototype);

/** The row of the table that an instruction matches, and its types and modifiers; fails if there is none. */
struct sg_opcode *sg_check_opcode(struct sg_checker *checker, const struct sg_ast_instruction *ast);
/** Checks an instruction as the table knows it, and adds it to the function. */
void sg_check_instruction(struct sg_checker *checker, const struct sg_ast_instruction *ast);
/**
 * The same for one as written: what the table does not have becomes several instructions that mean the same.
 */
void sg_check_written(struct sg_checker *checker, const struct sg_ast_instruction *ast);
/** The same for wgmma; false if it is none that is known. */
bool sg_check_warpgroup(struct sg_checker *checker, const struct sg_ast_instruction *ast);
/** Makes "base.mod.mod" the base word and the modifiers; the text lasts as long as the checker. */
void sg_check_words(struct sg_checker *checker, struct sg_ast_instruction *ast, const char *text);
/** An operand: a register that no program can name, a new one. */
struct sg_ast_operand sg_check_unnamed_register(struct sg_checker *checker, enum sg_type type);
/** The same of 32 bits, one that each instruction of the function can use anew; `number`: which one, from 0 on. */
struct sg_ast_operand sg_check_spare_register(struct sg_checker *checker, uint32_t number);
/** Fails unless an operand of this kind may stand where an instruction wants `type`. */
void sg_check_type(struct sg_checker *checker, const struct sg_operand *operand, enum sg_type type, bool dest,
                   bool wider);
/** Whether the instruction's type is one of these names, which spaces separate. */
bool sg_check_type_in(const struct sg_insn *insn, const char *names);
/** An operand, whatever its type; fails if it names nothing. */
void sg_check_operand(struct sg_checker *checker, const struct sg_ast_operand *ast, struct sg_operand *out);
/** Fails unless the operand, which stood in brackets, can be an address. */
void sg_check_address(struct sg_checker *checker, const struct sg_operand *operand);
/** Operand `number` of a video instruction, with its selector and sign. */
void sg_check_video_operand(struct sg_checker *checker, const struct sg_insn *insn, uint32_t number,
                            const struct sg_ast_operand *ast, struct sg_operand *out);
/** All operands of a copy of a tensor. */
void sg_check_tensor(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast);
/** The form of a texture or surface instruction, or NULL; and the rest of such an instruction. */
const struct sg_form *sg_check_texture_form(struct sg_slice base);
void sg_check_texture(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast);
/** A call, with all its operands. */
void sg_check_call(struct sg_checker *checker, struct sg_insn *insn, const struct sg_ast_instruction *ast);

/* Rules of groups of instructions, which instruction.c calls. */
void sg_check_mov(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_conversion(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_pair_conversion(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_rounding(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_division(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_multiply_add(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_memory(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_cvta(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_atomic(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_bulk_copy(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_bulk_reduction(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_store_async(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_branch_indexed(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_barrier(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_vote(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_redux(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_mma(struct sg_checker *checker, struct sg_insn *insn);
void sg_check_video(struct sg_checker *checker, struct sg_insn *insn);

#endif
