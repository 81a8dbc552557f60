/* Questions to the management library as bytes: round trips of every function, and bytes that are not to be believed. */
#include "proto/management/management.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) unsigned char storage[RG_ANSWER_SIZE_MAX];
static unsigned char question[RG_QUESTION_SIZE_MAX], answer[RG_ANSWER_SIZE_MAX];
static _Alignas(16) unsigned char memory[RG_QUESTION_ARGUMENTS][4096];
static uint32_t counts[RG_QUESTION_ARGUMENTS];

static bool is_told(char letter)
{
    return letter == 'o' || letter == 'g' || letter == 'v' || letter == 't' || letter == 'c' || letter == 'f';
}

/* A call of which every argument has something to it. */
static void fill(enum rg_nvml_question which, struct rg_question_call *call)
{
    const uint32_t version = 64 | 1u << 24;
    memset(memory, 0xee, sizeof memory);
    rg_question_prepare(which, call);
    memset(call->devices, 0xab, sizeof call->devices);
    for (unsigned i = 0; i < call->n; i++) {
        struct rg_question_argument *argument = &call->arguments[i];
        argument->memory = is_told(argument->letter) ? memory[i] : NULL;
        memcpy(memory[i], &version, sizeof version);
        argument->told = &counts[i];
        argument->number = argument->letter == 'l' ? 1ull << 40 : 5;
        counts[i] = 5;
    }
}

Test(management, round_trips)
{
    for (int which = 0; which < RG_QUESTION_COUNT; which++) {
        struct rg_question_call call, there;
        size_t size;
        int result = -1;
        fill((enum rg_nvml_question)which, &call);
        cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK, "%s",
                     rg_question_name(call.question));
        cr_assert_eq(rg_question_decode(question, size, storage, &there), RG_OK);
        cr_assert_eq(there.question, call.question);
        cr_expect_arr_eq(there.devices, call.devices, sizeof call.devices);
        cr_assert_eq(there.n, call.n);
        for (unsigned i = 0; i < there.n; i++) {
            if (strchr("iltcf", call.arguments[i].letter))
                cr_expect_eq(there.arguments[i].number, call.arguments[i].number);
            if (!is_told(there.arguments[i].letter))
                continue;
            cr_assert_eq(rg_question_capacity(&there.arguments[i]), rg_question_capacity(&call.arguments[i]));
            if (there.arguments[i].letter == 'v' || there.arguments[i].letter == 'f')
                cr_expect_arr_eq(there.arguments[i].memory, memory[i],
                                 rg_question_capacity(&call.arguments[i]));
            memset(there.arguments[i].memory, (int)i, rg_question_capacity(&there.arguments[i]));
            if (there.arguments[i].letter == 'c')
                *there.arguments[i].told = 3;
        }
        /* texts end somewhere */
        for (unsigned i = 0; i < there.n; i++)
            if (there.arguments[i].letter == 't' || there.arguments[i].letter == 'g')
                ((char *)there.arguments[i].memory)[1] = '\0';
        cr_assert_eq(rg_answer_encode(&there, 0, answer, &size), RG_OK);
        cr_assert_eq(rg_answer_decode(answer, size, &call, &result), RG_OK);
        cr_expect_eq(result, 0);
        for (unsigned i = 0; i < call.n; i++)
            if (is_told(call.arguments[i].letter))
                cr_expect_eq(memory[i][0], i, "%s, argument %u", rg_question_name(call.question), i);
        /* what is cut short is not believed, and leaves nothing behind */
        for (size_t cut = 0; cut < size; cut++) {
            fill((enum rg_nvml_question)which, &call);
            cr_expect_eq(rg_answer_decode(answer, cut, &call, &result), RG_ERR_PROTOCOL);
            cr_expect_eq(memory[call.n - 1][8], 0xee);
        }
    }
}

Test(management, questions_that_are_cut_short_or_too_long)
{
    struct rg_question_call call, there;
    size_t size;
    fill(RG_QUESTION_nvmlDeviceGetFieldValues, &call);
    cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK);
    for (size_t cut = 0; cut < size; cut++)
        cr_expect_neq(rg_question_decode(question, cut, storage, &there), RG_OK, "%zu", cut);
    cr_expect_eq(rg_question_decode(question, size + 1, storage, &there), RG_ERR_PROTOCOL);
}

/* Numbers behind the name and the devices, where all arguments' are. */
#define ARGUMENTS_AT 96

Test(management, sizes_that_are_not_believed)
{
    static const uint64_t wrong[] = {1u << 20, 1ull << 32, 1ull << 60, UINT64_MAX, RG_ANSWER_SIZE_MAX};
    static const enum rg_nvml_question questions[] = {RG_QUESTION_nvmlDeviceGetSerial,
                                                      RG_QUESTION_nvmlDeviceGetSupportedMemoryClocks,
                                                      RG_QUESTION_nvmlDeviceGetFieldValues};
    struct rg_question_call call, there;
    size_t size;
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            fill(questions[q], &call);
            cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK);
            memcpy(question + ARGUMENTS_AT, &wrong[i], sizeof wrong[i]);
            const enum rg_status status = rg_question_decode(question, size, storage, &there);
            /* exactly all of the storage may be asked for, where nothing else needs any */
            cr_expect(status != RG_OK || (q == 0 && wrong[i] == RG_ANSWER_SIZE_MAX), "%zu %zu", q, i);
            call.arguments[0].number = wrong[i];
            cr_expect_eq(rg_question_encode(&call, question, &size), RG_ERR_LIMIT);
        }
    }
    fill(RG_QUESTION_nvmlDeviceGetTemperatureV, &call);
    cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK);
    const uint32_t huge = 0xffffff | 1u << 24, none = 3;
    memcpy(question + ARGUMENTS_AT, &huge, sizeof huge);
    cr_expect_neq(rg_question_decode(question, size, storage, &there), RG_OK);
    memcpy(question + ARGUMENTS_AT, &none, sizeof none);
    cr_expect_neq(rg_question_decode(question, size, storage, &there), RG_OK);
}

Test(management, only_what_is_in_the_list)
{
    static const char *const names[] = {"nvmlDeviceSetPersistenceMode", "nvmlDeviceGetPowerUsag", "system",
                                        ""};
    struct rg_question_call call, there;
    size_t size;
    fill(RG_QUESTION_nvmlDeviceGetPowerUsage, &call);
    cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(question, 0, 64);
        memcpy(question, names[i], strlen(names[i]));
        cr_expect_eq(rg_question_decode(question, size, storage, &there), RG_ERR_UNSUPPORTED, "%s", names[i]);
    }
    memset(question, 'n', 64);
    cr_expect_eq(rg_question_decode(question, size, storage, &there), RG_ERR_PROTOCOL);
    for (int which = 0; which < RG_QUESTION_COUNT; which++) {
        const char *name = rg_question_name((enum rg_nvml_question)which);
        cr_expect(strncmp(name, "nvmlDeviceGet", 13) == 0 || strcmp(name, "nvmlDeviceOnSameBoard") == 0, "%s",
                  name);
    }
}

Test(management, a_library_that_changes_a_version)
{
    struct rg_question_call call, there;
    const uint32_t huge = 0xffffff;
    size_t size;
    fill(RG_QUESTION_nvmlDeviceGetTemperatureV, &call);
    cr_assert_eq(rg_question_encode(&call, question, &size), RG_OK);
    cr_assert_eq(rg_question_decode(question, size, storage, &there), RG_OK);
    memcpy(there.arguments[0].memory, &huge, sizeof huge);
    cr_assert_eq(rg_answer_encode(&there, 0, answer, &size), RG_OK);
    cr_expect_eq(size, 4 + 4 + 64);
}

/* A text that would fill the answer to its last byte leaves no room for the word that says how long it is. */
Test(management, answers_that_just_do_not_fit)
{
    static _Alignas(16) unsigned char text[RG_ANSWER_SIZE_MAX];
    enum { AFTER = 16 };
    unsigned char *room = malloc(RG_ANSWER_SIZE_MAX + AFTER);
    struct rg_question_call call;
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetSerial, &call);
    call.arguments[0].memory = text;
    for (uint32_t size = RG_ANSWER_SIZE_MAX - 16; size <= RG_ANSWER_SIZE_MAX; size++) {
        size_t used = 0;
        memset(room, 0xee, RG_ANSWER_SIZE_MAX + AFTER);
        call.arguments[0].number = size;
        const enum rg_status status = rg_answer_encode(&call, 0, room, &used);
        cr_expect(status == RG_ERR_LIMIT || used <= RG_ANSWER_SIZE_MAX);
        for (unsigned i = 0; i < AFTER; i++)
            cr_expect_eq(room[RG_ANSWER_SIZE_MAX + i], 0xee, "text of %u bytes", size);
    }
    free(room);
}
