/*
 * main.c - program lib/remote-gpu/limits-load: keeps a GPU busy with one kind of work, for remote-gpu verify-limits.
 *
 *   limits-load FILE SESSION WORK NANOSECONDS
 *
 * FILE is the board (board.h). WORK is what it submits: `kernels` that run for so long each, one after another in a stream;
 * `streams`: the same in four streams, each after the last; `graphs` of ten such kernels; `cooperative` launches; `copies` and
 * `fills` of a megabyte for each 100000 ns, which go through more memory than caches hold: a unit is to cost the same whoever had the
 * device before. `memory`: nothing; it takes all the device memory that it can get, and counts that. It is an ordinary CUDA program and
 * knows nothing of remote-gpu: work is submitted some turns ahead, and counted when an event behind it has come.
 */
#include "client/cli/verify/board.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Units between two events, as many as fill so much time; and how many of these are under way. */
#define CHUNK_NS 4000000u
enum {
    CHUNKS = 12,
    FEW_CHUNKS = 4,
    STREAMS = 4,
    GRAPH_NODES = 10,
    COPY_BYTES = 1 << 20,
    COPY_NS = 100000,
    AREA_BYTES = 512 << 20
};

static const char ptx[] = ".version 6.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 ns)\n{\n"
                          ".reg .u64 %t<5>;\n.reg .pred %p;\n"
                          "ld.param.u64 %t1, [ns];\nmov.u64 %t2, %globaltimer;\n"
                          "again: mov.u64 %t3, %globaltimer;\nsub.u64 %t4, %t3, %t2;\n"
                          "setp.lt.u64 %p, %t4, %t1;\n@%p bra again;\nret;\n}\n";

#define FUNCTIONS(X)                                                                                         \
    X(cuInit)                                                                                                \
    X(cuDeviceGet)                                                                                           \
    X(cuDevicePrimaryCtxRetain)                                                                              \
    X(cuCtxSetCurrent)                                                                                       \
    X(cuModuleLoadData)                                                                                      \
    X(cuModuleGetFunction)                                                                                   \
    X(cuStreamCreate)                                                                                        \
    X(cuStreamWaitEvent)                                                                                     \
    X(cuEventCreate)                                                                                         \
    X(cuEventRecord)                                                                                         \
    X(cuEventSynchronize)                                                                                    \
    X(cuLaunchKernel)                                                                                        \
    X(cuLaunchCooperativeKernel)                                                                             \
    X(cuMemAlloc_v2)                                                                                         \
    X(cuMemGetInfo_v2)                                                                                       \
    X(cuMemcpyDtoDAsync_v2)                                                                                  \
    X(cuMemsetD8Async)                                                                                       \
    X(cuStreamBeginCapture_v2)                                                                               \
    X(cuStreamEndCapture)                                                                                    \
    X(cuGraphInstantiateWithFlags)                                                                           \
    X(cuGraphLaunch)

/* Found by name: this program is not linked with a driver. */
static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
} cuda;

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "limits-load: %s: error %d\n", what, (int)result);
    exit(1);
}
#define CHECK(call) check(cuda.call, #call)

static void find_functions(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    bool good = library != NULL;
#define FIND(name)                                                                                           \
    void *name##_found = library ? dlsym(library, #name) : NULL;                                             \
    good &= name##_found != NULL;                                                                            \
    memcpy(&cuda.name, &name##_found, sizeof name##_found);
    FUNCTIONS(FIND)
    if (!good) {
        fprintf(stderr, "limits-load: no CUDA driver: %s\n", dlerror());
        exit(1);
    }
}

struct load {
    CUfunction spin;
    CUstream streams[STREAMS];
    CUevent order, done[CHUNKS];
    CUgraphExec graph;
    CUdeviceptr memory;
    uint64_t ns;
    size_t bytes, area, at; /* of a copy or fill; of all of `memory`; where the next one is */
    unsigned next_stream;
    void (*submit)(struct load *load); /* a unit */
};

static void launch(struct load *load, CUstream stream)
{
    void *params[] = {&load->ns};
    CHECK(cuLaunchKernel(load->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void submit_kernel(struct load *load)
{
    launch(load, load->streams[0]);
}

static void submit_cooperative(struct load *load)
{
    void *params[] = {&load->ns};
    CHECK(cuLaunchCooperativeKernel(load->spin, 1, 1, 1, 1, 1, 1, 0, load->streams[0], params));
}

/* Each stream waits for the one before: the work is one after another all the same. */
static void submit_to_streams(struct load *load)
{
    CUstream stream = load->streams[load->next_stream];
    load->next_stream = (load->next_stream + 1) % STREAMS;
    CHECK(cuStreamWaitEvent(stream, load->order, 0));
    launch(load, stream);
    CHECK(cuEventRecord(load->order, stream));
}

static void submit_graph(struct load *load)
{
    CHECK(cuGraphLaunch(load->graph, load->streams[0]));
}

static size_t next_place(struct load *load)
{
    const size_t at = load->at;
    load->at = (at + load->bytes) % load->area;
    return at;
}

/* From what was written half a turn ago. */
static void submit_copy(struct load *load)
{
    const size_t from = next_place(load), to = (from + load->area / 2) % load->area;
    CHECK(cuMemcpyDtoDAsync_v2(load->memory + to, load->memory + from, load->bytes, load->streams[0]));
}

static void submit_fill(struct load *load)
{
    CHECK(cuMemsetD8Async(load->memory + next_place(load), 7, load->bytes, load->streams[0]));
}

static void make_graph(struct load *load)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture_v2(load->streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < GRAPH_NODES; i++)
        launch(load, load->streams[0]);
    CHECK(cuStreamEndCapture(load->streams[0], &graph));
    CHECK(cuGraphInstantiateWithFlags(&load->graph, graph, 0));
}

static void choose(struct load *load, const char *work)
{
    static const struct {
        const char *name;
        void (*submit)(struct load *load);
    } kinds[] = {{"kernels", submit_kernel},     {"cooperative", submit_cooperative},
                 {"streams", submit_to_streams}, {"graphs", submit_graph},
                 {"copies", submit_copy},        {"fills", submit_fill}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, work) == 0)
            load->submit = kinds[i].submit;
    if (!load->submit) {
        fprintf(stderr, "limits-load: no such work: %s\n", work);
        exit(2);
    }
}

/*
 * What is copied and filled, in a circle; a session that may have less memory has a smaller one. Nothing is written before: that would
 * be charged, and owed when the measurement begins.
 */
static void take_area(struct load *load)
{
    load->bytes = (size_t)COPY_BYTES * (load->ns / COPY_NS ? load->ns / COPY_NS : 1);
    size_t pairs = AREA_BYTES / (2 * load->bytes) + 1;
    while (cuda.cuMemAlloc_v2(&load->memory, 2 * pairs * load->bytes) != CUDA_SUCCESS) {
        if (pairs == 1)
            CHECK(cuMemAlloc_v2(&load->memory, 2 * load->bytes));
        pairs /= 2;
    }
    load->area = 2 * pairs * load->bytes;
}

static void prepare(struct load *load, const char *work)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    choose(load, work);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&load->spin, module, "spin"));
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&load->streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < CHUNKS; i++)
        CHECK(cuEventCreate(&load->done[i], CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&load->order, CU_EVENT_DISABLE_TIMING));
    if (load->submit == submit_copy || load->submit == submit_fill)
        take_area(load);
    make_graph(load);
    /* What is slow once is not measured. */
    load->submit(load);
    CHECK(cuEventRecord(load->done[0], load->streams[load->next_stream ? load->next_stream - 1 : 0]));
    CHECK(cuEventSynchronize(load->done[0]));
}

/* Ever smaller pieces, and what is in use before the first; bytes. */
static uint64_t take_memory(void)
{
    enum { MOST = 16 << 20, LEAST = 4096 };
    size_t available, total;
    CUdevice device;
    CUcontext context;
    CUdeviceptr piece;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo_v2(&available, &total));
    uint64_t taken = total - available;
    for (size_t size = MOST; size >= LEAST;) {
        const CUresult result = cuda.cuMemAlloc_v2(&piece, size);
        if (result == CUDA_SUCCESS)
            taken += size;
        else if (result == CUDA_ERROR_OUT_OF_MEMORY)
            size /= 2;
        else
            check(result, "cuMemAlloc");
    }
    return taken;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run(struct load *load, struct rg_verify_board *board, unsigned session)
{
    const uint64_t unit_ns = load->submit == submit_graph ? load->ns * GRAPH_NODES : load->ns;
    const uint64_t per_chunk = unit_ns < CHUNK_NS ? CHUNK_NS / unit_ns : 1;
    const unsigned ahead = unit_ns < 2 * CHUNK_NS ? CHUNKS : FEW_CHUNKS;
    CUstream last = load->streams[0];
    atomic_store(&board->sessions[session].at_once, per_chunk);
    atomic_store(&board->sessions[session].begun_ns, now_ns());
    for (uint64_t chunk = 0; !atomic_load(&board->stop); chunk++) {
        if (chunk >= ahead) {
            CHECK(cuEventSynchronize(load->done[chunk % ahead]));
            atomic_store(&board->counted_ns[session][(chunk - ahead) % RG_VERIFY_TIMES], now_ns());
            atomic_fetch_add(&board->sessions[session].units, per_chunk);
        }
        for (uint64_t i = 0; i < per_chunk; i++) {
            last = load->submit == submit_to_streams ? load->streams[load->next_stream] : load->streams[0];
            load->submit(load);
        }
        CHECK(cuEventRecord(load->done[chunk % ahead], last));
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "limits-load is a part of remote-gpu verify-limits\n");
        return 2;
    }
    const unsigned session = (unsigned)strtoul(argv[2], NULL, 10);
    struct load load = {.ns = strtoull(argv[4], NULL, 10)};
    const int file = open(argv[1], O_RDWR | O_CLOEXEC);
    struct rg_verify_board *board =
        file < 0 ? MAP_FAILED : mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (board == MAP_FAILED || session >= RG_VERIFY_SESSIONS || load.ns == 0) {
        fprintf(stderr, "limits-load: no board at %s\n", argv[1]);
        return 2;
    }
    find_functions();
    const bool memory = strcmp(argv[3], "memory") == 0;
    if (memory)
        atomic_store(&board->sessions[session].units, take_memory());
    else
        prepare(&load, argv[3]);
    atomic_store(&board->sessions[session].state, RG_VERIFY_READY);
    while (!atomic_load(&board->go) && !atomic_load(&board->stop))
        (void)usleep(200);
    while (memory && !atomic_load(&board->stop))
        (void)usleep(1000);
    run(&load, board, session);
    _exit(0); /* what is still under way goes with the session */
}
