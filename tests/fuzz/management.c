/*
 * management.c - a question to the management library as the server decodes it, and an answer as the client does.
 *
 * The input: u8 which; 0: a question. What decodes is encoded again, and answered, and the answer decoded. Others: the
 * number of a question that the client has asked, to which the rest is the answer.
 */
#include "proto/management/management.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) unsigned char storage[RG_ANSWER_SIZE_MAX];
static unsigned char encoded[RG_ANSWER_SIZE_MAX + RG_QUESTION_SIZE_MAX];

static void question(const void *data, size_t size)
{
    struct rg_question_call call;
    size_t room = RG_QUESTION_SIZE_MAX;
    int result;
    if (rg_question_decode(data, size, storage, &call) != RG_OK)
        return;
    CHECK(call.n <= RG_QUESTION_ARGUMENTS && rg_question_name(call.question));
    for (unsigned i = 0; i < call.n; i++) {
        const struct rg_question_argument *argument = &call.arguments[i];
        const size_t bytes = rg_question_capacity(argument);
        if (argument->memory && bytes) {
            unsigned char *memory = argument->memory;
            CHECK(memory >= storage && memory + bytes <= storage + sizeof storage);
        }
    }
    (void)!rg_question_encode(&call, encoded, &room);
    unsigned char *exact = malloc(RG_ANSWER_SIZE_MAX); /* as the manager has it */
    CHECK(exact);
    room = 0;
    if (rg_answer_encode(&call, 0, exact, &room) == RG_OK)
        CHECK(room <= RG_ANSWER_SIZE_MAX);
    if (room && rg_answer_decode(exact, room, &call, &result) == RG_OK)
        CHECK(result == 0);
    free(exact);
}

/* The client's own memory for what it is told, each piece exactly as large as the call says. */
static void answer(unsigned which, const void *data, size_t size)
{
    struct rg_question_call call;
    int result;
    uint32_t told[RG_QUESTION_ARGUMENTS];
    rg_question_prepare((enum rg_nvml_question)(which % RG_QUESTION_COUNT), &call);
    for (unsigned i = 0; i < call.n; i++) {
        struct rg_question_argument *argument = &call.arguments[i];
        if (argument->letter == 'v')
            argument->unit = 48;
        if (strchr("tcf", argument->letter))
            argument->number = 3;
        told[i] = 3;
        if (argument->letter == 'c')
            argument->told = &told[i];
        const size_t bytes = rg_question_capacity(argument);
        argument->memory = bytes ? calloc(1, bytes) : NULL;
        if (argument->letter == 'v' && argument->memory)
            *(uint32_t *)argument->memory = 1u << 24 | 48;
    }
    if (rg_answer_decode(data, size, &call, &result) != RG_OK)
        result = 0;
    for (unsigned i = 0; i < call.n; i++)
        free(call.arguments[i].memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0)
        question(data + 1, size - 1);
    else
        answer(data[0] - 1u, data + 1, size - 1);
    return 0;
}

void fuzz_seeds(void)
{
    for (unsigned i = 0; i < RG_QUESTION_COUNT; i++) {
        struct rg_question_call call;
        size_t room = RG_QUESTION_SIZE_MAX;
        char name[64];
        uint32_t told = 2;
        rg_question_prepare((enum rg_nvml_question)i, &call);
        memset(storage, 0, sizeof storage);
        for (unsigned k = 0; k < call.n; k++) {
            call.arguments[k].number = 2;
            call.arguments[k].told = &told;
            call.arguments[k].memory = storage;
            if (call.arguments[k].letter == 'v')
                call.arguments[k].unit = 48, *(uint32_t *)(void *)storage = 1u << 24 | 48;
        }
        encoded[0] = 0;
        if (i % 8 == 0 && rg_question_encode(&call, encoded + 1, &room) == RG_OK) {
            snprintf(name, sizeof name, "question-%u", i);
            fuzz_seed(name, encoded, room + 1);
        }
        room = RG_ANSWER_SIZE_MAX;
        encoded[0] = (unsigned char)(i + 1);
        if (i % 8 == 0 && rg_answer_encode(&call, 0, encoded + 1, &room) == RG_OK) {
            snprintf(name, sizeof name, "answer-%u", i);
            fuzz_seed(name, encoded, room + 1);
        }
    }
}
