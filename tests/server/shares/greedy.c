/*
 * greedy.c - a program that tries to have more of a GPU's memory than its session was given, by every way of getting some.
 *
 * usage: greedy LIMIT WAY…; LIMIT in bytes. By each way it takes what it can get in pieces, counts it, and gives it
 * back; what it had at once must never exceed LIMIT, whatever it has done before. "pairs" takes half by each of two ways, "half WAY"
 * half by the plainest and the rest by that one; "import" and
 * "opened" take what another session gives away; "children" is what several sessions of the program have together; "staging" and
 * "collectives" move data between two devices that are full, and look whether there is more afterwards. Ends with status 0 if nothing was
 * gained, and says what it had. `hold BYTES` takes so much and waits for the end of its input.
 */
#include "tests/fidelity/nccl/nccl.h"

#include <cuda.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE (8ull << 20)
enum { PIECES = 4096 };

static CUdevice device;
static CUcontext context;
static unsigned long long limit;
static bool coarse; /* what is charged is in large steps: only that it is not too little is checked */

static void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    exit(2);
}
#define CHECK(call) must(call, #call)

/* One more piece; false: there is no more. */
struct way {
    const char *name;
    bool (*take)(unsigned i);
    void (*give_back)(unsigned n);
    unsigned long long bytes; /* of a piece */
};

static CUdeviceptr pieces[PIECES];

static bool refused(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
        printf("refused with %d, not with CUDA_ERROR_OUT_OF_MEMORY\n", (int)result);
        exit(2);
    }
    return result != CUDA_SUCCESS;
}

static bool take_linear(unsigned i)
{
    return !refused(cuMemAlloc_v2(&pieces[i], PIECE));
}

static void free_linear(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuMemFree_v2(pieces[i]));
}

static bool take_pitched(unsigned i)
{
    size_t pitch;
    return !refused(cuMemAllocPitch_v2(&pieces[i], &pitch, 8192, PIECE / 8192, 4));
}

static bool take_managed(unsigned i)
{
    return !refused(cuMemAllocManaged(&pieces[i], PIECE, CU_MEM_ATTACH_GLOBAL));
}

static bool take_ordered(unsigned i)
{
    return !refused(cuMemAllocAsync(&pieces[i], PIECE, NULL));
}

static void free_ordered(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuMemFreeAsync(pieces[i], NULL));
    CHECK(cuCtxSynchronize());
}

/* Pools that keep all that they ever had: what is freed in one is still the session's when the next is asked. */
static CUmemoryPool own_pools[PIECES];

static bool take_from_own_pool(unsigned i)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    cuuint64_t all = UINT64_MAX;
    CHECK(cuMemPoolCreate(&own_pools[i], &properties));
    CHECK(cuMemPoolSetAttribute(own_pools[i], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    if (!refused(cuMemAllocFromPoolAsync(&pieces[i], PIECE, own_pools[i], NULL)))
        return true;
    CHECK(cuMemPoolDestroy(own_pools[i]));
    return false;
}

static void free_own_pools(unsigned n)
{
    free_ordered(n);
    for (unsigned i = 0; i < n; i++)
        CHECK(cuMemPoolDestroy(own_pools[i]));
}

static CUarray arrays[PIECES];

static bool take_array(unsigned i)
{
    const CUDA_ARRAY_DESCRIPTOR wanted = {2048, PIECE / 8192, CU_AD_FORMAT_FLOAT, 1};
    return !refused(cuArrayCreate_v2(&arrays[i], &wanted));
}

static bool take_volume(unsigned i)
{
    const CUDA_ARRAY3D_DESCRIPTOR wanted = {128, 128, PIECE / (128 * 128 * 16), CU_AD_FORMAT_FLOAT, 4, 0};
    return !refused(cuArray3DCreate_v2(&arrays[i], &wanted));
}

static void free_arrays(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuArrayDestroy(arrays[i]));
}

static CUmipmappedArray mipmaps[PIECES];

static bool take_mipmap(unsigned i)
{
    const CUDA_ARRAY3D_DESCRIPTOR wanted = {2048, PIECE / 8192, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    return !refused(cuMipmappedArrayCreate(&mipmaps[i], &wanted, 4));
}

static void free_mipmaps(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuMipmappedArrayDestroy(mipmaps[i]));
}

static const CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                             .requestedHandleTypes =
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
static CUmemGenericAllocationHandle handles[PIECES];

static bool take_physical(unsigned i)
{
    return !refused(cuMemCreate(&handles[i], PIECE, &physical, 0));
}

static void free_physical(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuMemRelease(handles[i]));
}

/* The handle is released, the mapping stays, and with it the memory. */
static bool take_mapped(unsigned i)
{
    if (!take_physical(i))
        return false;
    CHECK(cuMemAddressReserve(&pieces[i], PIECE, 0, 0, 0));
    CHECK(cuMemMap(pieces[i], PIECE, 0, handles[i], 0));
    CHECK(cuMemRelease(handles[i]));
    return true;
}

static void free_mapped(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuMemUnmap(pieces[i], PIECE));
        CHECK(cuMemAddressFree(pieces[i], PIECE));
    }
}

/* Memory of graphs: nodes that allocate and are not freed in the graph. */
static CUgraph graphs[PIECES];
static CUgraphExec executables[PIECES];

static bool take_by_graph(unsigned i)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
                                             .bytesize = PIECE};
    CUgraphNode node;
    CHECK(cuGraphCreate(&graphs[i], 0));
    bool had = cuGraphAddMemAllocNode(&node, graphs[i], NULL, 0, &parameters) == CUDA_SUCCESS;
    if (had) {
        const CUresult made = cuGraphInstantiateWithFlags(&executables[i], graphs[i], 0);
        had = !refused(made);
        if (had && refused(cuGraphLaunch(executables[i], NULL))) {
            CHECK(cuGraphExecDestroy(executables[i]));
            had = false;
        }
    }
    if (had && cuCtxSynchronize() != CUDA_SUCCESS)
        had = false;
    pieces[i] = parameters.dptr;
    if (!had)
        CHECK(cuGraphDestroy(graphs[i]));
    return had;
}

static void free_graphs(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuMemFreeAsync(pieces[i], NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuGraphExecDestroy(executables[i]));
        CHECK(cuGraphDestroy(graphs[i]));
    }
    (void)cuDeviceGraphMemTrim(device);
}

/*
 * Code with a variable of a piece's size. From the second round on it is known that each loads, which the client then need not wait
 * for: the call that asks for too much must be the one that is refused all the same.
 */
static const char *image_of(unsigned i)
{
    static char text[512];
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 memory%u[%llu];\n"
             ".visible .entry kernel()\n{\n    ret;\n}\n",
             i, PIECE);
    return text;
}

static CUmodule modules[PIECES];

static bool take_module(unsigned i)
{
    return !refused(cuModuleLoadData(&modules[i], image_of(i)));
}

static void free_modules(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuModuleUnload(modules[i]));
}

/* The same, which takes its memory where a kernel is first asked for in a context. */
static CUlibrary libraries[PIECES];

static bool take_library(unsigned i)
{
    CUkernel kernel;
    CUfunction function;
    if (refused(cuLibraryLoadData(&libraries[i], image_of(i), NULL, NULL, 0, NULL, NULL, 0)))
        return false;
    CHECK(cuLibraryGetKernel(&kernel, libraries[i], "kernel"));
    if (!refused(cuKernelGetFunction(&function, kernel)))
        return true;
    CHECK(cuLibraryUnload(libraries[i]));
    return false;
}

static void free_libraries(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(cuLibraryUnload(libraries[i]));
}

static const struct way ways[] = {
    {"linear", take_linear, free_linear, PIECE},
    {"pitched", take_pitched, free_linear, PIECE},
    {"managed", take_managed, free_linear, PIECE},
    {"ordered", take_ordered, free_ordered, PIECE},
    {"pools", take_from_own_pool, free_own_pools, PIECE},
    {"arrays", take_array, free_arrays, PIECE},
    {"volumes", take_volume, free_arrays, PIECE},
    {"mipmaps", take_mipmap, free_mipmaps, PIECE * 85 / 64},
    {"physical", take_physical, free_physical, PIECE},
    {"mapped", take_mapped, free_mapped, PIECE},
    {"graphs", take_by_graph, free_graphs, PIECE},
    {"modules", take_module, free_modules, PIECE},
    {"libraries", take_library, free_libraries, PIECE},
};

static unsigned long long bytes_of(const struct way *way, unsigned n)
{
    return n * way->bytes;
}

static const struct way *way_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    printf("no way %s\n", name);
    exit(2);
}

static unsigned take_all(const struct way *way, unsigned most)
{
    unsigned n = 0;
    while (n < most && n < PIECES && way->take(n))
        n++;
    return n;
}

static bool check(const char *name, unsigned long long had)
{
    printf("%s: %llu bytes\n", name, had);
    return had <= limit && (coarse || had + 2 * PIECE + (32 << 20) > limit);
}

/* Half by each, in all pairs. */
static bool try_pairs(void)
{
    bool good = true;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct way *first = &ways[i], *second = &ways[(i + 1) % (sizeof ways / sizeof *ways)];
        static CUdeviceptr kept[PIECES];
        if (first->give_back == second->give_back || first->take == take_mapped ||
            second->take == take_mapped)
            continue; /* they count in the same table */
        const unsigned n = take_all(first, (unsigned)(limit / PIECE / 2));
        memcpy(kept, pieces, sizeof kept);
        const unsigned m = take_all(second, PIECES);
        printf("%s and ", first->name);
        good &= check(second->name, bytes_of(first, n) + bytes_of(second, m));
        second->give_back(m);
        memcpy(pieces, kept, sizeof kept);
        first->give_back(n);
    }
    return good;
}

/* --- memory of another process, which then frees it and takes as much again ---------------------------------- */

static void send_handle(int to, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(to, &message, 0) != 1)
        exit(2);
}

static int receive_handle(int from)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    int fd = -1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void begin(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

/* The other session gives away what it has and frees it, again and again. */
static void feed(int socket)
{
    begin();
    for (;;) {
        CUmemGenericAllocationHandle handle;
        int fd;
        char byte;
        CHECK(cuMemCreate(&handle, PIECE, &physical, 0));
        CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        send_handle(socket, fd);
        close(fd);
        if (read(socket, &byte, 1) != 1)
            exit(0);
        CHECK(cuMemRelease(handle));
    }
}

/* A process that feeds this one by a socket, until that is closed. */
static pid_t start_feeder(void (*feed_by)(int socket), int *socket)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        exit(2);
    const pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        feed_by(sockets[1]);
    }
    close(sockets[1]);
    *socket = sockets[0];
    return child;
}

static bool try_import(void)
{
    int socket;
    const pid_t child = start_feeder(feed, &socket);
    begin();
    unsigned n = 0;
    bool more = true;
    while (more && n < 2 * limit / PIECE) {
        const int fd = receive_handle(socket);
        if (fd < 0)
            exit(2);
        more = !refused(cuMemImportFromShareableHandle(&handles[n], (void *)(intptr_t)fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(fd);
        n += more;
        if (write(socket, "", 1) != 1)
            exit(2);
    }
    const bool good = check("import", n * PIECE);
    free_physical(n);
    const unsigned again = take_all(way_by_name("linear"), PIECES);
    const bool back = check("linear after import", again * PIECE);
    free_linear(again);
    close(socket);
    waitpid(child, NULL, 0);
    return good && back;
}

/* The same by cuIpcOpenMemHandle. */
static void feed_handles(int socket)
{
    CUdeviceptr memory;
    CUipcMemHandle handle;
    char byte;
    begin();
    for (;;) {
        CHECK(cuMemAlloc_v2(&memory, PIECE));
        CHECK(cuIpcGetMemHandle(&handle, memory));
        if (write(socket, &handle, sizeof handle) != sizeof handle || read(socket, &byte, 1) != 1)
            exit(0);
        CHECK(cuMemFree_v2(memory));
    }
}

static bool try_opened(void)
{
    int socket;
    const pid_t child = start_feeder(feed_handles, &socket);
    begin();
    unsigned n = 0;
    for (bool more = true; more && n < 2 * limit / PIECE;) {
        CUipcMemHandle handle;
        if (read(socket, &handle, sizeof handle) != sizeof handle)
            exit(2);
        more = !refused(cuIpcOpenMemHandle_v2(&pieces[n], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        n += more;
        if (write(socket, "", 1) != 1)
            exit(2);
    }
    const bool good = check("opened", n * PIECE);
    for (unsigned i = 0; i < n; i++)
        CHECK(cuIpcCloseMemHandle(pieces[i]));
    close(socket);
    waitpid(child, NULL, 0);
    return good;
}

/* --- several sessions ---------------------------------------------------------------------------------------- */

enum { CHILDREN = 4 };

/* A session of its own, if there is one for it; says how much it has, and keeps that until it is told to end. */
static void take_in_child(int out, int in)
{
    unsigned long long had = 0;
    char byte;
    if (cuInit(0) == CUDA_SUCCESS) {
        begin();
        had = take_all(way_by_name("linear"), PIECES) * PIECE;
    }
    if (write(out, &had, sizeof had) != sizeof had || read(in, &byte, 1) < 0)
        exit(2);
    exit(0);
}

static bool try_children(void)
{
    int there[2], back[2];
    unsigned long long all = 0, had;
    if (pipe(there) != 0 || pipe(back) != 0)
        exit(2);
    for (int i = 0; i < CHILDREN; i++)
        if (fork() == 0) {
            close(back[1]);
            take_in_child(there[1], back[0]);
        }
    for (int i = 0; i < CHILDREN; i++, all += had)
        if (read(there[0], &had, sizeof had) != sizeof had)
            exit(2);
    close(back[1]);
    while (wait(NULL) > 0)
        ;
    return check("children", all);
}

/* --- what moves data between devices that are full ----------------------------------------------------------- */

static CUcontext contexts[2];
static CUdeviceptr of_device[2][PIECES];
static unsigned n_of_device[2];

static void fill_two(void)
{
    CHECK(cuInit(0));
    for (int d = 0; d < 2; d++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[d], d));
        CHECK(cuCtxSetCurrent(contexts[d]));
        n_of_device[d] = take_all(way_by_name("linear"), PIECES);
        memcpy(of_device[d], pieces, n_of_device[d] * sizeof *pieces);
        CHECK(cuMemsetD8_v2(of_device[d][0], (unsigned char)(d + 1), PIECE));
        CHECK(cuCtxSynchronize());
    }
}

/* Nobody has more than before. */
static bool still_full(const char *name)
{
    bool good = true;
    for (int d = 0; d < 2; d++) {
        CHECK(cuCtxSetCurrent(contexts[d]));
        good &= check(name, (n_of_device[d] + take_all(way_by_name("linear"), PIECES)) * PIECE);
    }
    return good;
}

static bool try_staging(void)
{
    unsigned char byte = 0;
    fill_two();
    CHECK(cuMemcpyPeer(of_device[1][0], contexts[1], of_device[0][0], contexts[0], PIECE));
    CHECK(cuCtxSetCurrent(contexts[1]));
    CHECK(cuMemcpyDtoH_v2(&byte, of_device[1][0] + PIECE - 1, 1));
    return still_full("staging") && byte == 1;
}

static bool try_collectives(void)
{
    ncclComm_t comms[2];
    unsigned char byte = 0;
    bool good = true;
    load_nccl();
    fill_two();
    NCCL(ncclCommInitAll(comms, 2, NULL));
    NCCL(ncclGroupStart());
    for (int d = 0; d < 2; d++) {
        void *memory = (void *)(uintptr_t)of_device[d][0];
        NCCL(ncclAllReduce(memory, memory, PIECE, ncclUint8, ncclSum, comms[d], NULL));
    }
    NCCL(ncclGroupEnd());
    for (int d = 0; d < 2; d++) {
        CHECK(cuCtxSetCurrent(contexts[d]));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemcpyDtoH_v2(&byte, of_device[d][0] + PIECE - 1, 1));
        good = good && byte == 1 + 2;
    }
    return still_full("collectives") && good;
}

static int hold(unsigned long long bytes)
{
    CUdeviceptr memory;
    char byte;
    begin();
    CHECK(cuMemAlloc_v2(&memory, bytes));
    printf("held\n");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        ;
    return 0;
}

static bool try_half(const char *name)
{
    const struct way *way = way_by_name(name);
    const unsigned n = take_all(way_by_name("linear"), (unsigned)(limit / PIECE / 2));
    printf("half and ");
    return check(name, n * PIECE + bytes_of(way, take_all(way, PIECES)));
}

int main(int argc, char **argv)
{
    bool good = argc > 2;
    if (argc == 3 && strcmp(argv[1], "hold") == 0)
        return hold(strtoull(argv[2], NULL, 10));
    limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    coarse = getenv("GREEDY_COARSE") != NULL;
    static const struct {
        const char *name;
        bool (*try)(void);
    } alone[] = {{"import", try_import},
                 {"opened", try_opened},
                 {"children", try_children},
                 {"staging", try_staging},
                 {"collectives", try_collectives}};
    for (size_t i = 0; argc > 2 && i < sizeof alone / sizeof *alone; i++)
        if (strcmp(argv[2], alone[i].name) == 0)
            return alone[i].try() ? 0 : 1;
    begin();
    if (argc == 4 && strcmp(argv[2], "half") == 0)
        return try_half(argv[3]) ? 0 : 1;
    for (int round = 0; round < 2; round++)
        for (int i = 2; i < argc; i++) {
            if (strcmp(argv[i], "pairs") == 0) {
                good &= try_pairs();
                continue;
            }
            const struct way *way = way_by_name(argv[i]);
            const unsigned n = take_all(way, PIECES);
            good &= check(way->name, bytes_of(way, n));
            way->give_back(n);
        }
    return good ? 0 : 1;
}
