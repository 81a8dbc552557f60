/*
 * client.c - the client's receiving side, and the calls that wait for it, against a hostile server.
 *
 * One session is made of a connection of the fuzzer's own, and lives as long as the process; an input is what the
 * program calls and what the server says meanwhile. Memory of the program's is exactly as large as a call says, and is
 * freed when the session has ended: what is written later, whatever the server sends, is found by a sanitizer.
 *
 * The input: u8 n, n calls (u8 which, u8 size), then what the server says (tests/client/scripted_server.h).
 */
#include "client/core/handle.h"
#include "client/core/session.h"
#include "common/base/log.h"
#include "tests/check.h"
#include "tests/client/scripted_server.h"
#include "tests/fuzz/fuzzer.h"

#include <stdlib.h>

enum { CALLS = 6 };

/*
 * What the client keeps for as long as a program runs is no leak: names of functions that a module had, which others may still
 * hold. Read by the address sanitizer.
 */
FUZZ_EXPORT const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* --- the program --------------------------------------------------------------------------------------------- */

static CUcontext context;
static CUstream stream;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_level(RG_LOG_ERROR);
    scripted_server_begin();
    CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    return 0;
}

static void CUDA_CB host_function(void *user)
{
    (void)user;
}

static const CUdeviceptr there = 0x700000000000;

static void call(unsigned which, unsigned size, unsigned char *memory)
{
    size_t a, b;
    CUevent event;
    CUdeviceptr allocated;
    CUmodule module;
    CUfunction function;
    int value;
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = there,
                                .srcPitch = 64,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = memory,
                                .dstPitch = size / 4,
                                .WidthInBytes = size / 8,
                                .Height = 4};
    switch (which % 14) {
    case 0:
        (void)cuMemGetInfo_v2(&a, &b);
        break;
    case 1:
        (void)cuMemcpyDtoH_v2(memory, there, size);
        break;
    case 2:
        (void)cuMemcpyDtoHAsync_v2(memory, there, size, stream);
        break;
    case 3:
        (void)cuMemcpyHtoD_v2(there, memory, size);
        break;
    case 4:
        (void)cuMemcpyHtoDAsync_v2(there, memory, size, stream);
        break;
    case 5:
        if (cuEventCreate(&event, 0) == CUDA_SUCCESS) {
            (void)cuEventRecord(event, stream);
            (void)cuEventQuery(event);
            (void)cuEventDestroy_v2(event);
        }
        break;
    case 6:
        (void)cuLaunchHostFunc(stream, host_function, NULL);
        break;
    case 7:
        if (cuMemAlloc_v2(&allocated, size) == CUDA_SUCCESS)
            (void)cuMemFree_v2(allocated);
        break;
    case 8:
        if (cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n.address_size 64\n") == CUDA_SUCCESS) {
            (void)cuModuleGetFunction(&function, module, "name");
            (void)cuModuleGetGlobal_v2(&allocated, &a, module, "variable");
            (void)cuModuleUnload(module);
        }
        break;
    case 9:
        (void)cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there);
        break;
    case 10:
        if (size >= 32)
            (void)cuMemcpy2D_v2(&rows);
        break;
    case 11:
        (void)cuStreamQuery(stream);
        break;
    case 12:
        (void)cuStreamSynchronize(stream);
        break;
    default:
        (void)cuCtxSynchronize();
    }
}

/* The session that has ended begins again, as if nothing had been. */
static void revive(void)
{
    struct rg_session *session = &rg_sessions[0];
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context);
    scripted_server_revive();
    atomic_store(&rg_contexts_suspect, false);
    if (shadow)
        atomic_store(&shadow->context.sticky, CUDA_SUCCESS);
    atomic_store(&session->latched, CUDA_SUCCESS);
    atomic_store(&session->over, false);
    atomic_store(&session->ended, CUDA_SUCCESS);
    atomic_store(&rg_sessions_ended, CUDA_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *memory[CALLS] = {NULL};
    struct rg_reader in = rg_reader_of(data, size);
    unsigned char head[2], n;
    rg_get_into(&in, &n, 1);
    n = n % CALLS + 1;
    unsigned char calls[CALLS][2];
    for (unsigned i = 0; i < n; i++) {
        rg_get_into(&in, head, sizeof head);
        memcpy(calls[i], head, sizeof head);
    }
    revive();
    scripted_server_say(in, false);
    for (unsigned i = 0; i < n; i++) {
        /* 1 byte to 130 KB: inline, eager and rendezvous. */
        const unsigned bytes = 1 + calls[i][1] * (calls[i][0] & 128 ? 512u : 1u);
        memory[i] = calloc(1, bytes);
        CHECK(memory[i]);
        call(calls[i][0] & 127, bytes, memory[i]);
    }
    rg_session_end(&rg_sessions[0], CUDA_ERROR_DEVICE_UNAVAILABLE, "the input has ended");
    scripted_server_say(rg_reader_of(data, 0), false);
    for (unsigned i = 0; i < n; i++)
        free(memory[i]);
    return 0;
}

/* --- seeds --------------------------------------------------------------------------------------------------- */

static const unsigned char zeros[64];

void fuzz_seeds(void)
{
    unsigned char seed[1024];
    for (unsigned which = 0; which < 14; which++) {
        char name[32];
        struct rg_writer w = {seed};
        rg_put(&w, &(unsigned char[]){1, (unsigned char)(which | (which % 2 ? 128 : 0)), 100, 12, 0}, 5);
        script_notice(&w, SCRIPT_KNOWN, 101, RG_NOTICE_DEFERRED_READ, 0, 101, which);
        script_reply(&w, which == 1 ? 100 : 0, 0, zeros, 64);
        script_notice(&w, SCRIPT_KNOWN, 0, RG_NOTICE_RENDEZVOUS, 0, 100, which);
        script_reply(&w, 0, 0, zeros, 32);
        snprintf(name, sizeof name, "call-%u", which);
        fuzz_seed(name, seed, (size_t)(w.at - seed));
    }
}
