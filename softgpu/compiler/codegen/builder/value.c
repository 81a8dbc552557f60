/*
 * value.c - LLVM types, constants and the operations that nearly every emitter makes; calls of intrinsics and
 * of the runtime. Knows nothing of operands.
 */
#include "softgpu/compiler/codegen/builder/builder.h"
#include "softgpu/guest.h"

#include <string.h>

LLVMTypeRef sg_gen_int(struct sg_codegen *gen, unsigned bits)
{
    return LLVMIntTypeInContext(gen->context, bits);
}

LLVMTypeRef sg_gen_type(struct sg_codegen *gen, enum sg_type type)
{
    if (type == SG_F32)
        return gen->f32;
    if (type == SG_F64)
        return gen->f64;
    return sg_gen_int(gen, sg_types[type].bits);
}

LLVMValueRef sg_gen_const(struct sg_codegen *gen, unsigned bits, uint64_t value)
{
    return LLVMConstInt(sg_gen_int(gen, bits), value, 0);
}

LLVMValueRef sg_gen_compare(struct sg_codegen *gen, LLVMIntPredicate predicate, LLVMValueRef a,
                            LLVMValueRef b)
{
    return LLVMBuildICmp(gen->builder, predicate, a, b, "");
}

LLVMValueRef sg_gen_select(struct sg_codegen *gen, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no)
{
    return LLVMBuildSelect(gen->builder, condition, yes, no, "");
}

LLVMValueRef sg_gen_cast(struct sg_codegen *gen, LLVMValueRef value, LLVMTypeRef type)
{
    return LLVMBuildBitCast(gen->builder, value, type, "");
}

LLVMValueRef sg_gen_intrinsic(struct sg_codegen *gen, const char *name, LLVMTypeRef *overloads,
                              unsigned n_overloads, LLVMValueRef *arguments, unsigned count)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(gen->llvm, id, overloads, n_overloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(gen->context, id, overloads, n_overloads);
    return LLVMBuildCall2(gen->builder, type, function, arguments, count, "");
}

LLVMValueRef sg_gen_math(struct sg_codegen *gen, const char *name, LLVMValueRef a, LLVMValueRef b,
                         LLVMValueRef c)
{
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef arguments[3] = {a, b, c};
    return sg_gen_intrinsic(gen, name, &type, 1, arguments, c != NULL ? 3 : b != NULL ? 2 : 1);
}

void sg_gen_add_attribute(struct sg_codegen *gen, LLVMValueRef function, int place, const char *name,
                          uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)place,
                            LLVMCreateEnumAttribute(gen->context, kind, value));
}

void sg_gen_set_invariant(struct sg_codegen *gen, LLVMValueRef load)
{
    LLVMSetMetadata(load, gen->invariant_kind,
                    LLVMMetadataAsValue(gen->context, LLVMMDNodeInContext2(gen->context, NULL, 0)));
}

LLVMValueRef sg_gen_confined(struct sg_codegen *gen, LLVMValueRef value)
{
    if (!gen->guarded || LLVMTypeOf(value) != gen->guest)
        return value;
    value = LLVMBuildPtrToInt(gen->builder, value, gen->i64, "");
    value = LLVMBuildFreeze(gen->builder, value, ""); /* or what is undefined stays so, masked or not */
    value = LLVMBuildAnd(gen->builder, value, sg_gen_const(gen, 64, SG_GUEST_MASK), "");
    return LLVMBuildIntToPtr(gen->builder, value, gen->pointer, "");
}

LLVMValueRef sg_gen_runtime(struct sg_codegen *gen, const char *name, LLVMTypeRef result,
                            LLVMValueRef *arguments, unsigned count)
{
    LLVMTypeRef types[8];
    LLVMValueRef given[8];
    for (unsigned i = 0; i < count; i++) {
        given[i] = sg_gen_confined(gen, arguments[i]);
        types[i] = LLVMTypeOf(given[i]);
    }
    LLVMTypeRef type = LLVMFunctionType(result, types, count, 0);
    LLVMValueRef function = LLVMGetNamedFunction(gen->llvm, name);
    if (function == NULL) {
        function = LLVMAddFunction(gen->llvm, name, type);
        sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "nounwind", 0);
        /* functions of their arguments alone; the other one, of where it is called */
        if (strncmp(name, "sg_math_", 8) == 0 || strcmp(name, "sg_rt_local_stack") == 0) {
            sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "memory", 0);
            sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "willreturn", 0);
        } else if (strcmp(name, "sg_rt_activemask") == 0) { /* it is told by the call who are together */
            sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "convergent", 0);
            sg_gen_add_attribute(gen, function, LLVMAttributeFunctionIndex, "nomerge", 0);
        }
    }
    return LLVMBuildCall2(gen->builder, type, function, given, count, "");
}

LLVMValueRef sg_gen_part(struct sg_codegen *gen, LLVMValueRef packed, unsigned i, unsigned bits)
{
    unsigned all = LLVMGetIntTypeWidth(LLVMTypeOf(packed));
    LLVMValueRef moved = LLVMBuildLShr(gen->builder, packed, sg_gen_const(gen, all, (uint64_t)i * bits), "");
    return LLVMBuildTrunc(gen->builder, moved, sg_gen_int(gen, bits), "");
}

LLVMValueRef sg_gen_join(struct sg_codegen *gen, LLVMValueRef low, LLVMValueRef high)
{
    unsigned bits = LLVMGetIntTypeWidth(LLVMTypeOf(low));
    LLVMTypeRef both = sg_gen_int(gen, bits * 2);
    LLVMValueRef top = LLVMBuildZExt(gen->builder, high, both, "");
    top = LLVMBuildShl(gen->builder, top, LLVMConstInt(both, bits, 0), "");
    return LLVMBuildOr(gen->builder, top, LLVMBuildZExt(gen->builder, low, both, ""), "");
}

LLVMBasicBlockRef sg_gen_block(struct sg_codegen *gen, const char *name)
{
    return LLVMAppendBasicBlockInContext(gen->context, gen->self, name);
}

void sg_gen_fail(struct sg_codegen *gen, const char *message)
{
    sg_fail(gen->arena->diagnostics, SG_COMPILE_INVALID_PTX, gen->insn->line, "%s: %.*s", message,
            (int)gen->insn->text.size, gen->insn->text.data);
}

void sg_gen_lacks(struct sg_codegen *gen)
{
    sg_gen_fail(gen, "the code generator lacks this instruction");
}
