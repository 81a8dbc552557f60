/*
 * loop_code.c - what the engine is given of a kernel in loop form: its struct sg_loop_code.
 */
#include "softgpu/compiler/codegen/loops/loops.h"

#include <stdio.h>
#include <string.h>

static LLVMValueRef add_constant(struct sg_codegen *gen, LLVMValueRef value, const char *name)
{
    LLVMValueRef global = LLVMAddGlobal(gen->llvm, LLVMTypeOf(value), name);
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMInternalLinkage);
    return global;
}

static LLVMValueRef describe_point(struct sg_codegen *gen, const struct sg_point *point)
{
    LLVMValueRef fields[] = {sg_gen_const(gen, 8, point->kind),     sg_gen_const(gen, 8, point->mode),
                             sg_gen_const(gen, 8, point->constant), sg_gen_const(gen, 8, 0),
                             sg_gen_const(gen, 32, point->a),       sg_gen_const(gen, 32, point->b),
                             sg_gen_const(gen, 32, point->mask)};
    return LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0);
}

static LLVMValueRef describe_columns(struct sg_codegen *gen, const uint32_t columns[16])
{
    LLVMValueRef words[16];
    for (uint32_t i = 0; i < 16; i++)
        words[i] = sg_gen_const(gen, 32, columns[i]);
    return LLVMConstArray(gen->i32, words, 16);
}

static LLVMValueRef describe_matrix(struct sg_codegen *gen, const struct sg_matrix_op *op)
{
    uint64_t kind;
    memcpy(&kind, &op->kind, sizeof(kind));
    LLVMValueRef fields[] = {sg_gen_const(gen, 64, kind),         sg_gen_const(gen, 32, op->address),
                             sg_gen_const(gen, 32, op->strides),  sg_gen_const(gen, 32, op->stride),
                             sg_gen_const(gen, 32, op->metadata), describe_columns(gen, op->a),
                             describe_columns(gen, op->b),        describe_columns(gen, op->c),
                             describe_columns(gen, op->d)};
    return LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0);
}

/* The operations of all points of matrices, or NULL. */
static LLVMValueRef describe_matrices(struct sg_codegen *gen)
{
    uint32_t count = gen->loops.n_matrices;
    if (count == 0)
        return LLVMConstNull(gen->pointer);
    LLVMValueRef *ops = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    for (uint32_t i = 0; i < count; i++)
        ops[i] = describe_matrix(gen, &gen->loops.matrices[i]);
    return add_constant(gen, LLVMConstArray(LLVMTypeOf(ops[0]), ops, count), "sg.matrices");
}

void sg_gen_loop_code(struct sg_codegen *gen, const char *symbol)
{
    char name[32];
    uint32_t count = gen->loops.regions.n_points + 1, takes_turns = 0, yields = 0;
    LLVMValueRef *points = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count),
                 *codes = SG_NEW_ARRAY(gen->arena, LLVMValueRef, count);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "sg.region.%u", i);
        points[i] = describe_point(gen, &gen->loops.points[i]);
        takes_turns |=
            gen->loops.points[i].kind == SG_POINT_PASS && gen->loops.points[i].mode == SG_PASS_TURN;
        yields |= gen->loops.points[i].kind == SG_POINT_YIELD;
        codes[i] = LLVMGetNamedFunction(gen->llvm, name);
    }
    LLVMValueRef fields[] = {
        sg_gen_const(gen, 32, gen->loops.regions.n_points),
        sg_gen_const(gen, 32, gen->loops.regions.context_size),
        sg_gen_const(gen, 32, gen->loops.regions.local_size),
        sg_gen_const(gen, 32, takes_turns),
        sg_gen_const(gen, 32, yields),
        add_constant(gen, LLVMConstArray(LLVMTypeOf(points[0]), points, count), "sg.points"),
        add_constant(gen, LLVMConstArray(gen->pointer, codes, count), "sg.regions"),
        describe_matrices(gen),
    };
    LLVMValueRef code = add_constant(
        gen, LLVMConstStructInContext(gen->context, fields, sizeof(fields) / sizeof(fields[0]), 0), symbol);
    LLVMSetLinkage(code, LLVMExternalLinkage);
    LLVMSetAlignment(code, 16);
}
