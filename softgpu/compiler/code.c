/*
 * code.c - the machine code of a program's kernels: out of the cache on disk, or generated, optimised,
 * compiled and kept there. A lock makes code generation one at a time; code that has been made is found
 * without it. What the cache cannot give, for whatever reason, is compiled.
 *
 * A large kernel gets quick code first, and better code takes its place when it is there (jit/improve.h): launches from then on
 * run that, those that have been queued run what they were queued with. Both compute the same, and stay as long as the program.
 */
#include "softgpu/compiler/codegen/codegen.h"
#include "softgpu/compiler/jit/cache.h"
#include "softgpu/compiler/jit/exit_gate.h"
#include "softgpu/compiler/jit/improve.h"
#include "softgpu/compiler/jit/jit.h"
#include "softgpu/compiler/jit/symbols.h"
#include "softgpu/compiler/program.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/cuda/kernel_messages.h"
#include "softgpu/compiler_digest.h"

#include <errno.h>
#include <llvm-c/BitWriter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The JIT, with all that the program's code may refer to. */
static struct sg_jit *start_jit(const struct sg_program *program, struct sg_text *log)
{
    struct sg_jit *jit = sg_jit_create(log);
    size_t count = program->n_variables;
    char(*names)[SG_SYMBOL_SIZE] = malloc((count + 1) * sizeof(*names));
    struct sg_rt_symbol *symbols = calloc(count + 2, sizeof(*symbols));
    bool good = jit != NULL && names != NULL && symbols != NULL;
    for (size_t i = 0; good && i < count; i++) {
        snprintf(names[i], sizeof(names[i]), SG_SYMBOL_VARIABLE, (unsigned)i);
        symbols[i] = (struct sg_rt_symbol){names[i], program->places[i]->address};
    }
    if (good) {
        symbols[count] = (struct sg_rt_symbol){SG_SYMBOL_HANDLES, program->module->handles};
        good = sg_jit_define(jit, symbols, log);
    }
    if (!good) {
        sg_jit_destroy(jit);
        jit = NULL;
    }
    free(names);
    free(symbols);
    return jit;
}

/* The module of a kernel; NULL with *status and a message. Under the lock. */
static LLVMModuleRef generate(struct sg_program *program, struct sg_program_kernel *kernel,
                              const char *symbol, struct sg_text *log, enum sg_compile_status *status)
{
    struct sg_diagnostics diagnostics = {.log = log};
    struct sg_arena arena = {.diagnostics = &diagnostics};
    struct sg_codegen *gen = calloc(1, sizeof(*gen));
    *status = SG_COMPILE_NO_MEMORY;
    if (gen == NULL)
        return NULL;
    gen->arena = &arena;
    gen->module = program->module;
    gen->reach = &kernel->reach;
    gen->shared = &kernel->shared;
    gen->form = kernel->public.form;
    gen->watched = program->watched;
    gen->guarded = program->guarded;
    gen->has_half = sg_jit_has_half(program->jit);
    gen->context = sg_jit_context(program->jit);
    if (setjmp(diagnostics.escape) != 0) {
        *status = diagnostics.status;
        if (gen->llvm != NULL)
            LLVMDisposeModule(gen->llvm);
        gen->llvm = NULL;
    } else if (sg_generate(gen, kernel->function, symbol) != NULL) {
        *status = SG_COMPILE_OK;
    }
    if (gen->builder != NULL)
        LLVMDisposeBuilder(gen->builder);
    if (gen->entry_builder != NULL)
        LLVMDisposeBuilder(gen->entry_builder);
    LLVMModuleRef module = *status == SG_COMPILE_OK ? gen->llvm : NULL;
    if (module != NULL)
        sg_jit_prepare(program->jit, module);
    sg_arena_fini(&arena);
    free(gen);
    return module;
}

/* Of all that a kernel's code depends on. */
static struct rg_digest key_of(const struct sg_program *program, const struct sg_program_kernel *kernel,
                               const char *symbol)
{
    static const char compiler[] = SG_COMPILER_DIGEST;
    const char *host = sg_jit_host(program->jit), *name = kernel->public.name;
    const struct rg_digest_part pieces[] = {{compiler, sizeof(compiler)},
                                            {host, strlen(host)},
                                            {&program->watched, sizeof(program->watched)},
                                            {&program->optimised, sizeof(program->optimised)},
                                            {&program->guarded, sizeof(program->guarded)},
                                            {&program->capability, sizeof(program->capability)},
                                            {&program->digest, sizeof(program->digest)},
                                            {name, strlen(name)},
                                            {&kernel->public.form, sizeof(kernel->public.form)},
                                            {&kernel->lockstep, sizeof(kernel->lockstep)},
                                            {symbol, strlen(symbol)}};
    return rg_digest_of(pieces, sizeof(pieces) / sizeof(pieces[0]));
}

static void *load_cached(struct sg_program *program, struct sg_cache *cache, const struct rg_digest *kernel,
                         enum sg_part part, const char *symbol)
{
    const struct rg_digest key = sg_part_key(kernel, part);
    size_t size;
    void *data = sg_cache_read(cache, &key, &size), *code = NULL;
    if (data == NULL)
        return NULL;
    struct sg_text log = {0};
    code = sg_jit_load(program->jit, LLVMCreateMemoryBufferWithMemoryRangeCopy(data, size, symbol), symbol,
                       &log);
    if (code == NULL) {
        rg_debug("a kept kernel cannot be used: %s", log.data != NULL ? log.data : "");
        sg_cache_drop(cache, &key);
    }
    sg_text_fini(&log);
    free(data);
    return code;
}

/* Kernels with fewer instructions of PTX are never large (SG_JIT_LARGE): nothing of theirs but code is looked for in the cache. */
#define QUICK_MIN 200

/* Instructions of PTX, as far as functions are not inlined. */
static uint32_t size_of(const struct sg_program_kernel *kernel)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < kernel->reach.count; i++)
        size += kernel->reach.functions[i]->n_insns;
    return size;
}

/* Says on standard error, after a while, what is being compiled: the program seems to hang meanwhile. */
struct patience {
    pthread_mutex_t lock;
    pthread_cond_t over;
    pthread_t thread;
    bool runs, done;
    const char *kernel;
    uint32_t size; /* instructions of PTX */
};

#define PATIENCE_S 5

static void *lose_patience(void *argument)
{
    struct patience *patience = argument;
    const struct timespec until = rg_timespec(rg_now_ns() + PATIENCE_S * 1000000000ull);
    pthread_mutex_lock(&patience->lock);
    while (!patience->done &&
           pthread_cond_clockwait(&patience->over, &patience->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    if (!patience->done)
        rg_warn(RG_KERNEL_SLOW_MESSAGE "%s' after %d s (%u instructions of PTX); it runs when that is done",
                patience->kernel, PATIENCE_S, patience->size);
    pthread_mutex_unlock(&patience->lock);
    return NULL;
}

static void patience_begin(struct patience *patience, const struct sg_program_kernel *kernel)
{
    *patience = (struct patience){.lock = PTHREAD_MUTEX_INITIALIZER,
                                  .over = PTHREAD_COND_INITIALIZER,
                                  .kernel = kernel->public.name,
                                  .size = size_of(kernel)};
    patience->runs = rg_thread_create(&patience->thread, "sg-patience", lose_patience, patience) == RG_OK;
}

static void patience_end(struct patience *patience)
{
    pthread_mutex_lock(&patience->lock);
    patience->done = true;
    pthread_cond_signal(&patience->over);
    pthread_mutex_unlock(&patience->lock);
    if (patience->runs)
        pthread_join(patience->thread, NULL);
}

/* A kernel whose code is being made, under the lock. */
struct making {
    struct sg_program *program;
    struct sg_program_kernel *kernel;
    struct sg_cache *cache; /* NULL: nothing is kept */
    struct rg_digest key;
    char symbol[SG_SYMBOL_SIZE], quick[SG_SYMBOL_SIZE]; /* of its code, and of its quick code */
    bool soon;                                          /* quick code comes first, if the kernel is large */
};

/* Better code takes the place of quick code. */
static void replace_code(void *owner, size_t index, LLVMMemoryBufferRef object)
{
    struct sg_program *program = owner;
    struct sg_text log = {0};
    char symbol[SG_SYMBOL_SIZE];
    snprintf(symbol, sizeof(symbol), SG_SYMBOL_KERNEL, (unsigned)index);
    pthread_mutex_lock(&program->lock);
    void *code = sg_jit_load(program->jit, object, symbol, &log);
    if (code != NULL)
        program->kernels[index].code = code;
    else
        rg_debug("better code cannot be used: %s", log.data != NULL ? log.data : "");
    pthread_mutex_unlock(&program->lock);
    sg_text_fini(&log);
}

static void improve(const struct making *making, LLVMMemoryBufferRef module, bool optimised)
{
    sg_improve(&(struct sg_improvement){.symbol = making->symbol,
                                        .name = making->kernel->public.name,
                                        .guarded = making->program->guarded,
                                        .optimised = optimised,
                                        .cache = making->cache,
                                        .key = making->key,
                                        .deliver = replace_code,
                                        .owner = making->program,
                                        .index = (size_t)(making->kernel - making->program->kernels)},
               module);
}

/* Loads what is kept of a kernel, and has the rest made of it. */
static void *take_kept(const struct making *making)
{
    void *code = load_cached(making->program, making->cache, &making->key, SG_PART_CODE, making->symbol);
    if (code != NULL || !making->soon)
        return code;
    size_t size;
    struct rg_digest key = sg_part_key(&making->key, SG_PART_OPTIMISED);
    void *module = sg_cache_read(making->cache, &key, &size);
    const bool optimised = module != NULL;
    if (!optimised) {
        key = sg_part_key(&making->key, SG_PART_GENERATED);
        module = sg_cache_read(making->cache, &key, &size);
    }
    if (module != NULL)
        code = load_cached(making->program, making->cache, &making->key, SG_PART_QUICK, making->quick);
    if (code != NULL)
        improve(making, LLVMCreateMemoryBufferWithMemoryRangeCopy(module, size, making->symbol), optimised);
    free(module);
    return code;
}

static void keep(const struct making *making, enum sg_part part, LLVMMemoryBufferRef data)
{
    const struct rg_digest key = sg_part_key(&making->key, part);
    if (making->cache != NULL)
        sg_cache_write(making->cache, &key, LLVMGetBufferStart(data), LLVMGetBufferSize(data));
}

/* The kernel's code has another name than the better code that will come. */
static void rename_code(const struct making *making, LLVMModuleRef module)
{
    LLVMValueRef code = LLVMGetNamedGlobal(module, making->symbol);
    if (code == NULL)
        code = LLVMGetNamedFunction(module, making->symbol);
    LLVMSetValueName2(code, making->quick, strlen(making->quick));
}

/* Keeps and loads an object. */
static void *take_made(const struct making *making, LLVMMemoryBufferRef object, const char *symbol,
                       struct sg_text *log)
{
    keep(making, making->soon ? SG_PART_QUICK : SG_PART_CODE, object);
    return sg_jit_load(making->program->jit, object, symbol, log);
}

/* Makes code anew: quick code and, in the background, better code, or what there is only one of. */
static void *make_anew(struct making *making, struct sg_text *log, enum sg_compile_status *status)
{
    struct sg_program *program = making->program;
    LLVMMemoryBufferRef bitcode = NULL;
    LLVMModuleRef module = generate(program, making->kernel, making->symbol, log, status);
    if (module == NULL)
        return NULL;
    const uint32_t size = sg_emitter_size(module);
    making->soon &= size >= SG_JIT_LARGE && size <= SG_JIT_HUGE;
    if (making->soon) {
        bitcode = LLVMWriteBitcodeToMemoryBuffer(module);
        rename_code(making, module);
    }
    const char *symbol = making->soon ? making->quick : making->symbol;
    const enum sg_effort effort = making->soon         ? SG_EFFORT_QUICK
                                  : program->optimised ? SG_EFFORT_FULL
                                                       : SG_EFFORT_NONE;
    LLVMMemoryBufferRef object = sg_jit_compile(program->jit, module, symbol, effort, program->guarded, log);
    void *code = object != NULL ? take_made(making, object, symbol, log) : NULL;
    *status = code != NULL ? SG_COMPILE_OK : SG_COMPILE_INVALID_PTX;
    if (bitcode != NULL && code != NULL) {
        keep(making, SG_PART_GENERATED, bitcode);
        improve(making, bitcode, false);
    } else if (bitcode != NULL) {
        LLVMDisposeMemoryBuffer(bitcode);
    }
    return code;
}

/* Makes the kernel's code, from the cache or anew. Under the lock. */
static enum sg_compile_status make_code(struct sg_program *program, struct sg_program_kernel *kernel,
                                        struct sg_text *log)
{
    enum sg_compile_status status;
    const uint64_t started = rg_now_ns();
    if (kernel->unknown != NULL) {
        sg_text_append(log, "%s\n", kernel->unknown);
        return SG_COMPILE_UNKNOWN;
    }
    if (program->jit == NULL && (program->jit = start_jit(program, log)) == NULL)
        return SG_COMPILE_NO_MEMORY;
    /* whoever wants to see how code is made wants it made */
    const bool shown = secure_getenv("SOFTGPU_DUMP_IR") != NULL;
    struct making making = {.program = program,
                            .kernel = kernel,
                            .cache = shown ? NULL : sg_cache_default(),
                            .soon = program->quick && program->optimised && !shown &&
                                    size_of(kernel) >= QUICK_MIN};
    const unsigned index = (unsigned)(kernel - program->kernels);
    snprintf(making.symbol, sizeof(making.symbol), SG_SYMBOL_KERNEL, index);
    snprintf(making.quick, sizeof(making.quick), SG_SYMBOL_QUICK, index);
    if (making.cache != NULL) {
        making.key = key_of(program, kernel, making.symbol);
        kernel->code = take_kept(&making);
    }
    if (kernel->code != NULL) {
        rg_debug("kernel %s: loaded from the cache in %.1f ms", kernel->public.name,
                 (double)(rg_now_ns() - started) / 1e6);
        return SG_COMPILE_OK;
    }
    struct patience patience;
    patience_begin(&patience, kernel);
    kernel->code = make_anew(&making, log, &status);
    patience_end(&patience);
    if (kernel->code != NULL)
        rg_debug("kernel %s: %scompiled in %.1f ms", kernel->public.name, making.soon ? "quickly " : "",
                 (double)(rg_now_ns() - started) / 1e6);
    return status;
}

struct make_call {
    struct sg_program *program;
    struct sg_program_kernel *kernel;
    struct sg_text *log;
    enum sg_compile_status status;
};

static void run_make_code(void *arg)
{
    struct make_call *call = arg;
    if (!sg_exit_gate_enter()) {
        call->status = SG_COMPILE_ENDING;
        return;
    }
    call->status = make_code(call->program, call->kernel, call->log);
    sg_exit_gate_leave();
}

enum sg_compile_status sg_program_code(struct sg_program *program, size_t index, struct sg_text *log,
                                       void **code)
{
    if (index >= program->n_kernels)
        return SG_COMPILE_UNRESOLVED;
    struct sg_program_kernel *kernel = &program->kernels[index];
    struct make_call call = {program, kernel, log, SG_COMPILE_OK};
    *code = kernel->code;
    if (*code != NULL) /* without the lock: another thread may be compiling another kernel */
        return SG_COMPILE_OK;
    pthread_mutex_lock(&program->lock);
    if (kernel->code == NULL)
        rg_thread_with_room(run_make_code, &call);
    if (call.status == SG_COMPILE_OK)
        *code = kernel->code;
    pthread_mutex_unlock(&program->lock);
    return call.status;
}

bool sg_program_has_code(struct sg_program *program, size_t index)
{
    return index < program->n_kernels && program->kernels[index].code != NULL;
}

void sg_program_wait_better(struct sg_program *program)
{
    sg_improve_wait(program);
}
