/*
 * ask.c - NVML's functions that are asked of the server's management library when they are called.
 *
 * The arguments of the caller and the question's signature (proto/management/management.h) make a question;
 * it goes to the server over a connection of its own, and the answer goes into the caller's memory. No lock
 * is held while a server is asked.
 *
 * An answer counts for a tenth of a second, as it does on the server: programs that poll ask no more often.
 * (Every question only asks; what would change a server is refused.) The lock of what is cached is only ever
 * tried, so that a fork while another thread has it costs the child a question at a time and no more.
 */
#include "client/core/optimisations.h"
#include "client/nvml/nvml.h"
#include "client/query/query.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS 10000000000ull /* for one question */

/* --- answers that still count --------------------------------------------------------------------------- */

#define CACHED         64u
#define CACHED_NS      100000000ull
#define CACHED_AT_MOST 65536u /* bytes of an answer; larger ones are asked for each time */

static struct {
    uint64_t until;
    size_t question_size, answer_size;
    unsigned char *question; /* the server's name, NUL, and the question; then the answer */
} cached[CACHED];
static pthread_mutex_t cached_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether entry `i` answers that question; the lock is held. */
static bool is_of(unsigned i, const char *server, const void *question, size_t size)
{
    const size_t name = strlen(server) + 1;
    return cached[i].question && cached[i].question_size == name + size &&
           memcmp(cached[i].question, server, name) == 0 &&
           memcmp(cached[i].question + name, question, size) == 0;
}

/* A copy of the answer that still counts, or NULL. */
static void *find_cached(const char *server, const void *question, size_t size, size_t *answer_size)
{
    void *copy = NULL;
    if (!rg_optimise[RG_OPT_QUERY_CACHE] || pthread_mutex_trylock(&cached_lock) != 0)
        return NULL;
    for (unsigned i = 0; i < CACHED; i++)
        if (is_of(i, server, question, size) && rg_now_ns() < cached[i].until) {
            copy = malloc(cached[i].answer_size + 1);
            *answer_size = cached[i].answer_size;
            if (copy)
                memcpy(copy, cached[i].question + cached[i].question_size, cached[i].answer_size);
            break;
        }
    pthread_mutex_unlock(&cached_lock);
    return copy;
}

static void keep(const char *server, const void *question, size_t size, const void *answer,
                 size_t answer_size)
{
    const size_t name = strlen(server) + 1;
    unsigned char *bytes = answer_size <= CACHED_AT_MOST ? malloc(name + size + answer_size) : NULL;
    if (!bytes || pthread_mutex_trylock(&cached_lock) != 0) {
        free(bytes);
        return;
    }
    unsigned place = 0; /* its own, or the oldest */
    for (unsigned i = 0; i < CACHED; i++) {
        if (is_of(i, server, question, size)) {
            place = i;
            break;
        }
        if (cached[i].until < cached[place].until)
            place = i;
    }
    memcpy(bytes, server, name);
    memcpy(bytes + name, question, size);
    memcpy(bytes + name + size, answer, answer_size);
    free(cached[place].question);
    cached[place].question = bytes;
    cached[place].question_size = name + size;
    cached[place].answer_size = answer_size;
    cached[place].until = rg_now_ns() + CACHED_NS;
    pthread_mutex_unlock(&cached_lock);
}

/* --- asking --------------------------------------------------------------------------------------------- */

/* Takes the caller's arguments; false: one that is needed is not there. */
static bool take(struct rg_question_call *call, const uintptr_t *words)
{
    for (unsigned i = 0; i < call->n; i++) {
        struct rg_question_argument *argument = &call->arguments[i];
        switch (argument->letter) {
        case 'e':
            words++;
            break;
        case 'i':
            argument->number = (uint32_t)*words++;
            break;
        case 'l':
            argument->number = *words++;
            break;
        case 't':
            argument->memory = (void *)*words++;
            argument->number = (uint32_t)*words++;
            break;
        case 'f':
            argument->number = (uint32_t)*words++;
            argument->memory = (void *)*words++;
            break;
        case 'c':
            argument->told = (uint32_t *)*words++;
            argument->memory = (void *)*words++;
            if (!argument->told || (*argument->told && !argument->memory))
                return false;
            argument->number = *argument->told;
            if (!argument->number)
                argument->memory = NULL;
            continue;
        default:
            argument->memory = (void *)*words++;
        }
        if (!argument->memory && !strchr("eil", argument->letter))
            return false;
    }
    return true;
}

/* The second device, where the question has one. */
static enum rg_nvml_return find_second(const struct rg_question_call *call, const char *server,
                                       uintptr_t word, uint8_t uuid[16])
{
    char other[256];
    if (call->arguments[0].letter != 'e')
        return RG_NVML_SUCCESS;
    RG_TRY(rg_nvml_where((rg_nvml_device)word, other, uuid));
    /* no server knows of the other's */
    return strcmp(server, other) == 0 ? RG_NVML_SUCCESS : RG_NVML_NOT_SUPPORTED;
}

static int ask(struct rg_question_call *call, const char *server)
{
    RG_CLEANUP_FREE void *question = malloc(RG_QUESTION_SIZE_MAX);
    RG_CLEANUP_FREE struct rg_control *answer = malloc(sizeof *answer);
    char why[1024];
    size_t size;
    int result = RG_NVML_UNKNOWN;
    if (!question || !answer)
        return RG_NVML_MEMORY;
    if (rg_question_encode(call, question, &size) != RG_OK)
        return RG_NVML_INVALID_ARGUMENT; /* more than any library would fill */
    size_t known_size = 0;
    RG_CLEANUP_FREE void *known = find_cached(server, question, size, &known_size);
    if (known && rg_answer_decode(known, known_size, call, &result) == RG_OK)
        return result == RG_NVML_FUNCTION_NOT_FOUND ? RG_NVML_NOT_SUPPORTED : result;
    switch (rg_query_management(server, question, size, TIMEOUT_NS, answer, why, sizeof why)) {
    case RG_OK:
        break;
    case RG_ERR_REFUSED:
        rg_debug("%s: %s", rg_question_name(call->question), why);
        return RG_NVML_NOT_SUPPORTED;
    default:
        rg_debug("%s: %s", rg_question_name(call->question), why);
        return RG_NVML_GPU_IS_LOST;
    }
    if (rg_answer_decode(answer->answer.data, answer->answer.size, call, &result) != RG_OK)
        rg_warn("the server %s gave an answer to %s that does not fit", server,
                rg_question_name(call->question));
    else
        keep(server, question, size, answer->answer.data, answer->answer.size);
    rg_control_fini(answer);
    /* a library there that is older than the function */
    return result == RG_NVML_FUNCTION_NOT_FOUND ? RG_NVML_NOT_SUPPORTED : result;
}

int rg_nvml_ask(enum rg_nvml_question question, rg_nvml_device device, const uintptr_t *words)
{
    struct rg_question_call call;
    char server[256];
    rg_question_prepare(question, &call);
    RG_TRY(rg_nvml_where(device, server, call.devices[0]));
    if (!take(&call, words))
        return RG_NVML_INVALID_ARGUMENT;
    RG_TRY(find_second(&call, server, words[0], call.devices[1]));
    return ask(&call, server);
}
