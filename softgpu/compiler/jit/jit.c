/*
 * jit.c - LLVM's ORC JIT: linking against the engine and math.c. Nothing else is visible to generated code. All contexts of one
 * JIT are one, so modules are compiled one at a time; the program's lock sees to it.
 */
#include "softgpu/compiler/jit/jit.h"
#include "softgpu/compiler/jit/emit.h"
#include "softgpu/compiler/jit/math.h"

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#include <stdlib.h>

struct sg_jit {
    LLVMOrcThreadSafeContextRef context;
    LLVMContextRef llvm; /* inside of it */
    LLVMOrcLLJITRef lljit;
    struct sg_emitter *emitter;
    char *triple;
    bool has_half;
    char *host;
};

bool sg_jit_define(struct sg_jit *jit, const struct sg_rt_symbol *symbols, struct sg_text *log)
{
    size_t count = 0;
    while (symbols[count].name != NULL)
        count++;
    if (count == 0)
        return true;
    LLVMOrcCSymbolMapPair *pairs = calloc(count, sizeof(*pairs));
    if (pairs == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        pairs[i].Name = LLVMOrcLLJITMangleAndIntern(jit->lljit, symbols[i].name);
        pairs[i].Sym.Address = (LLVMOrcExecutorAddress)(uintptr_t)symbols[i].address;
        pairs[i].Sym.Flags.GenericFlags =
            LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable;
    }
    LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(pairs, count);
    free(pairs);
    return !sg_llvm_failed(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit->lljit), unit), log);
}

static void create_context(struct sg_jit *jit)
{
#if SG_LLVM_MAJOR >= 21
    jit->llvm = LLVMContextCreate();
    jit->context = LLVMOrcCreateNewThreadSafeContextFromLLVMContext(jit->llvm);
#else
    jit->context = LLVMOrcCreateNewThreadSafeContext();
    jit->llvm = LLVMOrcThreadSafeContextGetContext(jit->context);
#endif
}

static bool create_lljit(struct sg_jit *jit, struct sg_text *log)
{
    LLVMTargetMachineRef machine = sg_machine_create(LLVMCodeGenLevelDefault, log);
    if (machine == NULL)
        return false;
    jit->triple = LLVMGetTargetMachineTriple(machine);
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
    return !sg_llvm_failed(LLVMOrcCreateLLJIT(&jit->lljit, builder), log);
}

struct sg_jit *sg_jit_create(struct sg_text *log)
{
    struct sg_jit *jit = calloc(1, sizeof(*jit));
    if (jit == NULL)
        return NULL;
    create_context(jit);
    jit->host = sg_machine_describe(&jit->has_half);
    jit->emitter = sg_emitter_create(log);
    if (jit->host == NULL || jit->emitter == NULL || !create_lljit(jit, log) ||
        !sg_jit_define(jit, sg_rt_symbols(), log) || !sg_jit_define(jit, sg_math_symbols, log)) {
        sg_jit_destroy(jit);
        return NULL;
    }
    return jit;
}

void sg_jit_destroy(struct sg_jit *jit)
{
    struct sg_text log = {0};
    if (jit == NULL)
        return;
    if (jit->lljit != NULL)
        sg_llvm_failed(LLVMOrcDisposeLLJIT(jit->lljit), &log);
    sg_emitter_destroy(jit->emitter);
    LLVMOrcDisposeThreadSafeContext(jit->context);
    sg_text_fini(&log);
    if (jit->triple != NULL)
        LLVMDisposeMessage(jit->triple);
    free(jit->host);
    free(jit);
}

const char *sg_jit_host(const struct sg_jit *jit)
{
    return jit->host;
}

bool sg_jit_has_half(const struct sg_jit *jit)
{
    return jit->has_half;
}

LLVMContextRef sg_jit_context(const struct sg_jit *jit)
{
    return jit->llvm;
}

void sg_jit_prepare(const struct sg_jit *jit, LLVMModuleRef module)
{
    LLVMSetTarget(module, jit->triple);
    LLVMSetDataLayout(module, LLVMOrcLLJITGetDataLayoutStr(jit->lljit));
}

LLVMMemoryBufferRef sg_jit_compile(struct sg_jit *jit, LLVMModuleRef module, const char *symbol,
                                   enum sg_effort effort, bool guarded, struct sg_text *log)
{
    LLVMMemoryBufferRef object = NULL;
    if (sg_emitter_optimise(jit->emitter, module, symbol, &effort, guarded, log))
        object = sg_emitter_emit(jit->emitter, module, symbol, effort, log);
    LLVMDisposeModule(module);
    return object;
}

void *sg_jit_load(struct sg_jit *jit, LLVMMemoryBufferRef object, const char *symbol, struct sg_text *log)
{
    LLVMOrcExecutorAddress address = 0;
    LLVMOrcResourceTrackerRef tracker =
        LLVMOrcJITDylibCreateResourceTracker(LLVMOrcLLJITGetMainJITDylib(jit->lljit));
    bool bad = sg_llvm_failed(LLVMOrcLLJITAddObjectFileWithRT(jit->lljit, tracker, object), log) ||
               sg_llvm_failed(LLVMOrcLLJITLookup(jit->lljit, &address, symbol), log);
    if (bad)
        sg_llvm_failed(LLVMOrcResourceTrackerRemove(tracker), log);
    LLVMOrcReleaseResourceTracker(tracker);
    return bad ? NULL : (void *)(uintptr_t)address;
}
