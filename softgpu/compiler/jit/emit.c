/*
 * emit.c - see emit.h.
 *
 * For developers: with SOFTGPU_DUMP_IR set to a folder, every module is written there before and after
 * optimisation.
 */
#include "softgpu/compiler/jit/emit.h"
#include "softgpu/compiler/jit/guard.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sg_emitter {
    LLVMTargetMachineRef machine,
        quick; /* quick: makes code of large functions in time that grows with their size */
};

static void initialise_target(void)
{
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
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

/* The host as LLVM names it. */
struct host {
    char *triple, *cpu, *features;
};

static struct host host_of(void)
{
    return (struct host){LLVMGetDefaultTargetTriple(), LLVMGetHostCPUName(), LLVMGetHostCPUFeatures()};
}

static void forget_host(struct host *host)
{
    LLVMDisposeMessage(host->triple);
    LLVMDisposeMessage(host->cpu);
    LLVMDisposeMessage(host->features);
}

LLVMTargetMachineRef sg_machine_create(LLVMCodeGenOptLevel level, struct sg_text *log)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_target);
    struct host host = host_of();
    char *message = NULL;
    LLVMTargetRef target;
    LLVMTargetMachineRef machine = NULL;
    if (LLVMGetTargetFromTriple(host.triple, &target, &message)) {
        sg_text_append(log, "LLVM has no target for %s: %s\n", host.triple, message);
        LLVMDisposeMessage(message);
    } else {
        char *chosen = choose_features(host.triple, host.cpu, host.features);
        machine =
            LLVMCreateTargetMachine(target, host.triple, host.cpu, chosen != NULL ? chosen : host.features,
                                    level, LLVMRelocPIC, LLVMCodeModelJITDefault);
        free(chosen);
    }
    forget_host(&host);
    return machine;
}

char *sg_machine_describe(bool *has_half)
{
    struct host host = host_of();
    unsigned major, minor, patch;
    char *text = NULL;
    LLVMGetVersion(&major, &minor, &patch);
    if (asprintf(&text, "LLVM %u.%u.%u %s %s %s", major, minor, patch, host.triple, host.cpu, host.features) <
        0)
        text = NULL;
    *has_half = strstr(host.features, "+f16c") != NULL || strncmp(host.triple, "aarch64", 7) == 0;
    forget_host(&host);
    return text;
}

bool sg_llvm_failed(LLVMErrorRef error, struct sg_text *log)
{
    if (error == NULL)
        return false;
    char *message = LLVMGetErrorMessage(error);
    sg_text_append(log, "LLVM: %s\n", message);
    LLVMDisposeErrorMessage(message);
    return true;
}

struct sg_emitter *sg_emitter_create(struct sg_text *log)
{
    struct sg_emitter *emitter = calloc(1, sizeof(*emitter));
    if (emitter == NULL)
        return NULL;
    emitter->machine = sg_machine_create(LLVMCodeGenLevelDefault, log);
    emitter->quick = emitter->machine == NULL ? NULL : sg_machine_create(LLVMCodeGenLevelNone, log);
    if (emitter->quick == NULL) {
        sg_emitter_destroy(emitter);
        return NULL;
    }
    return emitter;
}

void sg_emitter_destroy(struct sg_emitter *emitter)
{
    if (emitter == NULL)
        return;
    if (emitter->machine != NULL)
        LLVMDisposeTargetMachine(emitter->machine);
    if (emitter->quick != NULL)
        LLVMDisposeTargetMachine(emitter->quick);
    free(emitter);
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

uint32_t sg_emitter_size(LLVMModuleRef module)
{
    uint32_t n = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f != NULL; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b != NULL; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef i = LLVMGetFirstInstruction(b); i != NULL; i = LLVMGetNextInstruction(i))
                n++;
    return n;
}

/*
 * What must be inlined is in any case. For code that is wanted soon, or of a huge module, only those optimisations are made that take
 * time in proportion to its size and shorten the code by themselves. Registers become values before anything is inlined: they
 * would be copied with every function, and what there are too many of in one function takes time that grows with their square.
 */
static bool run_passes(const struct sg_emitter *emitter, LLVMModuleRef module, enum sg_effort effort,
                       struct sg_text *log)
{
    static const char few[] = "function(sroa,early-cse,simplifycfg),always-inline,"
                              "function(sroa,early-cse,simplifycfg,instsimplify,dce)";
    const char *passes = effort == SG_EFFORT_NONE    ? "default<O0>"
                         : effort == SG_EFFORT_QUICK ? few
                                                     : "default<O2>";
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMPassBuilderOptionsSetLoopVectorization(options, 1);
    LLVMPassBuilderOptionsSetLoopInterleaving(options, 1);
    LLVMPassBuilderOptionsSetSLPVectorization(options, 1);
    LLVMPassBuilderOptionsSetLoopUnrolling(options, 1);
    bool bad = sg_llvm_failed(LLVMRunPasses(module, passes, emitter->machine, options), log);
    LLVMDisposePassBuilderOptions(options);
    return !bad;
}

bool sg_emitter_optimise(const struct sg_emitter *emitter, LLVMModuleRef module, const char *symbol,
                         enum sg_effort *effort, bool guarded, struct sg_text *log)
{
    dump(module, symbol, "generated");
    char *message = NULL;
    bool invalid = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
    if (invalid)
        sg_text_append(log, "generated code for '%s' is not valid: %s\n", symbol, message);
    LLVMDisposeMessage(message);
    if (invalid)
        return false;
    if (*effort == SG_EFFORT_FULL && sg_emitter_size(module) > SG_JIT_HUGE)
        *effort = SG_EFFORT_QUICK;
    if (!run_passes(emitter, module, *effort, log))
        return false;
    dump(module, symbol, "optimised");
    if (guarded && !sg_guard_confine(module, log))
        return false;
    if (guarded)
        dump(module, symbol, "guarded");
    return true;
}

LLVMMemoryBufferRef sg_emitter_emit(const struct sg_emitter *emitter, LLVMModuleRef module,
                                    const char *symbol, enum sg_effort effort, struct sg_text *log)
{
    LLVMMemoryBufferRef object = NULL;
    char *message = NULL;
    LLVMTargetMachineRef machine = effort == SG_EFFORT_QUICK ? emitter->quick : emitter->machine;
    if (!LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object))
        return object;
    sg_text_append(log, "no code for '%s': %s\n", symbol, message);
    LLVMDisposeMessage(message);
    return NULL;
}
