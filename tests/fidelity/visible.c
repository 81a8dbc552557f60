/*
 * visible.c - memory and events of a process that has another part of the machine's two devices, or has them in another order: they are
 * of the device that they were made on.
 */
#include "must.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { SIZE = 1 << 20 };

/* What the child tells of what it has made. */
struct made {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUuuid device;
};

static void use_device(CUdevice device)
{
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

/* Makes memory and an event on a device, and keeps them until it is told that nobody needs them. */
static int make(CUdevice device, int connection)
{
    struct made made;
    CUdeviceptr memory;
    CUevent event;
    char word;
    CHECK(cuInit(0));
    use_device(device);
    CHECK(cuMemAlloc_v2(&memory, SIZE));
    CHECK(cuMemsetD8_v2(memory, 5, SIZE));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    CHECK(cuEventRecord(event, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuIpcGetMemHandle(&made.memory, memory));
    CHECK(cuIpcGetEventHandle(&made.event, event));
    CHECK(cuDeviceGetUuid(&made.device, device));
    return write(connection, &made, sizeof made) == (ssize_t)sizeof made && read(connection, &word, 1) == 1
               ? 0
               : 1;
}

static CUdevice find_device(const CUuuid *wanted)
{
    int n;
    CUuuid uuid;
    CHECK(cuDeviceGetCount(&n));
    printf("%d devices\n", n);
    for (CUdevice i = 0; i < n; i++) {
        CHECK(cuDeviceGetUuid(&uuid, i));
        if (memcmp(&uuid, wanted, sizeof uuid) == 0)
            return i;
    }
    return -1;
}

static void look(const struct made *made)
{
    CUdeviceptr memory;
    CUevent event;
    unsigned char byte = 0;
    int ordinal = -1;
    CHECK(cuInit(0));
    const CUdevice device = find_device(&made->device);
    printf("made on device %d\n", device);
    use_device(device);
    CHECK(cuIpcOpenMemHandle_v2(&memory, made->memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    CHECK(cuMemcpyDtoH_v2(&byte, memory + SIZE - 1, 1));
    printf("the memory is of device %d, and holds %d\n", ordinal, byte);
    CHECK(cuIpcOpenEventHandle(&event, made->event));
    printf("the event: %d\n", cuEventQuery(event));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuIpcCloseMemHandle(memory));
}

/* usage: visible THEIRS DEVICE OURS: what the child sees, which of these it uses, what this process sees. */
int main(int argc, char **argv)
{
    struct made made;
    int ends[2], status = 0;
    char number[16];
    if (argc == 3)
        return make(atoi(argv[1]), atoi(argv[2]));
    if (argc != 4 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 2;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC); /* the child's end ends with this process */
    snprintf(number, sizeof number, "%d", ends[1]);
    const pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", argv[1], 1);
        execl("/proc/self/exe", argv[0], argv[2], number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    setenv("CUDA_VISIBLE_DEVICES", argv[3], 1);
    if (read(ends[0], &made, sizeof made) == (ssize_t)sizeof made)
        look(&made);
    if (write(ends[0], "", 1) != 1 || waitpid(child, &status, 0) != child || status != 0)
        printf("the child: %d\n", status);
    return 0;
}
