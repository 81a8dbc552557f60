/*
 * compile_cache.c - see compile_cache.h. Kept are the PTX texts that the last few threads made, one a thread. Any thread.
 */
#include "common/cuda/compile_cache.h"

#include "common/base/hash_table.h"
#include "common/base/log.h"
#include "common/cuda/ptx_carrier.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 16u

struct rg_compile {
    unsigned kind, architecture;
    bool relocatable;
    const void *input; /* the caller's, until the end */
    size_t size;
};

/* PTX that a thread made, and of what. */
struct made {
    pthread_t thread;
    unsigned architecture;
    size_t input_size;
    uint64_t input_digest;
    char *text; /* owned; NULL: not in use */
    size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made made[THREADS_MAX]; /* under the lock */
static unsigned next_made;

static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Whether machine code that is to be linked is wanted: nvJitLink and NVRTC say it in different words. */
static bool is_relocatable(const char *options)
{
    return options != NULL && (has_word(options, "-c") || has_word(options, "--compile-only"));
}

CUresult rg_compile_begin(struct rg_compile **out, unsigned newest, unsigned kind, const void *input,
                          size_t size, const char *options, unsigned architecture)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    if (newest == 0 || architecture > newest)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (input == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_compile *compile = malloc(sizeof *compile);
    if (compile == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *compile = (struct rg_compile){kind, architecture, is_relocatable(options), input, size};
    *out = compile;
    return CUDA_SUCCESS;
}

CUresult rg_compile_end(struct rg_compile *compile)
{
    free(compile);
    return CUDA_SUCCESS;
}

/* What this thread made of the question's input, or NULL. Lock held. */
static const struct made *made_of(const struct rg_compile *compile)
{
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        const struct made *m = &made[i];
        if (m->text != NULL && pthread_equal(m->thread, pthread_self()) && m->input_size == compile->size &&
            m->architecture == compile->architecture &&
            m->input_digest == rg_hash_bytes(RG_HASH_EMPTY, compile->input, compile->size))
            return m;
    }
    return NULL;
}

/* Intermediate code and ELF files hold zeros; PTX is text, perhaps with its NUL. */
static bool is_text(const void *input, size_t size)
{
    return memchr(input, 0, size - 1) == NULL && memcmp(input, "BC", size < 2 ? size : 2) != 0;
}

CUresult rg_compile_find(const struct rg_compile *compile, void **data, uint32_t *size)
{
    if (compile == NULL || data == NULL || size == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (compile->kind != RG_COMPILE_BINARY)
        return CUDA_ERROR_NOT_FOUND;
    void *carrier = NULL;
    size_t carrier_size = 0;
    if (is_text(compile->input, compile->size)) {
        carrier = rg_ptx_carrier_make(compile->input, strnlen(compile->input, compile->size),
                                      compile->architecture, compile->relocatable, &carrier_size);
    } else {
        pthread_mutex_lock(&lock);
        const struct made *m = made_of(compile);
        if (m != NULL)
            carrier = rg_ptx_carrier_make(m->text, m->size, compile->architecture, compile->relocatable,
                                          &carrier_size);
        pthread_mutex_unlock(&lock);
    }
    if (carrier == NULL || carrier_size > UINT32_MAX) {
        free(carrier);
        return CUDA_ERROR_NOT_FOUND;
    }
    rg_debug("machine code for sm_%u is asked for: PTX stands in for it", compile->architecture);
    *data = carrier;
    *size = (uint32_t)carrier_size;
    return CUDA_SUCCESS;
}

CUresult rg_compile_store(const struct rg_compile *compile, const void *data, uint32_t size)
{
    if (compile == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (compile->kind != RG_COMPILE_PTX || size == 0 || !is_text(data, size))
        return CUDA_SUCCESS; /* this cache forgets everything else at once, as what linking of bitcode has made */
    char *text = malloc(size);
    if (text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(text, data, size);
    const uint64_t input_digest = rg_hash_bytes(RG_HASH_EMPTY, compile->input, compile->size);
    RG_SCOPED_LOCK(&lock);
    struct made *m = NULL;
    for (unsigned i = 0; i < THREADS_MAX && m == NULL; i++)
        if (made[i].text != NULL && pthread_equal(made[i].thread, pthread_self()))
            m = &made[i];
    if (m == NULL)
        m = &made[next_made++ % THREADS_MAX];
    free(m->text);
    *m = (struct made){pthread_self(), compile->architecture, compile->size, input_digest,
                       text,           strnlen(text, size)};
    return CUDA_SUCCESS;
}
