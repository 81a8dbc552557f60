/*
 * fuzz.c - a great many sessions of records and answers with some of their bytes changed, which must leave
 * the worker sound whatever they do (meant for the sanitizers). The driver does nothing, or refuses all; host
 * functions are called or not, work is done at once or not yet, contexts fail. usage: server_fuzz [CASES
 * [SEED]]
 */
#include "common/cache/digest.h"
#include "proto/delta.h"
#include "proto/graph.h"
#include "proto/prealloc.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

static uint64_t state;
static uint32_t chance(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

/* --- the driver ----------------------------------------------------------------------------------------- */

enum { REFUSES = 4 }; /* of so many sessions, one has a driver that does */

static atomic_bool not_ready, ending;
static _Atomic CUdeviceptr next_address;

static CUresult query(void *object)
{
    (void)object;
    return atomic_load(&not_ready) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
static CUresult event_query(CUevent event)
{
    return query(event);
}
static CUresult stream_query(CUstream stream)
{
    return query(stream);
}
/* The worker ends its contexts when it ends; that is where it relies on their work being done. */
static CUresult synchronize(void)
{
    if (atomic_load(&ending))
        stub_driver_wait();
    return atomic_load(&stub_failed) ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
static CUresult allocate(CUdeviceptr *address, size_t size)
{
    *address = atomic_fetch_add(&next_address, 65536);
    return size > 1u << 20 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static CUresult info(size_t *available, size_t *total)
{
    *available = *total = 1u << 30;
    return CUDA_SUCCESS;
}
static CUresult describe_array(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    (void)array;
    *out = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 64, .Height = 32, .Depth = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return CUDA_SUCCESS;
}
static CUresult kernel_name(const char **name, CUkernel kernel)
{
    (void)kernel;
    *name = "name";
    return CUDA_SUCCESS;
}
static CUresult kernel_count(unsigned *count, CUlibrary library)
{
    (void)library;
    *count = 3;
    return CUDA_SUCCESS;
}
static CUresult param_info(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    (void)function;
    *offset = index * 8;
    *size = 8;
    return index < 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult kernel_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return param_info((CUfunction)(void *)kernel, index, offset, size);
}

/* Linker states write to the logs that they were made with, as long as they are there. */
struct link {
    char *log;
    size_t size;
};
static CUresult link_create(unsigned n, CUjit_option *options, void **values, CUlinkState *out)
{
    struct link *link = calloc(1, sizeof *link);
    for (unsigned i = 0; i < n; i++) {
        link->log = options[i] == CU_JIT_INFO_LOG_BUFFER ? values[i] : link->log;
        link->size = options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ? (size_t)values[i] : link->size;
    }
    *out = (CUlinkState)(void *)link;
    return CUDA_SUCCESS;
}
static CUresult link_add(CUlinkState given, CUjitInputType type, void *data, size_t size, const char *name,
                         unsigned n, CUjit_option *options, void **values)
{
    struct link *link = (struct link *)(void *)given;
    (void)type, (void)name, (void)n, (void)options, (void)values;
    if (link->log)
        memcpy(link->log, data, size < link->size ? size : link->size);
    return CUDA_SUCCESS;
}
static CUresult link_complete(CUlinkState given, void **image, size_t *size)
{
    *image = (void *)given;
    *size = sizeof(struct link);
    return CUDA_SUCCESS;
}
static CUresult link_destroy(CUlinkState given)
{
    free((void *)given);
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(chance(REFUSES) ? stub_succeed : stub_fail);
    if (chance(3))
        stub_driver_call_host();
    else
        rg_driver.cuLaunchHostFunc = rg_driver_absent.cuLaunchHostFunc;
    rg_driver.cuEventQuery = event_query;
    rg_driver.cuStreamQuery = stream_query;
    rg_driver.cuCtxSynchronize = synchronize;
    rg_driver.cuMemAlloc_v2 = allocate;
    rg_driver.cuMemGetInfo_v2 = info;
    rg_driver.cuArray3DGetDescriptor_v2 = describe_array;
    rg_driver.cuLinkCreate_v2 = link_create;
    rg_driver.cuLinkAddData_v2 = link_add;
    rg_driver.cuLinkComplete = link_complete;
    rg_driver.cuLinkDestroy = link_destroy;
    rg_driver.cuKernelGetName = kernel_name;
    rg_driver.cuLibraryGetKernelCount = kernel_count;
    rg_driver.cuFuncGetParamInfo = param_info;
    rg_driver.cuKernelGetParamInfo = kernel_param_info;
#ifdef __SANITIZE_THREAD__ /* which does not bear mappings at just any address */
    rg_driver.cuMemHostRegister_v2 = rg_driver_absent.cuMemHostRegister_v2;
#endif
    atomic_store(&not_ready, chance(2));
    atomic_store(&next_address, 0x700000000000);
    atomic_store(&stub_failed, false);
    atomic_store(&ending, false);
}

/* --- records -------------------------------------------------------------------------------------------- */

enum { KINDS = 35 }; /* of records */

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .b32 some;\n";
static const uint64_t stream = 2ull << 42 | 1ull << 26 | 7 << 4; /* handle(RG_KIND_STREAM, 7) */
static unsigned char bulk[70000];

static CUDA_MEMCPY3D some_box(bool to_device)
{
    CUDA_MEMCPY3D box = {.WidthInBytes = 1 + chance(64), .Height = 1 + chance(32), .Depth = 1 + chance(8)};
    const CUmemorytype type = chance(2) ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
    if (to_device) {
        box.dstMemoryType = type;
        box.dstDevice = 0x10000;
        box.dstPitch = 64;
        box.dstHeight = 32;
    } else {
        box.srcMemoryType = type;
        box.srcDevice = 0x10000;
        box.srcPitch = 64;
        box.srcHeight = 32;
    }
    return box;
}

/* Image 2 becomes a graph: a fill, a copy, a kernel with an attribute. */
static size_t put_graph(struct client *c, uint32_t thread, uint64_t function)
{
    struct rg_writer w = {bulk};
    CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)chance(20)};
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    attribute.value.launchCompletionEvent.event = (CUevent)handle(RG_KIND_EVENT, 4);
    rg_put_u32(&w, 0); /* conditions */
    rg_put_u32(&w, 3); /* steps */
    rg_put_u32(&w, RG_GRAPH_WIRE_FILL);
    for (unsigned i = 0; i < 11; i++)
        rg_put_u32(&w, i > 2);
    rg_put_u32(&w, RG_GRAPH_WIRE_COPY);
    rg_put_u32(&w, 1); /* behind the fill */
    rg_put_u32(&w, 0);
    rg_put(&w, &copy, sizeof copy);
    rg_put_u32(&w, RG_GRAPH_WIRE_KERNEL);
    rg_put_u32(&w, 0);
    rg_put_u64(&w, function);
    for (unsigned i = 0; i < 8; i++)
        rg_put_u32(&w, i < 6);
    rg_put_u32(&w, 1);
    rg_put(&w, &attribute, sizeof attribute);
    rg_put_u32(&w, 0); /* parameters */
    const size_t size = (size_t)(w.at - bulk);
    for (unsigned i = chance(4); i; i--)
        bulk[chance((uint32_t)size)] = (unsigned char)chance(256);
    put(c, RG_OP_rgImageData, thread, 0, "8888", (uint64_t)2, (uint64_t)size, (uint64_t)0, (uint64_t)size);
    return size;
}

/* A session exports what this same session opens again, or something else. */
static void put_shared(struct client *c, uint32_t thread, uint32_t token, uint64_t event)
{
    unsigned char given[64];
    for (size_t i = 0; i < sizeof given; i++)
        given[i] = (unsigned char)chance(256);
    put(c, RG_OP_cuIpcGetMemHandle, thread, token, "8", (uint64_t)4096);
    put(c, RG_OP_cuIpcGetEventHandle, thread, token, "8", event);
    put(c, RG_OP_cuMemPoolExportPointer, thread, token, "8", (uint64_t)4096);
    put(c, RG_OP_rgIpcOpenMemory, thread, token, "4r", chance(2), given, sizeof given);
    put(c, RG_OP_rgIpcOpenEvent, thread, token, "8r", event, given, sizeof given);
    put(c, RG_OP_rgShareEnd, thread, token, "4b", 0, given, sizeof given);
}

/* Appends one of the records that make up a session; the size of the bulk data it wants. */
static size_t put_some(struct client *c, unsigned which)
{
    const uint64_t module = handle(RG_KIND_MODULE, 1), function = handle(RG_KIND_FUNCTION, 2), zero = 0;
    const uint64_t pool = handle(RG_KIND_POOL, 3), event = handle(RG_KIND_EVENT, 4);
    const uint64_t library = handle(RG_KIND_LIBRARY, 5), array = handle(RG_KIND_ARRAY, 6);
    const uint64_t link = rg_handle_make(RG_KIND_LINK, 9, 1 + chance(2));
    const uint32_t thread = chance(3), token = chance(2) ? 0 : 1 + chance(5);
    static struct rg_prealloc_hint hint;
    const uint64_t transfer = chance(9), number = chance(9);
    CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)chance(20)};
    const size_t width = 1 + chance(300);
    CUDA_MEMCPY3D box;
    struct rg_digest digest;
    switch (which) {
    case 0:
        put(c, RG_OP_cuDevicePrimaryCtxRetain, thread, token, "48", 0, handle(RG_KIND_CONTEXT, chance(2)));
        return 0;
    case 1:
        put(c, RG_OP_rgThreadSetContext, thread, token, "8", handle(RG_KIND_CONTEXT, chance(2)));
        return 0;
    case 2:
        put(c, RG_OP_cuStreamCreate, thread, token, "48", chance(2),
            chance(2) ? stream : rg_handle_make(RG_KIND_STREAM, chance(3), chance(9)));
        return 0;
    case 3:
        put(c, RG_OP_rgCopyIn, thread, token, "888848", (uint64_t)4096, (uint64_t)300, width, (uint64_t)200,
            chance(2), stream);
        return width * 200;
    case 4:
        put(c, RG_OP_rgCopyOut, thread, token, "888888", (uint64_t)4096, width, width, (uint64_t)1, number,
            zero);
        return 0;
    case 5:
        put(c, RG_OP_rgCopyInDeferred, thread, token, "888888", (uint64_t)4096, width, width,
            (uint64_t)chance(9), transfer, chance(2) ? stream : 2);
        return 0;
    case 6:
        put(c, RG_OP_rgCopyOutDeferred, thread, token, "888888", (uint64_t)4096, width, width,
            (uint64_t)chance(9), transfer, stream);
        return 0;
    case 7:
        put(c, RG_OP_rgImageData, thread, token, "8888", (uint64_t)1, (uint64_t)sizeof ptx, zero,
            (uint64_t)sizeof ptx);
        return sizeof ptx;
    case 8:
        put(c, RG_OP_rgModuleLoad, thread, token, "8488888", (uint64_t)1, 0, (uint64_t)100, (uint64_t)100,
            module, zero, zero);
        return 0;
    case 9:
        put(c, RG_OP_rgModuleGetFunction, thread, token, "88s", function, module, "name");
        return 0;
    case 10:
        put(c, RG_OP_rgLaunch, thread, token, "844444444848b8", function, 1, 1, 1, 1, 1, 1, 0, chance(2),
            (uint64_t)12, 0, zero, "abcdefghijk", (size_t)12, zero);
        return 0;
    case 11:
        put(c, RG_OP_rgHostCall, thread, token, "848", number, chance(2), zero);
        return 0;
    case 12:
        put(c, RG_OP_cuMemPoolCreate, thread, token, "888888888888", pool, zero, zero, zero, zero, zero, zero,
            zero, zero, zero, zero, zero);
        return 0;
    case 13:
        put(c, RG_OP_cuEventCreate, thread, token, "48", 0, event);
        put(c, RG_OP_cuEventRecord, thread, token, "88", event, stream);
        return 0;
    case 14:
        put(c, RG_OP_rgModuleEnumerate, thread, token, "448888", 0, 2, module, (uint64_t)2,
            handle(RG_KIND_FUNCTION, 5), handle(RG_KIND_FUNCTION, 6));
        return 0;
    case 15:
        put(c, RG_OP_cuCtxDestroy_v2, thread, token, "8", handle(RG_KIND_CONTEXT, 1));
        put(c, RG_OP_cuCtxCreate_v2, thread, token, "448", 0, 0,
            rg_handle_make(RG_KIND_CONTEXT, 1, chance(5)));
        return 0;
    case 16:
        put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, thread, token, "4", 0);
        put(c, RG_OP_rgThreadEnd, thread, 0, "");
        return 0;
    case 17:
        put(c, RG_OP_rgLaunch, thread, token, "844444444848bb", function, 1, 1, 1, 1, 1, 1, 0, 0, zero, 1,
            stream, "", (size_t)0, &attribute, sizeof attribute);
        return 0;
    case 18:
        put(c, RG_OP_rgEventWatch, thread, token, "88", number, event);
        put(c, RG_OP_rgStreamAsk, thread, token, "88", number, stream);
        put(c, RG_OP_rgDefaultStreamAsk, thread, token, "88", number, (uint64_t)chance(3));
        return 0;
    case 19:
        put(c, RG_OP_rgMemMayReclaim, thread, token, "");
        put(c, RG_OP_rgPoolsSettle, thread, token, "");
        put(c, RG_OP_rgMemPrealloc, thread, token, "84884488", number, chance(3), (uint64_t)(1 + chance(9)),
            zero, 0, chance(9), zero, zero);
        hint = (struct rg_prealloc_hint){
            .slab_id = hint.slab_id + 1000, .size = 1 + chance(9), .kind = chance(2), .count = chance(9)};
        put(c, RG_OP_rgMemPreallocHints, thread, token, "8b", sizeof hint, &hint, sizeof hint);
        put(c, RG_OP_rgMemReturn, thread, token, "8", chance(2) ? hint.slab_id : (uint64_t)chance(9));
        return 0;
    case 20:
        put(c, RG_OP_rgCreditTell, thread, token, "8", (uint64_t)chance(1u << 20));
        put(c, RG_OP_rgCreditAsk, thread, token, "");
        return 0;
    case 21:
        put(c, RG_OP_rgEventWatchTimed, thread, token, "8848", number, event, 1 + chance(2), event);
        put(c, RG_OP_rgEventWait, thread, token, "848", event, 1 + chance(2), event);
        put(c, RG_OP_rgEventAsk, thread, token, "88", number, event);
        if (chance(2))
            put(c, RG_OP_cuEventDestroy_v2, thread, token, "8", event);
        return 0;
    case 22: /* runs out of memory, upon which what is ready is asked for */
        put(c, RG_OP_cuMemAlloc_v2, thread, token, "8", (uint64_t)2 << 20);
        put(c, RG_OP_rgMemTake, thread, token, "88488", number, 0x700000000000 + 65536ull * chance(4),
            chance(3), zero, zero);
        return 0;
    case 23:
        put(c, RG_OP_rgModuleDescribe, thread, token, "8", module);
        put(c, RG_OP_rgLibraryDescribe, thread, token, "8", library);
        put(c, RG_OP_rgModuleTake, thread, token, "88", module, library);
        return 0;
    case 24:
        digest = rg_digest_of_bytes(&(struct rg_digest_part){ptx, sizeof ptx}, 1);
        put(c, RG_OP_rgImageNamed, thread, token, "888b", number, (uint64_t)sizeof ptx, transfer,
            digest.bytes, sizeof digest.bytes);
        return 0;
    case 25:
        put(c, RG_OP_rgImagePrefetch, thread, token, "88", chance(2) ? 1 : number, library);
        if (chance(2))
            put(c, RG_OP_cuLibraryUnload, thread, token, "8", library);
        return 0;
    case 26:
        put(c, RG_OP_rgPrimaryTake, thread, token, "48", 0, handle(RG_KIND_CONTEXT, chance(2)));
        put(c, RG_OP_cuStreamDestroy_v2, thread, token, "8", stream);
        return 0;
    case 27:
        box = some_box(true);
        put(c, RG_OP_rgBoxIn, thread, token, "4r88", chance(2), &box, sizeof box, chance(2) ? array : 0,
            stream);
        return box.WidthInBytes * box.Height * box.Depth;
    case 28:
        box = some_box(chance(2));
        put(c,
            chance(2)   ? RG_OP_rgBoxInDeferred
            : chance(2) ? RG_OP_rgBoxOut
                        : RG_OP_rgBoxOutDeferred,
            thread, token, "8r88", transfer, &box, sizeof box, zero, stream);
        return 0;
    case 29:
        put(c, RG_OP_rgUnifiedOpen, thread, token, "");
        put(c, RG_OP_rgHostMap, thread, token, "88", 0x300000000000, (uint64_t)8192);
        return 0;
    case 30:
        return put_graph(c, thread, function);
    case 31:
        put(c, RG_OP_rgGraphMake, thread, token, "848", (uint64_t)2, chance(2), handle(RG_KIND_GRAPH, 8));
        put(c, RG_OP_rgGraphRun, thread, token, "88", handle(RG_KIND_GRAPH, 8), stream);
        put(c, RG_OP_rgGraphDrop, thread, token, "8", handle(RG_KIND_GRAPH, 8));
        return 0;
    case 32:
        put_shared(c, thread, token, event);
        put(c, RG_OP_rgCoredumpSet, thread, token, "48b", chance(9), (uint64_t)(width % 9), bulk, width % 9);
        put(c, RG_OP_rgCoredumpGetGlobal, thread, token, "448", chance(9), chance(2), (uint64_t)width);
        return 0;
    case 33:
        put(c, RG_OP_rgLinkCreate, thread, token, "488888", 0, (uint64_t)chance(100), (uint64_t)chance(100),
            link, zero, zero);
        put(c, RG_OP_rgLinkAdd, thread, token, "4848888", chance(7), chance(2) ? 1 : number, 0, link, zero,
            zero, zero);
        return 0;
    case 34:
        put(c, RG_OP_rgLinkComplete, thread, token, "8", link);
        put(c, RG_OP_rgLinkRead, thread, token, "888", (uint64_t)chance(9), (uint64_t)chance(99), link);
        if (chance(2))
            put(c, RG_OP_cuLinkDestroy, thread, token, "8", link);
        return 0;
    default:
        put(c, 1 + chance(RG_OP_COUNT - 1), thread, token, "b", bulk, (size_t)chance(60));
        return 0;
    }
}

/* --- answers -------------------------------------------------------------------------------------------- */

static bool answer(struct client *c, const struct rg_answer *said, const void *data, size_t size)
{
    struct {
        struct rg_message_header header;
        struct rg_answer answer;
    } message = {{.kind = RG_MESSAGE_ANSWER, .version = RG_PROTOCOL_MAJOR, .count = 1, .seq = c->seq}, *said};
    return send_raw(c, &message, sizeof message, data, size);
}

/* An answer to nothing, or to something by chance. */
static bool answer_something(struct client *c)
{
    static const uint32_t types[] = {RG_ANSWER_HOST_DONE,
                                     RG_ANSWER_DATA,
                                     RG_ANSWER_MANAGED_IN,
                                     RG_ANSWER_MANAGED_OUT,
                                     RG_ANSWER_RECLAIMED,
                                     RG_ANSWER_TIMES,
                                     0,
                                     77};
    const uint64_t runs[] = {0x300000000000 + chance(9000), chance(40), chance(9), chance(9), chance(9), 0};
    const struct rg_answer said = {
        .type = types[chance(sizeof types / sizeof *types)],
        .reserved = chance(5),
        .id = chance(2) ? chance(9) : handle(RG_KIND_CONTEXT, chance(2)),
        .arg = {chance(3) ? chance(3) : 0x300000000000, chance(300), handle(RG_KIND_CONTEXT, chance(2))}};
    return answer(c, &said, chance(2) ? runs : (const void *)bulk, chance(2) ? said.arg[1] % 48 : chance(40));
}

/* What the worker asks for, as it wants it, if the client is in the mood. */
static void answer_well(struct client *c, const struct rg_notice *notice)
{
    const uint64_t offset = notice->arg[0], size = notice->arg[1];
    if (notice->type == RG_NOTICE_HOST_CALL)
        (void)answer(c, &(struct rg_answer){.type = RG_ANSWER_HOST_DONE, .id = notice->id}, NULL, 0);
    else if (notice->type == RG_NOTICE_RENDEZVOUS && size && size <= sizeof ptx)
        (void)answer(c, &(struct rg_answer){RG_ANSWER_DATA, 0, notice->id, {offset, size, 0}}, ptx, size);
    else if (notice->type == RG_NOTICE_RENDEZVOUS && size && size <= sizeof bulk)
        (void)answer(c, &(struct rg_answer){RG_ANSWER_DATA, 0, notice->id, {offset, size, 0}}, bulk, size);
    else if (notice->type == RG_NOTICE_RECLAIM) {
        const struct rg_prealloc_return back = {chance(9), 0x700000000000 + 65536ull * chance(3)};
        const size_t n = chance(2) ? sizeof back : 0;
        (void)answer(c, &(struct rg_answer){RG_ANSWER_RECLAIMED, 0, notice->id, {0, n, 0}}, &back, n);
    }
}

/* Takes what the worker sent, so that it is never the one to wait. */
static void drain(struct client *c)
{
    while (receive(c, 0))
        if (c->got.kind == RG_MESSAGE_NOTICE && chance(3)) {
            const struct rg_notice notice = c->got.notice;
            answer_well(c, &notice);
        }
}

/* --- sessions ------------------------------------------------------------------------------------------- */

/* Says of the record that was put last that its client thread waits for the answer, now and then. */
static void await_some(struct client *c)
{
    struct rg_record record;
    memcpy(&record, c->batch + c->last, sizeof record);
    if (c->count && record.token && chance(3) == 0)
        await(c);
}

/* Some of these bytes are others afterwards; returns how many of them there still are. */
static size_t change(unsigned char *bytes, size_t size)
{
    for (unsigned i = chance(4) ? 0 : 1 + chance(3); i; i--) {
        unsigned char *at = bytes + chance((uint32_t)size);
        *at = (unsigned char)(chance(2) ? chance(256) : *at ^ 1u << chance(8));
    }
    return chance(20) == 0 ? chance((uint32_t)size) : size;
}

/*
 * Bytes are changed in the records, or in what they are encoded as. `delta`: NULL in sessions that do not
 * encode.
 */
static bool send_changed(struct client *c, struct rg_delta *delta, size_t bulk_size)
{
    static unsigned char encoded[sizeof c->batch + RG_DELTA_GROWTH];
    struct rg_message_header header = {
        .kind = RG_MESSAGE_BATCH, .version = RG_PROTOCOL_MAJOR, .count = c->count, .seq = c->seq};
    unsigned char *const records = c->batch + sizeof header;
    if (delta && chance(8)) {
        const size_t size = rg_delta_encode(delta, records, c->used - sizeof header, encoded);
        header.kind = RG_MESSAGE_DELTA;
        memcpy(records, encoded, size);
        c->used = sizeof header + size;
    }
    c->used = sizeof header + change(records, c->used - sizeof header);
    if (chance(20) == 0)
        bulk_size = chance(sizeof bulk);
    memcpy(c->batch, &header, sizeof header);
    const bool sent = send_raw(c, c->batch, c->used, bulk, bulk_size);
    c->seq += c->count;
    c->count = 0;
    c->used = sizeof header;
    return sent;
}

static void one_case(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    use_driver();
    struct client *c = chance(3) ? client_create() : client_create_with(true, NULL);
    struct rg_delta *delta = chance(2) ? rg_delta_create() : NULL;
    /* A context that nothing else here names: the worker ends it when it ends (synchronize). */
    put(c, RG_OP_cuCtxCreate_v2, 9, 0, "448", 0, 0, handle(RG_KIND_CONTEXT, 1000));
    send_batch(c);
    for (unsigned batch = 0; batch < 10; batch++) {
        size_t bulk_size = 0;
        for (unsigned i = 0, n = 1 + chance(6); i < n; i++) {
            bulk_size = put_some(c, batch == 0 && i < 3 ? i : chance(KINDS + 1));
            await_some(c);
        }
        if (!send_changed(c, delta, bulk_size) || (chance(4) == 0 && !answer_something(c)))
            break;
        drain(c);
        if (chance(10) == 0)
            atomic_store(&stub_failed, true);
        if (chance(4) == 0)
            atomic_store(&not_ready, chance(2));
    }
    atomic_store(&ending, true);
    (void)client_destroy(c);
    rg_delta_destroy(delta);
}

int main(int argc, char **argv)
{
    const unsigned long cases = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    const unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    for (unsigned long i = 0; i < cases; i++)
        one_case(seed + i);
    fprintf(stderr, "%lu cases\n", cases);
    return 0;
}
