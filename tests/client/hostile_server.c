/*
 * hostile_server.c - what a server says that cannot be: each is refused, the program gets an error, or what it was promised, and standard
 * error says why. A process for each, as its session may end.
 */
#include "client/core/session.h"
#include "common/base/log.h"
#include "common/cuda/nccl_network.h"
#include "generated/proto/nccl.h"
#include "proto/gpu_path.h"
#include "proto/nccl/call.h"
#include "tests/check.h"
#include "tests/client/scripted_server.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ESCAPE "\033[2J"

enum { TRIES = 8 }; /* allocations until the client gives up */

static const unsigned char nothing[1024];
static CUstream stream;

/* --- what the program calls: the result --------------------------------------------------------------------------- */

static int memory_info(void)
{
    size_t left, all;
    return (int)cuMemGetInfo_v2(&left, &all);
}

static int allocate(void)
{
    CUdeviceptr address;
    return (int)cuMemAlloc_v2(&address, 1 << 20);
}

static int reserve(void)
{
    CUdeviceptr address;
    return (int)cuMemAddressReserve(&address, 2 << 20, 0, 0, 0);
}

static int allocate_managed(void)
{
    CUdeviceptr address;
    return (int)cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL);
}

static int allocate_managed_twice(void)
{
    CHECK(allocate_managed() == CUDA_SUCCESS);
    return allocate_managed();
}

static int split_processors(void)
{
    CUdevResource all = {.type = CU_DEV_RESOURCE_TYPE_SM}, groups[2], rest;
    unsigned n = 2;
    all.sm.smCount = 16;
    const CUresult result = cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 8);
    CHECK(n == 2);
    return (int)result;
}

static CUmodule module;

static int find_variable(void)
{
    CUdeviceptr address;
    size_t size;
    return (int)cuModuleGetGlobal_v2(&address, &size, module, "variable");
}

/* Prints what the compiler says. */
static int compile(void)
{
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUmodule made;
    const CUresult result = cuModuleLoadDataEx(
        &made, ".version 8.0\n.target sm_80\n.address_size 64\n// other\n", 2, options, values);
    fprintf(stderr, "%s\n", log);
    return (int)result;
}

/* One of two ranks, of an id that another process has made; prints what NCCL says. */
static int join(void)
{
    const struct rg_nccl_id id = {.magic = RG_NCCL_ID_MAGIC, .key = 1, .process = 2};
    ncclUniqueId bytes;
    ncclComm_t comm;
    memcpy(&bytes, &id, sizeof bytes);
    const ncclResult_t result = ncclCommInitRank(&comm, 2, bytes, 0);
    fprintf(stderr, "%s\n", ncclGetLastError(NULL));
    return (int)result;
}

/* --- what the server says ----------------------------------------------------------------------------------------- */

static void say_raw(struct rg_writer *w, unsigned kind, const void *behind, size_t size)
{
    unsigned char message[256];
    struct rg_writer at = {message};
    rg_put(&at, &(struct rg_message_header){.kind = (uint16_t)kind, .version = RG_PROTOCOL_MAJOR, .count = 1},
           sizeof(struct rg_message_header));
    rg_put(&at, behind, size);
    script_raw(w, 0, message, (size_t)(at.at - message));
}

static void short_answer(struct rg_writer *w)
{
    script_reply(w, 0, 0, nothing, 4);
}

static void answer_to_nobody(struct rg_writer *w)
{
    const struct rg_reply reply = {.token = 12345};
    say_raw(w, RG_MESSAGE_REPLY, &reply, sizeof reply);
}

static void answer_without_its_bytes(struct rg_writer *w)
{
    const struct rg_reply reply = {.token = 12345, .size = 100};
    say_raw(w, RG_MESSAGE_REPLY, &reply, sizeof reply);
}

static void no_header(struct rg_writer *w)
{
    script_raw(w, 0, nothing, 4);
}

static void unknown_message(struct rg_writer *w)
{
    say_raw(w, 99, NULL, 0);
}

static void short_notice(struct rg_writer *w)
{
    say_raw(w, RG_MESSAGE_NOTICE, nothing, sizeof(struct rg_notice) - 1);
}

static void no_control_message(struct rg_writer *w)
{
    say_raw(w, RG_MESSAGE_CONTROL, "\xff\xff\xff", 3);
}

static void unknown_notice(struct rg_writer *w)
{
    script_notice(w, 0, 0, 255, 0, 0, 0);
}

static void way_to_no_gpu(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_GPU_PATH, RG_DEVICES_MAX, 0, 0);
}

static void no_way_to_a_gpu(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_GPU_PATH, 0, RG_GPU_PATH_PATHS, 0);
}

static void times_unasked(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_TIMES, 0, 0, 0);
}

static void data_unasked(struct rg_writer *w)
{
    script_notice(w, 0, 64, RG_NOTICE_DEFERRED_READ, 0, 64, 77);
}

static void question_for_nothing(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_RENDEZVOUS, 0, 64, 77);
}

static void call_of_nothing(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_HOST_CALL, 0, 0, 77);
}

static void pages_unasked(struct rg_writer *w)
{
    script_notice(w, 0, 64, RG_NOTICE_MANAGED, 0, 64, 77);
}

static void credit_without_end(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_CREDIT, UINT64_MAX, 0, 0);
}

static void blocks_without_end(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_PREALLOC, UINT64_MAX, 0, 1);
}

static void completions_without_end(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_DONE, UINT64_MAX, 0, 0);
}

static void lines_without_end(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_SAY, UINT64_MAX, 0, 0);
}

static void connection_to_itself_lost(struct rg_writer *w)
{
    script_notice(w, 0, 0, RG_NOTICE_PEER_LOST, 0, 0, 0);
}

static void end_with_an_escape(struct rg_writer *w)
{
    struct rg_control end = {.kind = RG_CONTROL_SESSION_END};
    void *data;
    size_t size;
    snprintf(end.session_end.reason, sizeof end.session_end.reason, "of %s that", ESCAPE);
    CHECK(rg_control_pack(&end, &data, &size) == RG_OK);
    script_raw(w, 0, data, size);
    free(data);
}

static void line_with_an_escape(struct rg_writer *w)
{
    static const char line[] = "assertion " ESCAPE "failed\n";
    unsigned char message[sizeof(struct rg_notice) + sizeof line - 1];
    const struct rg_notice notice = {.type = RG_NOTICE_OUTPUT, .arg = {2, sizeof line - 1}};
    memcpy(message, &notice, sizeof notice);
    memcpy(message + sizeof notice, line, sizeof line - 1);
    say_raw(w, RG_MESSAGE_NOTICE, message, sizeof message);
}

/* Where the program has memory of its own. */
static void own_memory(struct rg_writer *w)
{
    void *memory = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint64_t address = (uintptr_t)memory;
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < TRIES; i++)
        script_reply(w, 0, 0, &address, sizeof address);
}

/* Where there is nothing, again and again. */
static void same_memory(struct rg_writer *w)
{
    void *memory = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint64_t address = (uintptr_t)memory;
    CHECK(memory != MAP_FAILED && munmap(memory, 4 << 20) == 0);
    for (int i = 0; i < TRIES; i++)
        script_reply(w, 0, 0, &address, sizeof address);
}

/* Where NULL pointers lead. */
static void no_address(struct rg_writer *w)
{
    for (int i = 0; i < TRIES; i++)
        script_reply(w, 0, 0, nothing, 8);
}

static void more_groups(struct rg_writer *w)
{
    unsigned char answer[4 + 3 * sizeof(CUdevResource)] = {3};
    script_reply(w, 0, 0, answer, sizeof answer);
}

/* `bytes` of a managed variable, in 4096 of managed memory. */
static void managed_variable(struct rg_writer *w, uint64_t offset, uint64_t bytes)
{
    const uint64_t start = 0x710000000000, place[] = {start + offset, bytes, start, 4096};
    script_reply(w, 0, 0, place, sizeof place);
}

static void variable_outside(struct rg_writer *w)
{
    managed_variable(w, 8192, 4);
}

static void variable_beyond(struct rg_writer *w)
{
    managed_variable(w, 4092, 8);
}

static void variable_before(struct rg_writer *w)
{
    managed_variable(w, (uint64_t)-4, 4);
}

static void log_with_an_escape(struct rg_writer *w)
{
    static const char text[] = "error: " ESCAPE "line 1";
    unsigned char answer[256];
    struct rg_writer at = {answer};
    rg_put_u64(&at, 0);
    rg_put_u64(&at, sizeof text - 1);
    rg_put(&at, text, sizeof text - 1);
    script_reply(w, 0, CUDA_ERROR_INVALID_PTX, answer, (size_t)(at.at - answer));
}

static void begun(struct rg_writer *w, ncclResult_t result, uint32_t ranks, uint32_t rank)
{
    const uint32_t answer[] = {(uint32_t)result, ranks, rank};
    script_reply(w, 0, 0, answer, sizeof answer);
}

static void rank_of_others(struct rg_writer *w)
{
    begun(w, ncclSuccess, 2, 1);
}

static void more_ranks(struct rg_writer *w)
{
    begun(w, ncclSuccess, 200, 0);
}

static void no_result(struct rg_writer *w)
{
    char why[RG_NCCL_TEXT_BYTES] = "NCCL has " ESCAPE "failed";
    begun(w, (ncclResult_t)1000, 0, 0);
    script_reply(w, 0, 0, why, sizeof why);
}

/* Of `n` processes, which nobody can reach. */
static void say_places(struct rg_writer *w, uint32_t n)
{
    unsigned char answer[4 + RG_NCCL_PLACES * sizeof(struct rg_nccl_place) + 4] = {0};
    const uint32_t result = ncclInProgress;
    memcpy(answer, &n, sizeof n);
    memcpy(answer + sizeof answer - sizeof result, &result, sizeof result);
    script_reply(w, 0, 0, answer, sizeof answer);
}

static void more_places_at_once(struct rg_writer *w)
{
    begun(w, ncclInProgress, 2, 0);
    say_places(w, RG_NCCL_PLACES + 1);
}

static void places_without_end(struct rg_writer *w)
{
    begun(w, ncclInProgress, 2, 0);
    for (int i = 0; i < 3; i++) {
        say_places(w, 1);
        script_reply(w, 0, 0, NULL, 0); /* that it cannot be reached */
    }
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct refusal {
    const char *name;
    int (*call)(void);
    void (*say)(struct rg_writer *w);
    int result;
    const char *message; /* a part of what is on standard error */
} refusals[] = {
#define ENDS(say, message)                                                                                   \
    {                                                                                                        \
#say, memory_info, say, CUDA_ERROR_DEVICE_UNAVAILABLE, message                                       \
    }
    ENDS(short_answer, "with too few bytes"),
    ENDS(answer_to_nobody, "malformed message (reply that nobody waits for)"),
    ENDS(answer_without_its_bytes, "malformed message (reply)"),
    ENDS(no_header, "malformed message (message without a header)"),
    ENDS(unknown_message, "malformed message (unknown kind of message)"),
    ENDS(short_notice, "malformed message (notice)"),
    ENDS(no_control_message, "malformed message (control message)"),
    ENDS(unknown_notice, "malformed message (notice of type 255)"),
    ENDS(way_to_no_gpu, "malformed message (notice of a way to a GPU)"),
    ENDS(no_way_to_a_gpu, "malformed message (notice of a way to a GPU)"),
    ENDS(times_unasked, "malformed message (times that were not asked for)"),
    ENDS(data_unasked, "malformed message (notice of type 3)"),
    ENDS(question_for_nothing, "malformed message (notice of type 4)"),
    ENDS(call_of_nothing, "malformed message (notice of type 2)"),
    ENDS(pages_unasked, "malformed message (notice of type 6)"),
    ENDS(credit_without_end, "malformed message (notice of type 22)"),
    ENDS(blocks_without_end, "malformed message (notice of type 21)"),
    ENDS(completions_without_end, "malformed message (notice of type 20)"),
    ENDS(lines_without_end, "malformed message (notice of type 42)"),
    ENDS(connection_to_itself_lost, "malformed message (notice of type 50)"),
    ENDS(end_with_an_escape, "ended the session: of ?[2J that"),
#undef ENDS
    {"line_with_an_escape", memory_info, line_with_an_escape, CUDA_SUCCESS, "assertion ?[2Jfailed"},
    {"allocation", allocate, own_memory, CUDA_ERROR_OUT_OF_MEMORY,
     "device addresses collide with this program's own memory (8 tries); allocation fails"},
    {"reservation", reserve, own_memory, CUDA_ERROR_OUT_OF_MEMORY,
     "device addresses collide with this program's own memory (8 tries); reservation fails"},
    {"managed_memory", allocate_managed, own_memory, CUDA_ERROR_OUT_OF_MEMORY,
     "the server's address for managed memory is in use in this program"},
    {"managed_memory_twice", allocate_managed_twice, same_memory, CUDA_ERROR_OUT_OF_MEMORY,
     "the server's address for managed memory is that of managed memory which is in use"},
    {"managed_memory_nowhere", allocate_managed, no_address, CUDA_ERROR_OUT_OF_MEMORY,
     "the server's address for managed memory is in use in this program"},
    {"more_groups", split_processors, more_groups, CUDA_ERROR_UNKNOWN,
     "more groups of multiprocessors than were asked for"},
    {"variable_outside", find_variable, variable_outside, CUDA_ERROR_UNKNOWN,
     "outside of the memory that it names for it"},
    {"variable_beyond", find_variable, variable_beyond, CUDA_ERROR_UNKNOWN,
     "outside of the memory that it names for it"},
    {"variable_before", find_variable, variable_before, CUDA_ERROR_UNKNOWN,
     "outside of the memory that it names for it"},
    {"log_with_an_escape", compile, log_with_an_escape, CUDA_ERROR_INVALID_PTX, "error: ?[2Jline 1"},
    {"rank_of_others", join, rank_of_others, ncclInternalError, "says of a communicator what cannot be"},
    {"more_ranks", join, more_ranks, ncclInternalError, "says of a communicator what cannot be"},
    {"no_result", join, no_result, ncclInternalError, "NCCL has ?[2Jfailed"},
    {"more_places_at_once", join, more_places_at_once, ncclInternalError,
     "names more processes than the communicator has ranks"},
    {"places_without_end", join, places_without_end, ncclInternalError,
     "names more processes than the communicator has ranks"},
};

/* In a process of its own, whose standard error is kept. */
static _Noreturn void try(const struct refusal *refusal, int errors)
{
    static unsigned char script[65536];
    struct rg_writer w = {script};
    CUcontext context;
    CHECK(dup2(errors, STDERR_FILENO) == STDERR_FILENO);
    rg_log_set_level(RG_LOG_ERROR);
    scripted_server_begin();
    CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    CHECK(cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n.address_size 64\n") == CUDA_SUCCESS);
    refusal->say(&w);
    CHECK((size_t)(w.at - script) <= sizeof script);
    scripted_server_say(rg_reader_of(script, (size_t)(w.at - script)), true);
    const int result = refusal->call();
    fflush(stderr);
    _exit(result);
}

int main(void)
{
    bool good = true;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *at = &refusals[i];
        char said[8192] = "";
        int status;
        FILE *errors = tmpfile();
        CHECK(errors);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            try(at, fileno(errors));
        CHECK(waitpid(child, &status, 0) == child);
        const ssize_t size = pread(fileno(errors), said, sizeof said - 1, 0);
        fclose(errors);
        /* a status is a byte of the result */
        if (size >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == (at->result & 255) &&
            strstr(said, at->message) && !strchr(said, ESCAPE[0]))
            continue;
        fprintf(stderr, "%s: status %x, not %d and '%s' but:\n%s\n", at->name, (unsigned)status, at->result,
                at->message, said);
        good = false;
    }
    return good ? 0 : 1;
}
