/*
 * worker.c - a session as the worker serves it: records of every operation, made from the specification, answers,
 * and messages of any bytes, on a driver that looks at all it is given (driver.h). program.h has the inputs.
 *
 * The worker runs as it does in production, on threads of its own; the connection is a script. What the worker asks
 * for is answered as it wants it, unless the input says that nothing is.
 */
#include "server/core/worker.h"
#include "common/base/log.h"
#include "common/cuda/nccl.h"
#include "proto/delta.h"
#include "proto/graph.h"
#include "proto/nccl/call.h"
#include "proto/prealloc.h"
#include "server/modules.h"
#include "server/timeline/times.h"
#include "tests/check.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/scripted_conn.h"
#include "tests/server/put_parameters.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAUSES_MAX = 3, PAUSE_US = 300, SESSION_MESSAGES_MAX = 64, ANSWERS_MAX = 64, DATA_MAX = 1 << 18 };

struct session {
    struct rg_conn *conn;
    struct rg_delta *delta;
    uint64_t seq;
    uint32_t count, token;
    size_t used;
    unsigned pauses, messages;
    bool silent;
    atomic_uint answers;
    unsigned char batch[RG_MESSAGE_MAX];
};

static void push_answer(struct rg_conn *conn, const struct rg_answer *said, size_t size)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1}, *said};
    fuzz_conn_push(conn, &message, sizeof message, NULL, size);
}

/* What the worker asks for, as it wants it. */
static void sent(void *user, struct rg_conn *conn, const void *message, size_t size, size_t bulk_size)
{
    struct session *session = user;
    struct rg_reader in = rg_reader_of(message, size);
    struct rg_message_header header;
    struct rg_notice notice;
    (void)bulk_size;
    rg_get_into(&in, &header, sizeof header);
    if (session->silent || header.kind != RG_MESSAGE_NOTICE)
        return;
    rg_get_into(&in, &notice, sizeof notice);
    CHECK(!in.bad);
    if (atomic_fetch_add(&session->answers, 1) > ANSWERS_MAX)
        return;
    if (notice.type == RG_NOTICE_HOST_CALL && !notice.arg[1])
        push_answer(conn, &(struct rg_answer){.type = RG_ANSWER_HOST_DONE, .id = notice.id}, 0);
    else if (notice.type == RG_NOTICE_RENDEZVOUS && notice.arg[1] && notice.arg[1] <= DATA_MAX)
        push_answer(conn,
                    &(struct rg_answer){RG_ANSWER_DATA, 0, notice.id, {notice.arg[0], notice.arg[1], 0}},
                    notice.arg[1]);
    else if (notice.type == RG_NOTICE_RECLAIM)
        push_answer(conn, &(struct rg_answer){.type = RG_ANSWER_RECLAIMED, .id = notice.id}, 0);
}

static void flush(struct session *s, const struct fuzz_step *step)
{
    static unsigned char encoded[RG_MESSAGE_MAX + RG_DELTA_GROWTH];
    struct rg_message_header header = {
        .kind = RG_MESSAGE_BATCH, .version = RG_PROTOCOL_MAJOR, .count = s->count, .seq = s->seq};
    if (s->count == 0 || s->messages++ > SESSION_MESSAGES_MAX)
        return;
    unsigned char *const records = s->batch + sizeof header;
    if (step->flags & FUZZ_SEND_DELTA) {
        if (!s->delta)
            s->delta = rg_delta_create();
        CHECK(s->delta);
        const size_t size = rg_delta_encode(s->delta, records, s->used - sizeof header, encoded);
        CHECK(size <= RG_MESSAGE_MAX - sizeof header);
        memcpy(records, encoded, size);
        s->used = sizeof header + size;
        header.kind = RG_MESSAGE_DELTA;
    }
    memcpy(s->batch, &header, sizeof header);
    fuzz_conn_push(s->conn, s->batch, s->used, step->data, step->size);
    s->seq += s->count;
    s->count = 0;
    s->used = sizeof header;
}

static void put_record(struct session *s, unsigned op, unsigned thread, unsigned flags, const void *data,
                       size_t size)
{
    const size_t whole = (sizeof(struct rg_record) + size + 7) & ~(size_t)7;
    if (whole + RG_DELTA_GROWTH > sizeof s->batch - s->used)
        flush(s, &(struct fuzz_step){.size = 0});
    const bool waits = flags & FUZZ_RECORD_WAITS;
    const struct rg_record record = {.size = (uint32_t)whole,
                                     .op = (uint16_t)op,
                                     .flags = waits && flags & FUZZ_RECORD_AWAITED ? RG_RECORD_AWAITED : 0,
                                     .thread = thread,
                                     .token = waits ? ++s->token : 0};
    memset(s->batch + s->used, 0, whole);
    memcpy(s->batch + s->used, &record, sizeof record);
    if (size)
        memcpy(s->batch + s->used + sizeof record, data, size);
    s->used += whole;
    s->count++;
}

/* What nearly every session has: a context (index 0), a stream (1) and an event (2). */
static void begin(struct session *s, bool bare)
{
    unsigned char parameters[32];
    struct rg_writer w = {parameters};
    /* A context that nothing else here names: the worker ends it when it ends, and waits for the driver's threads. */
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 0);
    rg_put_u64(&w, rg_handle_make(RG_KIND_CONTEXT, 1000, 1));
    put_record(s, RG_OP_cuCtxCreate_v2, 9, 0, parameters, 16);
    if (bare)
        return;
    w.at = parameters;
    rg_put_u32(&w, 0);
    rg_put_u64(&w, rg_handle_make(RG_KIND_CONTEXT, 0, 1));
    put_record(s, RG_OP_cuDevicePrimaryCtxRetain, 0, FUZZ_RECORD_WAITS, parameters, 12);
    for (unsigned thread = 0; thread < 2; thread++)
        put_record(s, RG_OP_rgThreadSetContext, thread, 0, parameters + 4, 8);
    w.at = parameters + 4;
    rg_put_u64(&w, rg_handle_make(RG_KIND_STREAM, 1, 1));
    put_record(s, RG_OP_cuStreamCreate, 0, 0, parameters, 12);
    w.at = parameters + 4;
    rg_put_u64(&w, rg_handle_make(RG_KIND_EVENT, 2, 1));
    put_record(s, RG_OP_cuEventCreate, 0, 0, parameters, 12);
}

static void do_step(struct session *s, const struct fuzz_step *step)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {.header = {.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1}};
    const struct fuzz_operation *operation;
    switch (step->kind) {
    case FUZZ_RECORD:
        operation = fuzz_operation_of(step->operation);
        put_record(s, operation->op, step->thread, step->flags, step->data, step->size);
        break;
    case FUZZ_SEND:
        flush(s, step);
        break;
    case FUZZ_ANSWER:
        flush(s, &(struct fuzz_step){.size = 0});
        memcpy(&message.answer, step->head, sizeof message.answer);
        message.header.seq = s->seq;
        if (s->messages++ < SESSION_MESSAGES_MAX)
            fuzz_conn_push(s->conn, &message, sizeof message, step->data, step->size);
        break;
    case FUZZ_RAW: {
        unsigned char *bytes = malloc(sizeof(struct rg_message_header) + step->size);
        CHECK(bytes);
        memcpy(bytes, step->head, sizeof(struct rg_message_header));
        if (step->size)
            memcpy(bytes + sizeof(struct rg_message_header), step->data, step->size);
        if (s->messages++ < SESSION_MESSAGES_MAX)
            fuzz_conn_push(s->conn, bytes, sizeof(struct rg_message_header) + step->size, NULL, 0);
        free(bytes);
        break;
    }
    case FUZZ_MODE:
        flush(s, &(struct fuzz_step){.size = 0});
        fuzz_conn_push_call(s->conn, fuzz_driver_change, step->mode);
        break;
    default:
        flush(s, &(struct fuzz_step){.size = 0});
        if (s->pauses++ < PAUSES_MAX)
            fuzz_conn_push_pause(s->conn, PAUSE_US);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_level(RG_LOG_ERROR);
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session session;
    struct session *s = &session;
    struct rg_reader in = rg_reader_of(data, size);
    struct fuzz_step step;
    const unsigned how = size ? data[0] : 0;
    rg_get(&in, size ? 1 : 0);
    s->seq = 1;
    s->delta = NULL;
    s->count = s->token = s->pauses = s->messages = 0;
    s->used = sizeof(struct rg_message_header);
    s->silent = how & FUZZ_BEGIN_SILENT;
    atomic_store(&s->answers, 0);
    fuzz_driver_use(how & 31);
    s->conn = fuzz_conn_create(sent, s);
    struct rg_worker *worker = rg_worker_create(s->conn, 1, -1, rg_server_modules);
    CHECK(worker);
    if (how & FUZZ_BEGIN_TIMED)
        rg_times_start(worker);
    begin(s, how & FUZZ_BEGIN_BARE);
    while (fuzz_step_get(&in, &step))
        do_step(s, &step);
    flush(s, &(struct fuzz_step){.size = 0});
    fuzz_conn_finish(s->conn);
    CHECK(rg_worker_start(worker) == RG_OK);
    (void)rg_worker_wait(worker);
    fuzz_driver_end();
    rg_worker_destroy(worker);
    rg_delta_destroy(s->delta);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .b32 some;\n";
static unsigned char made[8192];
static struct rg_writer w;

static void start(unsigned how)
{
    w.at = made;
    rg_put(&w, &(unsigned char){(unsigned char)how}, 1);
}

/* `format`: as put_parameters takes it. */
static void record(const char *name, unsigned flags, const char *format, ...)
{
    va_list arguments;
    rg_put(&w, &(unsigned char){FUZZ_RECORD}, 1);
    rg_put_u32(&w, fuzz_hash(name));
    rg_put(&w, &(unsigned char[]){0, (unsigned char)flags}, 2);
    unsigned char *size = w.at;
    w.at += 2;
    va_start(arguments, format);
    put_parameters(&w, format, arguments);
    va_end(arguments);
    memcpy(size, &(uint16_t){(uint16_t)(w.at - size - 2)}, 2);
}

static void send_with(const void *bulk, size_t size)
{
    rg_put(&w, &(unsigned char[]){FUZZ_SEND, 0}, 2);
    rg_put(&w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(&w, bulk, size);
}

static void pause_a_moment(void)
{
    rg_put(&w, &(unsigned char){FUZZ_PAUSE}, 1);
}

static void done(const char *name)
{
    fuzz_seed(name, made, (size_t)(w.at - made));
}

void fuzz_seeds(void)
{
    const uint64_t stream = rg_handle_make(RG_KIND_STREAM, 1, 1), event = rg_handle_make(RG_KIND_EVENT, 2, 1);
    const uint64_t module = rg_handle_make(RG_KIND_MODULE, 11, 1), zero = 0, memory = 0x700000000000;
    const uint64_t function = rg_handle_make(RG_KIND_FUNCTION, 12, 1),
                   graph = rg_handle_make(RG_KIND_GRAPH, 13, 1);
    const uint64_t link = rg_handle_make(RG_KIND_LINK, 14, 1),
                   library = rg_handle_make(RG_KIND_LIBRARY, 15, 1);
    const uint64_t array = rg_handle_make(RG_KIND_ARRAY, 16, 1);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    start(FUZZ_BEGIN_TIMED);
    record("rgImageData", 0, "8888", (uint64_t)1, (uint64_t)sizeof ptx, zero, (uint64_t)sizeof ptx);
    send_with(ptx, sizeof ptx);
    record("rgModuleLoad", 1, "8488888", (uint64_t)1, 0, (uint64_t)100, (uint64_t)100, module, zero, zero);
    record("rgModuleGetFunction", 1, "88s", function, module, "name");
    record("rgModuleEnumerate", 1, "448888", 0, 2, module, (uint64_t)2,
           rg_handle_make(RG_KIND_FUNCTION, 18, 1), rg_handle_make(RG_KIND_FUNCTION, 19, 1));
    record("rgModuleDescribe", 1, "8", module);
    record("rgLaunch", 0, "844444444848b8", function, 1, 1, 1, 1, 1, 1, 0, 0, (uint64_t)12, 0, zero,
           "abcdefghijk", (size_t)12, zero);
    record("rgLaunch", 1, "844444444848bb", function, 1, 1, 1, 1, 1, 1, 0, 0, zero, 1, stream, "", (size_t)0,
           &attribute, sizeof attribute);
    done("module");

    start(0);
    record("rgImageData", 0, "8888", (uint64_t)1, (uint64_t)sizeof ptx, zero, (uint64_t)sizeof ptx);
    send_with(ptx, sizeof ptx);
    record("rgLinkCreate", 1, "488888", 0, (uint64_t)100, (uint64_t)100, link, zero, zero);
    record("rgLinkAdd", 1, "4848888", 1, (uint64_t)1, 0, link, zero, zero, zero);
    record("rgLinkComplete", 1, "8", link);
    record("rgLinkRead", 1, "888", zero, (uint64_t)64, link);
    record("cuLinkDestroy", 0, "8", link);
    record("rgImagePrefetch", 0, "88", (uint64_t)1, library);
    record("rgLibraryDescribe", 1, "8", library);
    record("rgModuleTake", 1, "88", module, library);
    done("link");

    static unsigned char bulk[2048];
    start(FUZZ_DRIVER_HOST);
    record("cuMemAlloc_v2", 1, "8", (uint64_t)65536);
    record("rgCopyIn", 0, "888848", memory, (uint64_t)300, (uint64_t)100, (uint64_t)5, 0, stream);
    send_with(bulk, 500);
    record("rgCopyIn", 1, "888848", memory, (uint64_t)64, (uint64_t)64, (uint64_t)1, 1, zero);
    send_with(bulk, 64);
    record("rgCopyOut", 1, "888888", memory, (uint64_t)64, (uint64_t)64, (uint64_t)2, (uint64_t)7, zero);
    record("rgCopyInDeferred", 0, "888888", memory, (uint64_t)64, (uint64_t)64, (uint64_t)2, (uint64_t)8,
           stream);
    record("rgCopyOutDeferred", 0, "888888", memory, (uint64_t)64, (uint64_t)64, (uint64_t)2, (uint64_t)9,
           stream);
    record("rgHostCall", 0, "848", (uint64_t)10, 0, stream);
    record("rgHostCall", 0, "848", (uint64_t)11, 1, stream);
    pause_a_moment();
    record("cuStreamSynchronize", 1, "8", stream);
    pause_a_moment();
    done("copies");

    CUDA_MEMCPY3D in = {.WidthInBytes = 8,
                        .Height = 2,
                        .Depth = 2,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .dstPitch = 64,
                        .dstHeight = 32};
    CUDA_MEMCPY3D out = {.WidthInBytes = 8,
                         .Height = 2,
                         .Depth = 2,
                         .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = memory,
                         .srcPitch = 64,
                         .srcHeight = 32};
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 64, .Height = 32, .Depth = 8, .NumChannels = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8};
    start(FUZZ_DRIVER_HOST);
    record("cuArray3DCreate_v2", 1, "8r", array, &shape, sizeof shape);
    record("rgBoxIn", 0, "4r88", 0, &in, sizeof in, zero, stream);
    send_with(bulk, 32);
    record("rgBoxOut", 1, "8r88", (uint64_t)3, &out, sizeof out, zero, stream);
    record("rgBoxInDeferred", 0, "8r88", (uint64_t)4, &in, sizeof in, zero, stream);
    record("rgBoxOutDeferred", 0, "8r88", (uint64_t)5, &out, sizeof out, zero, stream);
    pause_a_moment();
    done("boxes");

    unsigned char steps[1024];
    struct rg_writer g = {steps};
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    rg_put_u32(&g, 0);
    rg_put_u32(&g, 3);
    rg_put_u32(&g, RG_GRAPH_WIRE_FILL);
    for (unsigned i = 0; i < 11; i++)
        rg_put_u32(&g, i > 2);
    rg_put_u32(&g, RG_GRAPH_WIRE_COPY);
    rg_put_u32(&g, 1);
    rg_put_u32(&g, 0);
    rg_put(&g, &copy, sizeof copy);
    rg_put_u32(&g, RG_GRAPH_WIRE_KERNEL);
    rg_put_u32(&g, 0);
    rg_put_u64(&g, rg_handle_make(RG_KIND_FUNCTION, 18, 1));
    for (unsigned i = 0; i < 8; i++)
        rg_put_u32(&g, i < 6);
    rg_put_u32(&g, 1);
    rg_put(&g, &attribute, sizeof attribute);
    rg_put_u32(&g, 0);
    const uint64_t size = (uint64_t)(g.at - steps);
    start(0);
    record("rgImageData", 0, "8888", (uint64_t)1, (uint64_t)sizeof ptx, zero, (uint64_t)sizeof ptx);
    send_with(ptx, sizeof ptx);
    record("rgModuleLoad", 1, "8488888", (uint64_t)1, 0, zero, zero, module, zero, zero);
    record("rgModuleGetFunction", 1, "88s", rg_handle_make(RG_KIND_FUNCTION, 18, 1), module, "name");
    record("rgImageData", 0, "8888", (uint64_t)2, size, zero, size);
    send_with(steps, size);
    record("rgGraphMake", 1, "848", (uint64_t)2, 0, graph);
    record("rgGraphRun", 0, "88", graph, stream);
    record("rgGraphDrop", 0, "8", graph);
    done("graph");

    start(0);
    record("rgMemMayReclaim", 0, "");
    record("rgPoolsSettle", 1, "");
    record("rgMemPrealloc", 0, "84884488", (uint64_t)3, 2, (uint64_t)4096, zero, 0, 3, zero, zero);
    const struct rg_prealloc_hint hint = {.slab_id = 1000, .size = 4096, .kind = 0, .count = 2};
    record("rgMemPreallocHints", 0, "8b", sizeof hint, &hint, sizeof hint);
    record("rgMemTake", 1, "88488", (uint64_t)3, memory, 0, zero, zero);
    record("rgMemReturn", 0, "8", (uint64_t)1000);
    record("rgCreditTell", 0, "8", (uint64_t)65536);
    record("rgCreditAsk", 1, "");
    pause_a_moment();
    done("ready-memory");

    start(FUZZ_BEGIN_TIMED | FUZZ_DRIVER_NOT_READY);
    record("cuEventRecord", 0, "88", event, stream);
    record("rgEventWatch", 0, "88", (uint64_t)1, event);
    record("rgEventWatchTimed", 0, "8848", (uint64_t)2, event, 1, event);
    record("rgStreamAsk", 1, "88", (uint64_t)3, stream);
    record("rgDefaultStreamAsk", 1, "88", (uint64_t)4, zero);
    record("rgDefaultStreamWatch", 0, "88", (uint64_t)5, zero);
    record("rgEventWait", 1, "848", event, 1, event);
    record("rgEventAsk", 1, "88", (uint64_t)5, event);
    record("cuEventDestroy_v2", 0, "8", event);
    pause_a_moment();
    done("events");

    start(0);
    unsigned char given[64] = {1};
    record("cuIpcGetMemHandle", 1, "8", memory);
    record("cuIpcGetEventHandle", 1, "8", event);
    record("cuMemPoolExportPointer", 1, "8", memory);
    record("rgIpcOpenMemory", 1, "4r", 0, given, sizeof given);
    record("rgIpcOpenEvent", 1, "8r", rg_handle_make(RG_KIND_EVENT, 19, 1), given, sizeof given);
    record("rgShareEnd", 1, "4b", 0, given, sizeof given);
    record("rgCoredumpSet", 1, "48b", 1, (uint64_t)4, given, (size_t)4);
    record("rgCoredumpGetGlobal", 1, "448", 1, 1, (uint64_t)4);
    record("rgUnifiedOpen", 1, "");
    record("rgHostMap", 1, "88", (uint64_t)0x300000000000, (uint64_t)8192);
    done("sharing");

    start(0);
    const struct rg_nccl_beginning beginning = {.parent = RG_NCCL_COMMS_MAX, .ranks = 4, .rank = 1},
                                   part = {.comm = 1, .ranks = 1};
    const struct rg_nccl_call calls[] = {
        {RG_NCCL_REDUCE, 0, memory, FUZZ_DRIVER_HOLE, 8, ncclFloat32, ncclSum, 2, stream},
        {RG_NCCL_BROADCAST, 0, FUZZ_DRIVER_HOLE, memory, 8, ncclFloat32, ncclSum, 2, stream},
        {RG_NCCL_ALL_GATHER, 1, memory, memory, 8, ncclInt64, ncclSum, 0, stream}};
    record("rgNcclId", 1, "");
    record("rgNcclBegin", 1, "448r", RG_NCCL_BEGINNING_WORDS, 2, (uint64_t)RG_NCCL_BEGINNING_WORDS,
           &beginning, sizeof beginning);
    record("rgNcclBegin", 1, "448r", RG_NCCL_BEGINNING_WORDS, 2, (uint64_t)RG_NCCL_BEGINNING_WORDS, &part,
           sizeof part);
    record("rgNcclGroup", 1, "48r", sizeof calls / 8, (uint64_t)sizeof calls / 8, calls, sizeof calls);
    record("rgNcclPost", 0, "48r", RG_NCCL_CALL_WORDS, (uint64_t)RG_NCCL_CALL_WORDS, calls, sizeof *calls);
    record("rgNcclOperator", 1, "8448", zero, ncclFloat32, ncclScalarDevice, memory);
    record("rgNcclEnd", 1, "84", (uint64_t)1, RG_NCCL_DESTROY);
    done("nccl");

    start(0); /* roots that are this rank in 32 bits alone */
    const uint64_t wide = (1ull << 32) + 1;
    const struct rg_nccl_call wide_calls[] = {
        {RG_NCCL_REDUCE, 0, memory, FUZZ_DRIVER_HOLE, 8, ncclFloat32, ncclSum, wide, stream},
        {RG_NCCL_BROADCAST, 0, FUZZ_DRIVER_HOLE, memory, 8, ncclFloat32, ncclSum, wide, stream}};
    record("rgNcclBegin", 1, "448r", RG_NCCL_BEGINNING_WORDS, 2, (uint64_t)RG_NCCL_BEGINNING_WORDS,
           &beginning, sizeof beginning);
    for (size_t i = 0; i < sizeof wide_calls / sizeof wide_calls[0]; i++)
        record("rgNcclGroup", 1, "48r", RG_NCCL_CALL_WORDS, (uint64_t)RG_NCCL_CALL_WORDS, &wide_calls[i],
               sizeof wide_calls[i]);
    done("nccl-wide-roots");
}
