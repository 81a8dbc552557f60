/*
 * no_context.c - a transcript of what calls answer in threads without a current context: before cuInit, after it, while
 * contexts with all kinds of objects are there but current elsewhere or nowhere, in a thread whose current context was
 * destroyed, and when the objects' context was. Each call has to do with what its line in the specification says that it
 * needs: nothing, a current context, or the context of what it names.
 */
#include "no_context.h"

#include "generated/proto/contexts.h"

#include <pthread.h>

static struct objects first, second, none;
static _Alignas(4096) unsigned char page[2][4096];
const char code[sizeof CODE] = CODE;
unsigned char bytes[SIZE];
bool apart, expecting;

/* Ends the program where a call needs more, or less, of the current context than its line says. */
static void judge(const char *call, bool has, CUresult result)
{
    const size_t length = strcspn(call, "(");
    for (size_t i = 0; i < COUNT(rg_contexts_needed); i++) {
        if (strncmp(rg_contexts_needed[i].name, call, length) != 0 || rg_contexts_needed[i].name[length])
            continue;
        const bool lacks = rg_contexts_needed[i].need == NEEDS_CURRENT ||
                           (rg_contexts_needed[i].need == NEEDS_BROUGHT && !has);
        if (lacks == (result == CUDA_ERROR_INVALID_CONTEXT))
            return;
        printf("%s: %d is not what the specification says\n", call, (int)result);
        fflush(stdout);
        _exit(1);
    }
    must(CUDA_ERROR_NOT_FOUND, call);
}

CUresult told(const char *call, bool has, CUresult result)
{
    printf("%s: %d\n", call, (int)result);
    if (expecting)
        judge(call, has, result);
    return result;
}

static void make(struct objects *o, CUdevice device)
{
    const CUDA_ARRAY3D_DESCRIPTOR texels = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    const CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    const CUmemAccessDesc access = {physical.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t large = 0;
    o->device = device;
    CHECK(cuMemAlloc_v2(&o->memory, SIZE));
    CHECK(cuMemAlloc_v2(&o->other, SIZE));
    CHECK(cuMemAlloc_v2(&o->shared, SIZE));
    CHECK(cuMemsetD8_v2(o->memory, 0, SIZE));
    if (!apart)
        CHECK(cuMemAllocManaged(&o->managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemHostAlloc(&o->host, SIZE, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemHostAlloc(&o->freed, SIZE, 0));
    o->registered = page[device];
    CHECK(cuMemHostRegister_v2(o->registered, sizeof page[0], CU_MEMHOSTREGISTER_PORTABLE));
    CHECK(cuMemGetAllocationGranularity(&large, &physical, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&o->mapped, large, 0, 0, 0));
    CHECK(cuMemCreate(&o->allocation, large, &physical, 0));
    CHECK(cuMemMap(o->mapped, large, 0, o->allocation, 0));
    CHECK(cuMemSetAccess(o->mapped, large, &access, 1));
    CHECK(cuStreamCreate(&o->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&o->spare_stream, 0));
    CHECK(cuMemAllocAsync(&o->pooled, SIZE, o->stream));
    CHECK(cuEventCreate(&o->event, 0));
    CHECK(cuEventCreate(&o->spare_event, 0));
    CHECK(cuEventCreate(&o->shared_event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(o->event, o->stream));
    CHECK(cuModuleLoadData(&o->module, code));
    CHECK(cuModuleLoadData(&o->spare_module, code));
    CHECK(cuModuleGetFunction(&o->function, o->module, "add"));
    CHECK(cuModuleGetTexRef(&o->texref, o->module, "image"));
    CHECK(cuModuleGetSurfRef(&o->surfref, o->module, "screen"));
    CHECK(cuLibraryLoadData(&o->library, code, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&o->kernel, o->library, "add"));
    CHECK(cuArray3DCreate_v2(&o->array, &texels));
    CHECK(cuArray3DCreate_v2(&o->spare_array, &texels));
    CHECK(cuMipmappedArrayCreate(&o->mipmap, &texels, 3));
    const CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = o->array};
    CHECK(cuTexObjectCreate(&o->texture, &resource, &(CUDA_TEXTURE_DESC){0}, NULL));
    CHECK(cuSurfObjectCreate(&o->surface, &resource));
    CHECK(cuLinkCreate_v2(0, NULL, NULL, &o->link));
    CHECK(cuDeviceGetDefaultMemPool(&o->pool, device));
    void *arguments[] = {&o->memory, &(unsigned){1}};
    const CUDA_KERNEL_NODE_PARAMS launch = {o->function, 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL};
    CUgraphNode node;
    CHECK(cuGraphCreate(&o->graph, 0));
    CHECK(cuGraphAddKernelNode_v2(&node, o->graph, NULL, 0, &launch));
    CHECK(cuGraphInstantiateWithFlags(&o->exec, o->graph, 0));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxGetCurrent(&o->context));
}

/* --- pointers ----------------------------------------------------------------------------------------------------- */

static void ask_pointer(const struct objects *o, const char *name, CUdeviceptr p)
{
    printf("-- %s\n", name);
    for (int i = CU_POINTER_ATTRIBUTE_CONTEXT; i <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE; i++) {
        unsigned long long value[2] = {0};
        const CUresult result = cuPointerGetAttribute(value, (CUpointer_attribute)i, p);
        printf("attribute %d: %d\n", i, (int)result);
        if (i == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && expecting && result != CUDA_ERROR_INVALID_CONTEXT)
            must(CUDA_ERROR_UNKNOWN, "CU_POINTER_ATTRIBUTE_DEVICE_POINTER");
    }
    CUcontext context = NULL;
    unsigned type = 9, managed = 9, device = 9;
    size_t size = 0;
    CUdeviceptr start = 0, here = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *back = NULL, *out[] = {&context, &type, &managed, &device, &size, &start, &here, &back};
    PLAIN(cuPointerGetAttributes(COUNT(which), which, out, p));
    printf("context %d, type %u, managed %u, device %d, %zu bytes, offset %lld, %d, %d\n",
           context ? context == o->context : -1, type, managed, (int)device, size,
           start ? (long long)(p - start) : -1, here == p, back == (void *)p);
    if (expecting)
        must(type == (p == (CUdeviceptr)bytes ? 0
                      : p == (CUdeviceptr)o->host || p == (CUdeviceptr)o->registered
                          ? (unsigned)CU_MEMORYTYPE_HOST
                          : (unsigned)CU_MEMORYTYPE_DEVICE)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_UNKNOWN,
             "memory type");
}

static void ask_pointers(struct objects *o)
{
    unsigned flags = 0, on = 1;
    CUdeviceptr found = 0;
    size_t size = 0;
    ask_pointer(o, "device memory", o->memory);
    ask_pointer(o, "in it", o->memory + 5);
    ask_pointer(o, "page-locked memory", (CUdeviceptr)o->host);
    ask_pointer(o, "registered memory", (CUdeviceptr)o->registered);
    if (!apart)
        ask_pointer(o, "managed memory", o->managed);
    ask_pointer(o, "memory of a pool", o->pooled);
    ask_pointer(o, "mapped memory", o->mapped);
    ask_pointer(o, "other memory", (CUdeviceptr)bytes);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, o->memory));
    OK(cuMemHostGetFlags(&flags, o->host));
    OK(cuMemHostGetFlags(&flags, o->registered));
    PLAIN(cuMemHostGetFlags(&flags, bytes));
    TRY(cuMemHostGetDevicePointer_v2(&found, o->host, 0));
    TRY(cuMemGetAddressRange_v2(&found, &size, o->memory));
}

static void *ask(void *argument)
{
    struct objects *o = argument;
    ask_pointers(o);
    ask_context_and_devices(o);
    ask_for_new(o);
    ask_stream(o);
    ask_default_streams(o);
    ask_objects(o);
    if (!apart)
        ask_managed(o);
    ask_graphs(o);
    return NULL;
}

/* What needs no object that is there. */
static void *ask_without_objects(void *argument)
{
    (void)argument;
    ask_pointer(&none, "other memory", (CUdeviceptr)bytes);
    PLAIN(cuMemHostGetFlags(&(unsigned){0}, bytes));
    PLAIN(cuMemFree_v2(0));
    PLAIN(cuMemFree_v2((CUdeviceptr)bytes));
    PLAIN(cuMemFreeHost(bytes));
    PLAIN(cuMemHostUnregister(bytes));
    PLAIN(cuStreamSynchronize(NULL));
    PLAIN(cuMemsetD8Async((CUdeviceptr)bytes, 0, 1, NULL));
    ask_context_and_devices(&none);
    ask_for_new(&none);
    ask_graphs(&none);
    return NULL;
}

static void *end_all(void *argument)
{
    end(argument);
    return NULL;
}

/* What is said of objects and memory whose context has ended; only such whose handles stay valid. */
static void *ask_the_dead(void *argument)
{
    struct objects *o = argument;
    CUcontext context;
    unsigned flags;
    ask_pointer(o, "device memory", o->memory);
    TRY(cuStreamQuery(o->stream));
    TRY(cuStreamSynchronize(o->stream));
    TRY(cuStreamGetCtx(o->stream, &context));
    TRY(cuMemsetD8Async(o->memory, 0, 1, o->stream));
    TRY(cuEventQuery(o->event));
    TRY(cuEventSynchronize(o->event));
    TRY(cuCtxGetApiVersion(o->context, &flags));
    TRY(cuMemHostGetFlags(&flags, o->host));
    TRY(cuMemFreeHost(o->host));
    TRY(cuMemFree_v2(o->memory));
    TRY(cuEventDestroy_v2(o->event));
    TRY(cuStreamDestroy_v2(o->stream));
    return NULL;
}

/* The thread's own context is destroyed by another thread. */
static pthread_barrier_t turn;
static CUcontext doomed;

static void *ask_in_a_destroyed_one(void *argument)
{
    struct objects *o = argument;
    CHECK(cuCtxSetCurrent(doomed));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    ask_pointers(o);
    ask_stream(o);
    ask_objects(o);
    return NULL;
}

static void in_a_thread(const char *what, void *(*function)(void *), struct objects *o)
{
    pthread_t thread;
    printf("--- %s\n", what);
    if (pthread_create(&thread, NULL, function, o) != 0)
        must(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    CUcontext primary, explicit_one, popped;
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    in_a_thread("before cuInit", ask_without_objects, NULL);
    CHECK(cuInit(0));
    in_a_thread("without any context", ask_without_objects, NULL);
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    in_a_thread("while a context is current nowhere", ask_without_objects, NULL);
    CHECK(cuCtxSetCurrent(primary));
    make(&first, 0);
    CHECK(cuCtxCreate_v2(&explicit_one, 0, 1));
    make(&second, 1);
    CHECK(cuCtxPopCurrent_v2(&popped));
    expecting = true;
    in_a_thread("objects of a context that is current elsewhere", ask, &first);
    in_a_thread("objects of a context that is current nowhere, of another device", ask, &second);
    expecting = false;

    pthread_t thread;
    pthread_barrier_init(&turn, NULL, 2);
    CHECK(cuCtxCreate_v2(&doomed, 0, 1));
    CHECK(cuCtxPopCurrent_v2(&popped));
    printf("--- in a thread whose context is destroyed\n");
    if (pthread_create(&thread, NULL, ask_in_a_destroyed_one, &first) != 0)
        return 1;
    pthread_barrier_wait(&turn);
    CHECK(cuCtxDestroy_v2(doomed));
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);

    expecting = true;
    in_a_thread("the ends of the objects", end_all, &first);
    in_a_thread("the ends of those of the other device", end_all, &second);
    expecting = false;
    CHECK(cuCtxDestroy_v2(explicit_one));
    in_a_thread("objects of a context that has been destroyed", ask_the_dead, &second);
    while (cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS) /* a library's managed variables hold it too */
        ;
    in_a_thread("objects of a context that nobody holds", ask_the_dead, &first);
    printf("done\n");
    return 0;
}
