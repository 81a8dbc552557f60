/*
 * manager.c - program lib/remote-gpu/manager: answers questions by the driver's management library (NVML).
 *
 *   manager --driver LIBRARY [--sandbox POLICY]     questions and answers (proto/management/management.h) go over descriptor 3, until it is closed
 *
 * The library is the one beside the driver. It is called by name with what the signature says, in memory of
 * this process; a library that crashes takes only this process with it. Where there is none, nothing is
 * supported.
 */
#include "common/base/log.h"
#include "common/base/uuid_text.h"
#include "proto/management/management.h"
#include "server/sandbox/sandbox.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_FD 3

/* NVML's results */
#define SUCCESS            0
#define INVALID_ARGUMENT   2
#define NOT_SUPPORTED      3
#define FUNCTION_NOT_FOUND 13
#define UNKNOWN            999

/*
 * Every argument is a number or an address and goes into a register of its own, the device and six more on
 * the stack or not: the calling conventions of Linux on x86-64 and arm64 let a function take fewer, and
 * narrower ones.
 */
typedef int (*management_function)(void *, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static struct {
    void *opened; /* by dlopen; NULL: there is none that works */
    int (*by_uuid)(const char *, void **);
    management_function functions[RG_QUESTION_COUNT];
} nvml;

static void load(const char *driver)
{
    char path[PATH_MAX];
    const char *slash = strrchr(driver, '/');
    snprintf(path, sizeof path, "%.*slibnvidia-ml.so.1", slash ? (int)(slash - driver + 1) : 0, driver);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = library ? dlsym(library, "nvmlInit_v2") : NULL;
    nvml.by_uuid = library ? dlsym(library, "nvmlDeviceGetHandleByUUID") : NULL;
    if (!init || !nvml.by_uuid) {
        rg_info("there is no management library beside %s: nothing is known of the GPU's state", driver);
        return;
    }
    const int result = init();
    if (result != SUCCESS) {
        rg_warn("the management library %s does not work: nvmlInit_v2 gave %d", path, result);
        return;
    }
    nvml.opened = library;
    for (int i = 0; i < RG_QUESTION_COUNT; i++)
        nvml.functions[i] = dlsym(library, rg_question_name((enum rg_nvml_question)i));
}

/* Whether it is an instance of a divided GPU the question does not say. */
static int find(const uint8_t *uuid, void **device)
{
    char text[RG_UUID_TEXT];
    const int result = nvml.by_uuid(rg_uuid_text(uuid, false, text, sizeof text), device);
    return result == SUCCESS || nvml.by_uuid(rg_uuid_text(uuid, true, text, sizeof text), device) != SUCCESS
               ? result
               : SUCCESS;
}

static int call(struct rg_question_call *question)
{
    uintptr_t words[RG_QUESTION_ARGUMENTS * 2] = {0};
    void *device = NULL, *second = NULL;
    unsigned n = 0;
    if (!nvml.opened)
        return NOT_SUPPORTED;
    if (!nvml.functions[question->question])
        return FUNCTION_NOT_FOUND;
    int result = find(question->devices[0], &device);
    for (unsigned i = 0; i < question->n && result == SUCCESS; i++) {
        const struct rg_question_argument *argument = &question->arguments[i];
        switch (argument->letter) {
        case 'e':
            result = find(question->devices[1], &second);
            words[n++] = (uintptr_t)second;
            break;
        case 'i':
        case 'l':
            words[n++] = (uintptr_t)argument->number;
            break;
        case 't':
            words[n++] = (uintptr_t)argument->memory;
            words[n++] = (uintptr_t)argument->number;
            break;
        case 'c':
            words[n++] = (uintptr_t)argument->told;
            words[n++] = (uintptr_t)argument->memory;
            break;
        case 'f':
            words[n++] = (uintptr_t)argument->number;
            words[n++] = (uintptr_t)argument->memory;
            break;
        default:
            words[n++] = (uintptr_t)argument->memory;
        }
    }
    if (result != SUCCESS)
        return result;
    return nvml.functions[question->question](device, words[0], words[1], words[2], words[3], words[4],
                                              words[5]);
}

/* The answer to one question; what cannot be decoded is answered as well: it is another session's client. */
static size_t answer(const void *question, size_t size, void *out)
{
    static _Alignas(16) unsigned char storage[RG_ANSWER_SIZE_MAX];
    struct rg_question_call decoded = {.n = 0};
    size_t used = 0;
    int result;
    switch (rg_question_decode(question, size, storage, &decoded)) {
    case RG_OK:
        result = call(&decoded);
        break;
    case RG_ERR_UNSUPPORTED:
        result = FUNCTION_NOT_FOUND;
        break;
    default:
        decoded.n = 0;
        result = INVALID_ARGUMENT;
    }
    if (rg_answer_encode(&decoded, result, out, &used) != RG_OK) {
        decoded.n = 0;
        if (rg_answer_encode(&decoded, UNKNOWN, out, &used) != RG_OK)
            _exit(1);
    }
    return used;
}

int main(int argc, char **argv)
{
    static unsigned char question[RG_QUESTION_SIZE_MAX], told[RG_ANSWER_SIZE_MAX];
    static struct rg_sandbox_policy policy;
    const bool sandbox = argc == 5 && strcmp(argv[3], "--sandbox") == 0;
    if ((argc != 3 && !sandbox) || strcmp(argv[1], "--driver") != 0) {
        rg_error("manager is a part of remote-gpud; usage: manager --driver LIBRARY");
        return 125;
    }
    if (!rg_sandbox_begin(sandbox ? argv[4] : NULL, &policy))
        return 1;
    load(argv[2]);
    ssize_t size;
    while ((size = recv(SOCKET_FD, question, sizeof question, 0)) > 0) {
        const size_t used = answer(question, (size_t)size, told);
        if (send(SOCKET_FD, told, used, MSG_NOSIGNAL) != (ssize_t)used)
            break;
    }
    _exit(0); /* no destructors: a driver's may hang */
}
