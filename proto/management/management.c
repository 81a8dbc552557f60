/*
 * management.c - questions and answers as bytes.
 *
 * A question is the function's name, two UUIDs, and for each argument what is given of it. An answer is the result
 * and, if that is success or "the room is too small", for each argument what is told. Both sides know the sizes from
 * the signature and from what was asked, so that little of them travels, and all that does is checked.
 */
#include "proto/management/management.h"

#include "proto/codec.h"

#include <stdlib.h>

#define NAME_MAX_SIZE     64
#define RESULT_SUCCESS    0
#define RESULT_TOO_SMALL  7
#define STORAGE_ALIGNMENT 16u
#define VERSION_SIZE_MASK 0xffffffu

static const struct {
    const char *name, *signature;
} questions[RG_QUESTION_COUNT] = {
#define QUESTION(name, signature) [RG_QUESTION_##name] = {#name, signature},
    RG_MANAGEMENT_QUESTIONS(QUESTION) RG_MANAGEMENT_INNER_QUESTIONS(QUESTION)
#undef QUESTION
};

const char *rg_question_name(enum rg_nvml_question question)
{
    return questions[question].name;
}

void rg_question_prepare(enum rg_nvml_question question, struct rg_question_call *out)
{
    *out = (struct rg_question_call){.question = question};
    for (const char *at = questions[question].signature; *at;) {
        struct rg_question_argument *argument = &out->arguments[out->n++];
        argument->letter = *at++;
        char *end;
        argument->unit = (uint32_t)strtoul(at, &end, 10);
        at = end;
    }
}

size_t rg_question_capacity(const struct rg_question_argument *argument)
{
    uint32_t version;
    switch (argument->letter) {
    case 'o':
    case 'g':
        return argument->unit;
    case 'v':
        if (argument->unit)
            return argument->unit;
        memcpy(&version, argument->memory, sizeof version);
        return version & VERSION_SIZE_MASK;
    case 't':
        return argument->number;
    case 'c':
        return argument->memory ? argument->number * argument->unit : 0;
    case 'f':
        return argument->number * argument->unit;
    default:
        return 0;
    }
}

static bool is_given(const struct rg_question_argument *argument)
{
    return argument->letter == 'v' || argument->letter == 'f';
}

/* What one argument's given number may be; the sum of all room is checked as well. */
static bool is_possible(const struct rg_question_argument *argument)
{
    if (argument->letter == 't' || argument->letter == 'c' || argument->letter == 'f')
        return argument->number <= RG_ANSWER_SIZE_MAX;
    return true;
}

enum rg_status rg_question_encode(const struct rg_question_call *call, void *out, size_t *size)
{
    unsigned char *start = out;
    struct rg_writer w = {start};
    char name[NAME_MAX_SIZE] = "";
    size_t given = 0, told = 0;
    strncpy(name, rg_question_name(call->question), sizeof name - 1);
    for (unsigned i = 0; i < call->n; i++) {
        if (!is_possible(&call->arguments[i]))
            return RG_ERR_LIMIT;
        const size_t capacity = rg_question_capacity(&call->arguments[i]);
        if (call->arguments[i].letter == 'v' && capacity < sizeof(uint32_t))
            return RG_ERR_LIMIT;
        given += 12 + (is_given(&call->arguments[i]) ? capacity : 0);
        told += capacity + STORAGE_ALIGNMENT;
        if (given > RG_QUESTION_SIZE_MAX - sizeof name - sizeof call->devices ||
            told > RG_ANSWER_SIZE_MAX / 2)
            return RG_ERR_LIMIT;
    }
    rg_put(&w, name, sizeof name);
    rg_put(&w, call->devices, sizeof call->devices);
    for (unsigned i = 0; i < call->n; i++) {
        const struct rg_question_argument *argument = &call->arguments[i];
        if (strchr("iltcf", argument->letter))
            rg_put_u64(&w, argument->number);
        if (argument->letter == 'c')
            rg_put_u32(&w, argument->memory != NULL);
        if (is_given(argument))
            rg_put(&w, argument->memory, rg_question_capacity(argument));
    }
    *size = (size_t)(w.at - start);
    return RG_OK;
}

/* Takes memory of the storage for an argument; false: there is not enough. */
static bool place(struct rg_question_argument *argument, size_t capacity, unsigned char *storage,
                  size_t *used)
{
    if (capacity > RG_ANSWER_SIZE_MAX - *used)
        return false;
    argument->memory = storage + *used;
    *used += (capacity + STORAGE_ALIGNMENT - 1) / STORAGE_ALIGNMENT * STORAGE_ALIGNMENT;
    return *used <= RG_ANSWER_SIZE_MAX;
}

static bool get_argument(struct rg_reader *r, struct rg_question_argument *argument, unsigned char *storage,
                         size_t *used)
{
    if (strchr("iltcf", argument->letter))
        argument->number = rg_get_u64(r);
    if (argument->letter == 'i')
        argument->number = (uint32_t)argument->number;
    if (!is_possible(argument))
        return false;
    bool has_memory = !strchr("ile", argument->letter);
    if (argument->letter == 'c') {
        struct rg_question_argument number = {.letter = 'o'};
        has_memory = rg_get_u32(r) != 0;
        if (!place(&number, sizeof(uint32_t), storage, used))
            return false;
        argument->told = number.memory;
        *argument->told = (uint32_t)argument->number;
    }
    if (!has_memory)
        return true;
    size_t capacity;
    if (argument->letter == 'v') {
        uint32_t version;
        struct rg_reader ahead = *r;
        rg_get_into(&ahead, &version, sizeof version);
        capacity = version & VERSION_SIZE_MASK;
        if (capacity < sizeof version)
            return false;
        argument->unit = (uint32_t)capacity; /* whatever the library makes of the version */
    } else {
        argument->memory = storage; /* that there is any is all that counts for the next line */
        capacity = rg_question_capacity(argument);
    }
    if (!place(argument, capacity, storage, used))
        return false;
    if (is_given(argument))
        rg_get_into(r, argument->memory, capacity);
    return !r->bad;
}

enum rg_status rg_question_decode(const void *data, size_t size, void *storage, struct rg_question_call *out)
{
    struct rg_reader r = rg_reader_of(data, size);
    char name[NAME_MAX_SIZE];
    uint8_t devices[2][16];
    size_t used = 0;
    rg_get_into(&r, name, sizeof name);
    rg_get_into(&r, devices, sizeof devices);
    if (r.bad || name[sizeof name - 1] != '\0')
        return RG_ERR_PROTOCOL;
    unsigned question = 0;
    while (question < RG_QUESTION_COUNT && strcmp(questions[question].name, name) != 0)
        question++;
    if (question == RG_QUESTION_COUNT)
        return RG_ERR_UNSUPPORTED;
    rg_question_prepare((enum rg_nvml_question)question, out);
    memcpy(out->devices, devices, sizeof devices);
    memset(storage, 0, RG_ANSWER_SIZE_MAX);
    for (unsigned i = 0; i < out->n; i++)
        if (!get_argument(&r, &out->arguments[i], storage, &used))
            return r.bad ? RG_ERR_PROTOCOL : RG_ERR_LIMIT;
    return r.bad || rg_left(&r) ? RG_ERR_PROTOCOL : RG_OK;
}

enum rg_status rg_answer_encode(const struct rg_question_call *call, int result, void *out, size_t *size)
{
    unsigned char *start = out;
    struct rg_writer w = {start};
    rg_put_u32(&w, (uint32_t)result);
    for (unsigned i = 0; i < call->n && (result == RESULT_SUCCESS || result == RESULT_TOO_SMALL); i++) {
        const struct rg_question_argument *argument = &call->arguments[i];
        const bool tells = result == RESULT_SUCCESS && argument->memory;
        size_t capacity = tells ? rg_question_capacity(argument) : 0;
        if (tells && argument->letter == 'c' && *argument->told < argument->number)
            capacity = (size_t)*argument->told * argument->unit;
        /* with the numbers that stand before it: how many there are, and its bytes */
        if ((size_t)(w.at - start) + 2 * sizeof(uint32_t) + capacity > RG_ANSWER_SIZE_MAX)
            return RG_ERR_LIMIT;
        if (argument->letter == 'c')
            rg_put_u32(&w, *argument->told);
        if (!tells)
            continue;
        rg_put_u32(&w, (uint32_t)capacity);
        rg_put(&w, argument->memory, capacity);
    }
    *size = (size_t)(w.at - start);
    return RG_OK;
}

/* Two passes: what does not fit leaves nothing behind in the caller's memory. */
static bool take_answer(struct rg_reader r, struct rg_question_call *call, bool success, bool write)
{
    for (unsigned i = 0; i < call->n; i++) {
        struct rg_question_argument *argument = &call->arguments[i];
        const uint32_t told = argument->letter == 'c' ? rg_get_u32(&r) : 0;
        if (argument->letter == 'c' && write)
            *argument->told = told;
        if (!success || !argument->memory)
            continue;
        const uint32_t bytes = rg_get_u32(&r);
        const void *data = rg_get(&r, bytes);
        const size_t capacity = rg_question_capacity(argument);
        if (!data || (argument->letter == 'c' ? bytes > capacity : bytes != capacity))
            return false;
        if ((argument->letter == 't' || argument->letter == 'g') && bytes && !memchr(data, '\0', bytes))
            return false;
        if (write && bytes)
            memcpy(argument->memory, data, bytes);
    }
    return !r.bad && rg_left(&r) == 0;
}

enum rg_status rg_answer_decode(const void *data, size_t size, struct rg_question_call *call, int *result)
{
    struct rg_reader r = rg_reader_of(data, size);
    const int told = (int)rg_get_u32(&r);
    if (r.bad)
        return RG_ERR_PROTOCOL;
    if (told == RESULT_SUCCESS || told == RESULT_TOO_SMALL) {
        if (!take_answer(r, call, told == RESULT_SUCCESS, false))
            return RG_ERR_PROTOCOL;
        (void)take_answer(r, call, told == RESULT_SUCCESS, true);
    }
    *result = told;
    return RG_OK;
}
