/*
 * jit.c - LLVM's ORC JIT: host target, optimisation, linking against the engine and math.c. Nothing else is
 * visible to generated code. All contexts of one JIT are one, so modules are compiled one at a time; the
 * program's lock sees to it.
 *
 * For developers: with SOFTGPU_DUMP_IR set to a folder, every module is written there before and after
 * optimisation.
 */
#include "softgpu/compiler/jit/jit.h"
#include "softgpu/compiler/jit/guard.h"
#include "softgpu/compiler/jit/math.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sg_jit {
    LLVMOrcThreadSafeContextRef context;
    LLVMContextRef llvm; /* inside of it */
    LLVMOrcLLJITRef lljit;
    LLVMTargetMachineRef machine,
        quick; /* quick: compiles large modules in time that grows with their size */
    bool has_half;
    char *host;
};

static void initialise_target(void)
{
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
}

static void describe_host(struct sg_jit *jit, const char *triple, const char *cpu, const char *features)
{
    unsigned major, minor, patch;
    if (jit->host != NULL)
        return;
    LLVMGetVersion(&major, &minor, &patch);
    if (asprintf(&jit->host, "LLVM %u.%u.%u %s %s %s", major, minor, patch, triple, cpu, features) < 0)
        jit->host = NULL;
}

/*
 * The host's features, less what LLVM takes to be cheaper than it is: scattered stores, of which most
 * threads' turn out not to be made (`if (threadIdx.x == 0)`), and on AMD's processors scattered loads.
 */
static char *choose_features(const char *triple, const char *cpu, const char *features)
{
    char *chosen = NULL;
    if (strncmp(triple, "x86_64", 6) != 0 ||
        asprintf(&chosen, "%s,+prefer-no-scatter%s", features,
                 strncmp(cpu, "znver", 5) == 0 ? ",+prefer-no-gather" : "") < 0)
        return NULL;
    return chosen;
}

static LLVMTargetMachineRef create_machine(struct sg_jit *jit, LLVMCodeGenOptLevel level, struct sg_text *log)
{
    char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(),
         *features = LLVMGetHostCPUFeatures();
    char *message = NULL;
    LLVMTargetRef target;
    LLVMTargetMachineRef machine = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        sg_text_append(log, "LLVM has no target for %s: %s\n", triple, message);
        LLVMDisposeMessage(message);
    } else {
        char *chosen = choose_features(triple, cpu, features);
        machine = LLVMCreateTargetMachine(target, triple, cpu, chosen != NULL ? chosen : features, level,
                                          LLVMRelocPIC, LLVMCodeModelJITDefault);
        free(chosen);
    }
    describe_host(jit, triple, cpu, features);
    jit->has_half = strstr(features, "+f16c") != NULL || strncmp(triple, "aarch64", 7) == 0;
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
    return machine;
}

/* Tells the error and frees it; true if there was one. */
static bool failed(LLVMErrorRef error, struct sg_text *log)
{
    if (error == NULL)
        return false;
    char *message = LLVMGetErrorMessage(error);
    sg_text_append(log, "LLVM: %s\n", message);
    LLVMDisposeErrorMessage(message);
    return true;
}

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
    return !failed(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit->lljit), unit), log);
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

struct sg_jit *sg_jit_create(struct sg_text *log)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_target);
    struct sg_jit *jit = calloc(1, sizeof(*jit));
    if (jit == NULL)
        return NULL;
    create_context(jit);
    jit->machine = create_machine(jit, LLVMCodeGenLevelDefault, log);
    jit->quick = jit->machine == NULL ? NULL : create_machine(jit, LLVMCodeGenLevelNone, log);
    LLVMTargetMachineRef for_lljit =
        jit->quick == NULL ? NULL : create_machine(jit, LLVMCodeGenLevelDefault, log);
    if (for_lljit == NULL) {
        sg_jit_destroy(jit);
        return NULL;
    }
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(for_lljit));
    if (jit->host == NULL || failed(LLVMOrcCreateLLJIT(&jit->lljit, builder), log) ||
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
        failed(LLVMOrcDisposeLLJIT(jit->lljit), &log);
    if (jit->machine != NULL)
        LLVMDisposeTargetMachine(jit->machine);
    if (jit->quick != NULL)
        LLVMDisposeTargetMachine(jit->quick);
    LLVMOrcDisposeThreadSafeContext(jit->context);
    sg_text_fini(&log);
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

static void dump(LLVMModuleRef module, const char *symbol, const char *stage)
{
    const char *folder = secure_getenv("SOFTGPU_DUMP_IR");
    char path[4096];
    if (folder == NULL)
        return;
    snprintf(path, sizeof(path), "%s/%.200s.%s.ll", folder, symbol, stage);
    char *message = NULL;
    if (LLVMPrintModuleToFile(module, path, &message))
        LLVMDisposeMessage(message);
}

/* How many instructions there are, up to a little above the limit for large modules. */
static unsigned count_instructions(LLVMModuleRef module)
{
    unsigned n = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f != NULL; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b != NULL; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef i = LLVMGetFirstInstruction(b); i != NULL; i = LLVMGetNextInstruction(i))
                n++;
    return n;
}

/*
 * Optimises a module. What must be inlined is in any case. Some of LLVM's optimisations take time that grows with the square of a
 * function's size: of a large module only those are done that shorten the code by themselves.
 */
static bool run_passes(struct sg_jit *jit, LLVMModuleRef module, bool optimised, bool large,
                       struct sg_text *log)
{
    static const char few[] = "always-inline,function(sroa,early-cse,simplifycfg,instsimplify,dce)";
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMPassBuilderOptionsSetLoopVectorization(options, 1);
    LLVMPassBuilderOptionsSetLoopInterleaving(options, 1);
    LLVMPassBuilderOptionsSetSLPVectorization(options, 1);
    LLVMPassBuilderOptionsSetLoopUnrolling(options, 1);
    bool bad = failed(LLVMRunPasses(module,
                                    !optimised ? "default<O0>"
                                    : large    ? few
                                               : "default<O2>",
                                    jit->machine, options),
                      log);
    LLVMDisposePassBuilderOptions(options);
    return !bad;
}

LLVMMemoryBufferRef sg_jit_compile(struct sg_jit *jit, LLVMModuleRef module, const char *symbol,
                                   bool optimised, bool guarded, struct sg_text *log)
{
    char *triple = LLVMGetTargetMachineTriple(jit->machine), *message = NULL;
    LLVMSetTarget(module, triple);
    LLVMDisposeMessage(triple);
    LLVMSetDataLayout(module, LLVMOrcLLJITGetDataLayoutStr(jit->lljit));
    dump(module, symbol, "generated");
    bool invalid = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
    if (invalid)
        sg_text_append(log, "generated code for '%s' is not valid: %s\n", symbol, message);
    LLVMDisposeMessage(message);
    const bool large = !invalid && count_instructions(module) > SG_JIT_LARGE;
    if (invalid || !run_passes(jit, module, optimised, large, log)) {
        LLVMDisposeModule(module);
        return NULL;
    }
    dump(module, symbol, "optimised");
    if (guarded && !sg_guard_confine(module, log)) {
        LLVMDisposeModule(module);
        return NULL;
    }
    if (guarded)
        dump(module, symbol, "guarded");
    LLVMMemoryBufferRef object = NULL;
    message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(large ? jit->quick : jit->machine, module, LLVMObjectFile,
                                            &message, &object)) {
        sg_text_append(log, "no code for '%s': %s\n", symbol, message);
        LLVMDisposeMessage(message);
        object = NULL;
    }
    LLVMDisposeModule(module);
    return object;
}

void *sg_jit_load(struct sg_jit *jit, LLVMMemoryBufferRef object, const char *symbol, struct sg_text *log)
{
    LLVMOrcExecutorAddress address = 0;
    LLVMOrcResourceTrackerRef tracker =
        LLVMOrcJITDylibCreateResourceTracker(LLVMOrcLLJITGetMainJITDylib(jit->lljit));
    bool bad = failed(LLVMOrcLLJITAddObjectFileWithRT(jit->lljit, tracker, object), log) ||
               failed(LLVMOrcLLJITLookup(jit->lljit, &address, symbol), log);
    if (bad)
        failed(LLVMOrcResourceTrackerRemove(tracker), log);
    LLVMOrcReleaseResourceTracker(tracker);
    return bad ? NULL : (void *)(uintptr_t)address;
}
