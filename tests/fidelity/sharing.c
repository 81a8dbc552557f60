/*
 * sharing.c - a transcript of two processes that share memory, events, physical memory and a pool, in right and wrong use.
 *
 * The first process starts the second (itself, with an argument) before it touches the driver; they talk over a pair of
 * sockets, which carries descriptors too. Only the first prints: the second sends its lines over.
 */
#include <cuda.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK (2u << 20)

static int peer; /* the other process */
static bool second, wrong;
static char lines[16384]; /* of the second: what it has to say */

static void say(const char *format, ...)
{
    va_list arguments;
    const size_t used = strlen(lines);
    va_start(arguments, format);
    if (second)
        vsnprintf(lines + used, sizeof lines - used, format, arguments);
    else
        vprintf(format, arguments);
    va_end(arguments);
}
#define TRY(call) say("%s%s: %d\n", second ? "    " : "", #call, (int)(call))

/* Prints words of memory, which must be the expected ones. */
static void show(const char *what, CUdeviceptr from, int n, const unsigned *expected)
{
    unsigned data[8] = {0};
    CUresult status = cuMemcpyDtoH_v2(data, from, (size_t)n * 4);
    say("%s%s (%d):", second ? "    " : "", what, (int)status);
    for (int i = 0; i < n; i++)
        say(" %u", data[i]);
    say("\n");
    if (status != CUDA_SUCCESS || memcmp(data, expected, (size_t)n * 4) != 0)
        wrong = true;
}

static void put(const void *data, size_t size)
{
    if (send(peer, data, size, MSG_NOSIGNAL) != (ssize_t)size)
        exit(3);
}

static void get(void *data, size_t size)
{
    if (recv(peer, data, size, MSG_WAITALL) != (ssize_t)size)
        exit(4);
}

static void put_descriptor(int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(peer, &message, MSG_NOSIGNAL) != 1)
        exit(5);
}

static int get_descriptor(void)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(peer, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        exit(6);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* The second process has done its part: its lines. */
static void report(void)
{
    size_t size = strlen(lines);
    put(&size, sizeof size);
    put(lines, size);
    lines[0] = '\0';
}

static void print_report(void)
{
    size_t size = 0;
    get(&size, sizeof size);
    get(lines, size);
    lines[size] = '\0';
    printf("%s", lines);
    fflush(stdout);
}

static CUcontext c;
static CUstream s;

/* --- memory ------------------------------------------------------------------------------------------------- */

static void memory_first(void)
{
    CUdeviceptr p = 0, q = 0;
    CUipcMemHandle handle, nonsense, freed;
    memset(&nonsense, 1, sizeof nonsense);
    TRY(cuMemAlloc_v2(&p, 400));
    TRY(cuMemAlloc_v2(&q, 64));
    TRY(cuMemsetD32_v2(p, 7, 100));
    TRY(cuIpcGetMemHandle(NULL, p));
    TRY(cuIpcGetMemHandle(&handle, 0));
    TRY(cuIpcGetMemHandle(&handle, 4096));
    TRY(cuIpcGetMemHandle(&freed, q));
    TRY(cuMemFree_v2(q));
    TRY(cuIpcGetMemHandle(&handle, q));
    TRY(cuIpcGetMemHandle(&handle, p));
    show("after export", p, 4, (const unsigned[]){7, 7, 7, 7});
    TRY(cuIpcOpenMemHandle_v2(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)); /* one's own */
    TRY(cuIpcCloseMemHandle(p));
    put(&handle, sizeof handle);
    put(&nonsense, sizeof nonsense);
    put(&freed, sizeof freed);
    print_report();
    show("changed by the other", p, 4, (const unsigned[]){7, 9, 9, 9});
    TRY(cuMemFree_v2(p));
}

static void memory_second(void)
{
    CUdeviceptr p = 0, again = 0, none = 0;
    CUipcMemHandle handle, nonsense, freed;
    get(&handle, sizeof handle);
    get(&nonsense, sizeof nonsense);
    get(&freed, sizeof freed);
    TRY(cuIpcOpenMemHandle_v2(NULL, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    TRY(cuIpcOpenMemHandle_v2(&none, handle, 0));
    TRY(cuIpcOpenMemHandle_v2(&none, nonsense, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    TRY(cuIpcOpenMemHandle_v2(&none, freed, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    TRY(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    TRY(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    say("    the same address: %d\n", p == again);
    show("opened", p, 4, (const unsigned[]){7, 7, 7, 7});
    size_t size = 0;
    CUdeviceptr base = 0;
    TRY(cuMemGetAddressRange_v2(&base, &size, p + 40));
    say("    %d %zu\n", base == p, size);
    TRY(cuMemsetD32_v2(p + 4, 9, 2));
    TRY(cuMemcpyDtoD_v2(p + 12, p + 4, 4));
    TRY(cuMemsetD32_v2(p + 396, 1, 2)); /* past its end */
    TRY(cuMemFree_v2(p));
    TRY(cuIpcGetMemHandle(&nonsense, p));
    TRY(cuIpcCloseMemHandle(p + 4));
    TRY(cuIpcCloseMemHandle(p));
    show("still open", p, 4, (const unsigned[]){7, 9, 9, 9});
    TRY(cuIpcCloseMemHandle(p));
    TRY(cuIpcCloseMemHandle(p));
    TRY(cuMemsetD32_v2(p, 9, 2));
    report();
}

/* --- events -------------------------------------------------------------------------------------------------- */

static void events_first(void)
{
    CUevent e = NULL, plain = NULL, own = NULL;
    CUipcEventHandle handle;
    CUipcMemHandle flag_handle;
    CUdeviceptr flag = 0;
    float ms;
    TRY(cuEventCreate(&e, CU_EVENT_INTERPROCESS));
    TRY(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    TRY(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    TRY(cuIpcGetEventHandle(&handle, plain));
    TRY(cuIpcGetEventHandle(&handle, NULL));
    TRY(cuIpcGetEventHandle(NULL, e));
    TRY(cuIpcGetEventHandle(&handle, e));
    TRY(cuIpcOpenEventHandle(&own, handle));
    TRY(cuEventQuery(e));
    TRY(cuEventElapsedTime_v2(&ms, e, e));
    TRY(cuMemAlloc_v2(&flag, 64));
    TRY(cuMemsetD32_v2(flag, 0, 16));
    TRY(cuIpcGetMemHandle(&flag_handle, flag));
    /* The stream is held up by a word that the other process writes. */
    TRY(cuStreamWaitValue32_v2(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    TRY(cuMemsetD32Async(flag + 4, 42, 1, s));
    TRY(cuEventRecord(e, s));
    TRY(cuEventQuery(e));
    TRY(cuStreamQuery(s));
    put(&handle, sizeof handle);
    put(&flag_handle, sizeof flag_handle);
    print_report();
    TRY(cuEventSynchronize(e)); /* recorded by the other since */
    TRY(cuEventQuery(e));
    show("flag", flag, 3, (const unsigned[]){1, 42, 42});
    TRY(cuEventDestroy_v2(e));
    TRY(cuEventDestroy_v2(plain));
    TRY(cuMemFree_v2(flag));
}

static void events_second(void)
{
    CUevent e = NULL;
    CUipcEventHandle handle, nonsense;
    CUipcMemHandle flag_handle;
    CUdeviceptr flag = 0;
    memset(&nonsense, 1, sizeof nonsense);
    get(&handle, sizeof handle);
    get(&flag_handle, sizeof flag_handle);
    TRY(cuIpcOpenEventHandle(NULL, handle));
    TRY(cuIpcOpenEventHandle(&e, nonsense));
    TRY(cuIpcOpenEventHandle(&e, handle));
    TRY(cuIpcGetEventHandle(&nonsense, e)); /* not made here */
    TRY(cuIpcOpenMemHandle_v2(&flag, flag_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    TRY(cuEventQuery(e));
    TRY(cuStreamWaitEvent(s, e, 0));
    TRY(cuMemcpyDtoDAsync_v2(flag + 8, flag + 4, 4, s)); /* only after the first has set it */
    TRY(cuStreamQuery(s));
    TRY(cuMemsetD32_v2(flag, 1, 1)); /* lets the first go on */
    TRY(cuEventSynchronize(e));
    TRY(cuStreamSynchronize(s));
    TRY(cuEventRecord(e, s));
    TRY(cuEventSynchronize(e));
    show("flag", flag, 3, (const unsigned[]){1, 42, 42});
    TRY(cuIpcCloseMemHandle(flag));
    TRY(cuEventDestroy_v2(e));
    TRY(cuEventDestroy_v2(e));
    report();
}

/* What one process records the other sees as soon as it is told, by whatever means. */

enum { TURNS = 30, WORDS = 1 << 18 };

static void turns_first(void)
{
    CUevent e = NULL;
    CUipcEventHandle handle;
    CUipcMemHandle memory_handle;
    CUdeviceptr memory = 0;
    int bad = 0;
    TRY(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    TRY(cuMemAlloc_v2(&memory, WORDS * sizeof(unsigned)));
    TRY(cuIpcGetEventHandle(&handle, e));
    TRY(cuIpcGetMemHandle(&memory_handle, memory));
    put(&handle, sizeof handle);
    put(&memory_handle, sizeof memory_handle);
    for (unsigned i = 1; i <= TURNS; i++) {
        bad |= (int)cuMemsetD32Async(memory, i, WORDS, s);
        bad |= (int)cuEventRecord(e, s);
        put(&i, sizeof i);
        get(&i, sizeof i);
    }
    say("turns: %d\n", bad);
    print_report();
    TRY(cuEventDestroy_v2(e));
    TRY(cuMemFree_v2(memory));
}

static void turns_second(void)
{
    CUevent e = NULL;
    CUipcEventHandle handle;
    CUipcMemHandle memory_handle;
    CUdeviceptr memory = 0;
    unsigned turn = 0, word = 0, late = 0;
    int bad = 0;
    get(&handle, sizeof handle);
    get(&memory_handle, sizeof memory_handle);
    TRY(cuIpcOpenEventHandle(&e, handle));
    TRY(cuIpcOpenMemHandle_v2(&memory, memory_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    while (turn < TURNS) {
        get(&turn, sizeof turn);
        bad |= (int)cuStreamWaitEvent(s, e, 0);
        bad |= (int)cuMemcpyDtoHAsync_v2(&word, memory + (WORDS - 1) * sizeof word, sizeof word, s);
        bad |= (int)cuStreamSynchronize(s);
        late += word != turn;
        put(&turn, sizeof turn);
    }
    say("    turns: %d, %u of them too early\n", bad, late);
    TRY(cuIpcCloseMemHandle(memory));
    TRY(cuEventDestroy_v2(e));
    report();
}

/* --- physical memory ------------------------------------------------------------------------------------------- */

static CUmemAllocationProp property(CUmemAllocationHandleType type)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = type,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    TRY(cuMemAddressReserve(&at, CHUNK, 0, 0, 0));
    TRY(cuMemMap(at, CHUNK, 0, handle, 0));
    TRY(cuMemSetAccess(at, CHUNK, &access, 1));
    return at;
}

static void physical_first(void)
{
    CUmemGenericAllocationHandle shared = 0, alone = 0, imported = 0;
    CUmemAllocationProp plain = property(CU_MEM_HANDLE_TYPE_NONE);
    CUmemAllocationProp with_file = property(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int fd = -1, other = open("/dev/null", O_RDWR | O_CLOEXEC);
    TRY(cuMemCreate(&alone, CHUNK, &plain, 0));
    TRY(cuMemExportToShareableHandle(&fd, alone, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemCreate(&shared, CHUNK, &with_file, 0));
    TRY(cuMemExportToShareableHandle(NULL, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
    TRY(cuMemExportToShareableHandle(&fd, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_WIN32, 0));
    TRY(cuMemExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    say("a descriptor: %d\n", fd >= 0 && fcntl(fd, F_GETFD) >= 0);
    TRY(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)other,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    TRY(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)-1,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    TRY(cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    TRY(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr at = map(shared), twice = map(imported);
    TRY(cuMemsetD32_v2(at, 5, 8));
    show("imported here", twice, 4, (const unsigned[]){5, 5, 5, 5});
    TRY(cuMemRelease(imported));
    TRY(cuMemRelease(alone));
    put_descriptor(fd);
    close(fd);
    close(other);
    print_report();
    show("changed by the other", at, 4, (const unsigned[]){5, 6, 6, 5});
    TRY(cuMemUnmap(twice, CHUNK));
    TRY(cuMemUnmap(at, CHUNK));
    TRY(cuMemRelease(shared));
    TRY(cuMemExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void physical_second(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp about;
    int fd = get_descriptor();
    TRY(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    memset(&about, 0, sizeof about);
    TRY(cuMemGetAllocationPropertiesFromHandle(&about, handle));
    say("    %d %d %d\n", (int)about.type, (int)about.requestedHandleTypes, about.location.id);
    CUdeviceptr at = map(handle);
    show("imported", at, 4, (const unsigned[]){5, 5, 5, 5});
    TRY(cuMemsetD32_v2(at + 4, 6, 2));
    TRY(cuMemUnmap(at, CHUNK));
    TRY(cuMemRelease(handle));
    TRY(cuMemRelease(handle));
    close(fd);
    report();
}

/* --- pools ------------------------------------------------------------------------------------------------------- */

static void pool_first(void)
{
    CUmemoryPool shared = NULL, alone = NULL;
    CUmemPoolProps with_file = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemPoolProps plain = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemPoolPtrExportData data;
    CUdeviceptr p = 0, other = 0;
    int fd = -1;
    TRY(cuMemPoolCreate(&alone, &plain));
    TRY(cuMemPoolExportToShareableHandle(&fd, alone, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemAllocFromPoolAsync(&other, 100, alone, s));
    TRY(cuMemPoolExportPointer(&data, other));
    TRY(cuMemPoolCreate(&shared, &with_file));
    TRY(cuMemPoolExportToShareableHandle(NULL, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 5));
    TRY(cuMemPoolExportToShareableHandle(&fd, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemAllocFromPoolAsync(&p, 10000, shared, s));
    TRY(cuMemsetD32Async(p, 3, 100, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemPoolExportPointer(NULL, p));
    TRY(cuMemPoolExportPointer(&data, 4096));
    TRY(cuMemPoolExportPointer(&data, p));
    put_descriptor(fd);
    put(&data, sizeof data);
    close(fd);
    print_report();
    show("changed by the other", p, 4, (const unsigned[]){3, 8, 8, 3});
    TRY(cuMemFreeAsync(p, s));
    TRY(cuMemFreeAsync(other, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemPoolExportPointer(&data, p));
    TRY(cuMemPoolDestroy(shared));
    TRY(cuMemPoolDestroy(alone));
}

/* A thread without a context has the memory as well; whether there is a primary one from then on. */
static void import_without_context(CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    CUdeviceptr p = 0;
    CUcontext own;
    unsigned flags;
    int active = 0;
    TRY(cuCtxPopCurrent_v2(&own));
    TRY(cuMemPoolImportPointer(&p, pool, data));
    TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    say("the primary context is active: %d, there is memory: %d\n", active, p != 0);
    TRY(cuCtxPushCurrent_v2(own));
    show("imported without a context", p, 4, (const unsigned[]){3, 3, 3, 3});
    TRY(cuMemFree_v2(p));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
}

static void pool_second(void)
{
    CUmemoryPool pool = NULL, none = NULL;
    CUmemPoolPtrExportData data, nonsense;
    CUdeviceptr p = 0, q = 0;
    memset(&nonsense, 1, sizeof nonsense);
    int fd = get_descriptor();
    get(&data, sizeof data);
    TRY(cuMemPoolImportFromShareableHandle(NULL, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemPoolImportFromShareableHandle(&none, (void *)(intptr_t)peer,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemAllocFromPoolAsync(&q, 100, pool, s));
    TRY(cuMemPoolImportPointer(NULL, pool, &data));
    TRY(cuMemPoolImportPointer(&q, NULL, &data));
    TRY(cuMemPoolImportPointer(&q, pool, &nonsense));
    import_without_context(pool, &data);
    TRY(cuMemPoolImportPointer(&p, pool, &data));
    show("imported", p, 4, (const unsigned[]){3, 3, 3, 3});
    TRY(cuMemsetD32Async(p + 4, 8, 2, s));
    TRY(cuMemFreeAsync(p, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuMemFreeAsync(p, s));
    TRY(cuMemPoolDestroy(pool));
    close(fd);
    report();
}

static void start(void)
{
    CUipcMemHandle handle;
    CUevent none;
    memset(&handle, 0, sizeof handle);
    TRY(cuIpcGetMemHandle(&handle, 4096));
    TRY(cuIpcOpenEventHandle(&none, (CUipcEventHandle){{0}}));
    TRY(cuMemExportToShareableHandle(&none, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuInit(0));
    TRY(cuIpcGetMemHandle(&handle, 4096));
    TRY(cuIpcCloseMemHandle(4096));
    TRY(cuCtxCreate_v2(&c, 0, 0));
    TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
}

static void run(bool is_second)
{
    second = is_second;
    start();
    (second ? memory_second : memory_first)();
    (second ? events_second : events_first)();
    (second ? turns_second : turns_first)();
    (second ? physical_second : physical_first)();
    (second ? pool_second : pool_first)();
    TRY(cuCtxDestroy_v2(c));
}

int main(int argc, char **argv)
{
    int ends[2];
    if (argc > 1) {
        peer = atoi(argv[1]);
        run(true);
        return wrong;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", ends[1]);
        close(ends[0]);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(9);
    }
    close(ends[1]);
    peer = ends[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    run(false);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        printf("the second process ended with %d\n", status);
        return 1;
    }
    return wrong;
}
