/*
 * Devices that give each other data in every way there is: peer copies of lines, rows, boxes and arrays in streams of
 * either side, kernels that wait for events of other devices, copies between the host and one device in the stream of
 * another, threads that work on several devices at once, and what is refused between devices. The results are the same
 * wherever the devices are.
 */
#include "example.h"
#include <thread>
#include <vector>

#define WIDTH  300 /* of rows, in numbers */
#define HEIGHT 40

struct device {
    unsigned *values, *other;
    size_t pitch;
    unsigned *rows; /* HEIGHT rows, pitched */
    cudaArray_t array;
    cudaStream_t stream;
    cudaEvent_t event;
};

static int device_count, count;
static std::vector<struct device> devices;

__global__ void fill(unsigned *values, int count, unsigned first)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        values[i] = example_mix(first + i);
    }
}

/* Takes its time, so that whoever does not wait for it reads the wrong thing. */
__global__ void step(unsigned *values, int count, unsigned with, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count) {
        unsigned value = values[i];
        for (int round = 0; round < rounds; round++) {
            value = example_mix(value + with);
        }
        values[i] = value;
    }
}

static unsigned digest(const std::vector<unsigned> &values)
{
    unsigned sum = 1;

    for (unsigned value : values) {
        sum = example_mix(sum + value);
    }
    return sum;
}

static unsigned digest_of(const unsigned *values, size_t n)
{
    std::vector<unsigned> host(n);

    CHECK(cudaMemcpy(host.data(), values, n * sizeof(unsigned), cudaMemcpyDefault));
    return digest(host);
}

static void make_device(int number)
{
    struct device *device = &devices[number];
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    size_t size = count * sizeof(unsigned);

    CHECK(cudaSetDevice(number));
    CHECK(cudaStreamCreateWithFlags(&device->stream, number % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    CHECK(cudaEventCreate(&device->event));
    CHECK(cudaMalloc(&device->values, size));
    CHECK(cudaMalloc(&device->other, size));
    CHECK(cudaMallocPitch(&device->rows, &device->pitch, WIDTH * sizeof(unsigned), HEIGHT));
    CHECK(cudaMallocArray(&device->array, &format, WIDTH, HEIGHT));
    fill<<<(count + 127) / 128, 128, 0, device->stream>>>(device->values, count, (unsigned)number * count);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(device->stream));
}

/* Every pair of devices, the copy in a stream of one or the other, behind work of the source. */
static void pairs(void)
{
    for (int from = 0; from < device_count; from++) {
        for (int to = 0; to < device_count; to++) {
            int in = (from + to) % 2 ? from : to;
            struct device *source = &devices[from], *target = &devices[to];

            CHECK(cudaSetDevice(from));
            step<<<(count + 127) / 128, 128, 0, source->stream>>>(source->values, count, 7, 50);
            CHECK_LAUNCH();
            CHECK(cudaEventRecord(source->event, source->stream));
            CHECK(cudaSetDevice(in));
            CHECK(cudaStreamWaitEvent(devices[in].stream, source->event, 0));
            CHECK(cudaMemcpyPeerAsync(target->other, to, source->values, from, count * sizeof(unsigned),
                                      devices[in].stream));
            CHECK(cudaEventRecord(devices[in].event, devices[in].stream));
            /* what comes next on either device must not spoil the copy */
            CHECK(cudaStreamWaitEvent(source->stream, devices[in].event, 0));
            CHECK(cudaStreamWaitEvent(target->stream, devices[in].event, 0));
            CHECK(cudaSetDevice(to));
            step<<<(count + 127) / 128, 128, 0, target->stream>>>(target->other, count, 9, 3);
            CHECK_LAUNCH();
            CHECK(cudaStreamSynchronize(target->stream));
            printf("%d to %d: %08x\n", from, to, digest_of(target->other, count));
        }
    }
}

/* A token goes round the devices: each kernel waits for the copy from the device before. */
static void ring(int rounds)
{
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemsetAsync(devices[0].other, 0, 64 * sizeof(unsigned), devices[0].stream));
    for (int i = 0; i < rounds; i++) {
        int here = i % device_count, next = (i + 1) % device_count;

        CHECK(cudaSetDevice(here));
        step<<<1, 64, 0, devices[here].stream>>>(devices[here].other, 64, (unsigned)i, 10);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(devices[next].values, devices[here].other, 64 * sizeof(unsigned), cudaMemcpyDefault,
                              devices[here].stream));
        CHECK(cudaEventRecord(devices[here].event, devices[here].stream));
        CHECK(cudaSetDevice(next));
        CHECK(cudaStreamWaitEvent(devices[next].stream, devices[here].event, 0));
        CHECK(cudaMemcpyAsync(devices[next].other, devices[next].values, 64 * sizeof(unsigned),
                              cudaMemcpyDeviceToDevice, devices[next].stream));
    }
    CHECK(cudaDeviceSynchronize());
    printf("ring: %08x\n", digest_of(devices[rounds % device_count].other, 64));
}

/* Rows, boxes and arrays from each device to the next. */
static void shapes(void)
{
    for (int from = 0; from < device_count; from++) {
        int to = (from + 1) % device_count;
        struct device *source = &devices[from], *target = &devices[to];
        size_t width = WIDTH * sizeof(unsigned);
        std::vector<unsigned> rows(WIDTH * HEIGHT);

        CHECK(cudaSetDevice(from));
        CHECK(cudaMemcpy2DAsync(source->rows, source->pitch, source->values, width, width, HEIGHT,
                                cudaMemcpyDeviceToDevice, source->stream));
        CHECK(cudaStreamSynchronize(source->stream));
        CHECK(cudaMemset(target->other, 0, count * sizeof(unsigned)));
        CHECK(cudaMemcpy2D(target->other, width, source->rows, source->pitch, width, HEIGHT, cudaMemcpyDefault));
        printf("rows %d to %d: %08x\n", from, to, digest_of(target->other, WIDTH * HEIGHT));

        CHECK(cudaMemcpy2DToArrayAsync(source->array, 0, 0, source->rows, source->pitch, width, HEIGHT,
                                       cudaMemcpyDeviceToDevice, source->stream));
        cudaMemcpy3DPeerParms box = {};
        box.srcArray = source->array;
        box.srcDevice = from;
        box.dstPtr = make_cudaPitchedPtr(target->rows, target->pitch, width, HEIGHT);
        box.dstDevice = to;
        box.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
        CHECK(cudaMemcpy3DPeerAsync(&box, source->stream));
        CHECK(cudaStreamSynchronize(source->stream));
        CHECK(cudaMemcpy2D(rows.data(), width, target->rows, target->pitch, width, HEIGHT, cudaMemcpyDeviceToHost));
        printf("box %d to %d: %08x\n", from, to, digest(rows));

        box = {};
        box.srcPtr = make_cudaPitchedPtr(source->rows, source->pitch, width, HEIGHT);
        box.srcDevice = from;
        box.dstArray = target->array;
        box.dstPos = make_cudaPos(1, 1, 0);
        box.dstDevice = to;
        box.extent = make_cudaExtent(WIDTH - 1, HEIGHT - 1, 1);
        CHECK(cudaMemcpy3DPeer(&box));
        CHECK(cudaSetDevice(to));
        CHECK(cudaMemcpy2DFromArray(rows.data(), (WIDTH - 1) * sizeof(unsigned), target->array, sizeof(unsigned), 1,
                                    (WIDTH - 1) * sizeof(unsigned), HEIGHT - 1, cudaMemcpyDeviceToHost));
        rows.resize((WIDTH - 1) * (HEIGHT - 1));
        printf("array %d to %d: %08x\n", from, to, digest(rows));
    }
}

/* Memory of one device and the host, while another device is the current one, in that one's stream. */
static void from_elsewhere(void)
{
    int last = device_count - 1;
    unsigned *pinned;
    size_t size = count * sizeof(unsigned);

    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc(&pinned, size, cudaHostAllocPortable));
    for (int i = 0; i < count; i++) {
        pinned[i] = example_mix(i + 5);
    }
    step<<<(count + 127) / 128, 128, 0, devices[0].stream>>>(devices[0].values, count, 3, 500);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(devices[last].values, pinned, size, cudaMemcpyDefault, devices[0].stream));
    CHECK(cudaMemcpyPeerAsync(devices[0].values, 0, devices[last].values, last, size, devices[0].stream));
    step<<<(count + 127) / 128, 128, 0, devices[0].stream>>>(devices[0].values, count, 3, 2);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(devices[last].other, devices[0].values, size, cudaMemcpyDefault, devices[0].stream));
    CHECK(cudaMemcpyAsync(pinned, devices[last].other, size, cudaMemcpyDefault, devices[0].stream));
    CHECK(cudaStreamSynchronize(devices[0].stream));
    printf("from elsewhere: %08x\n", digest(std::vector<unsigned>(pinned, pinned + count)));

    CHECK(cudaMemcpy(devices[last].values, pinned, size, cudaMemcpyDefault));
    CHECK(cudaMemset(devices[0].values, 1, size));
    CHECK(cudaMemcpyPeer(devices[0].values, 0, devices[last].values, last, size));
    printf("and back: %08x\n", digest_of(devices[0].values, count));
    CHECK(cudaFreeHost(pinned));
}

/* A thread for each device, all at once; each gives the next device what it has made. */
static void work(int number, unsigned *made)
{
    int next = (number + 1) % device_count;
    unsigned *mine, *theirs;

    CHECK(cudaSetDevice(next));
    CHECK(cudaMalloc(&theirs, count * sizeof(unsigned)));
    CHECK(cudaSetDevice(number));
    CHECK(cudaMalloc(&mine, count * sizeof(unsigned)));
    for (int i = 0; i < 4; i++) {
        fill<<<(count + 255) / 256, 256>>>(mine, count, (unsigned)(number + i));
        CHECK_LAUNCH();
        CHECK(cudaMemcpyPeerAsync(theirs, next, mine, number, count * sizeof(unsigned), cudaStreamLegacy));
    }
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    *made = digest_of(theirs, count);
    CHECK(cudaFree(theirs));
    CHECK(cudaFree(mine));
}

static void threads(void)
{
    std::vector<std::thread> workers;
    std::vector<unsigned> made(device_count);

    for (int i = 0; i < device_count; i++) {
        workers.emplace_back(work, i, &made[i]);
    }
    for (int i = 0; i < device_count; i++) {
        workers[i].join();
        printf("thread %d: %08x\n", i, made[i]);
    }
}

static void CUDART_CB note(void *user)
{
    *(int *)user += 1;
}

/* Host functions behind events of other devices run after what they waited for. */
static void host_functions(void)
{
    int last = device_count - 1, noted = 0;

    CHECK(cudaSetDevice(0));
    step<<<(count + 127) / 128, 128, 0, devices[0].stream>>>(devices[0].values, count, 1, 300);
    CHECK_LAUNCH();
    CHECK(cudaLaunchHostFunc(devices[0].stream, note, &noted));
    CHECK(cudaEventRecord(devices[0].event, devices[0].stream));
    CHECK(cudaSetDevice(last));
    CHECK(cudaStreamWaitEvent(devices[last].stream, devices[0].event, 0));
    CHECK(cudaLaunchHostFunc(devices[last].stream, note, &noted));
    CHECK(cudaStreamSynchronize(devices[last].stream));
    printf("host functions: %d\n", noted);
}

/* What is refused between devices. */
static void refusals(void)
{
    float milliseconds;
    int last = device_count - 1;
    const bool several = last > 0;

    CHECK(cudaSetDevice(last));
    CHECK(cudaEventRecord(devices[last].event, devices[last].stream));
    CHECK(cudaEventSynchronize(devices[last].event));
    CHECK(cudaSetDevice(0));
    CHECK(cudaEventRecord(devices[0].event, devices[0].stream));
    CHECK(cudaEventSynchronize(devices[0].event));
    CHECK(cudaEventQuery(devices[last].event));
    CHECK(cudaStreamQuery(devices[last].stream));
    if (several) {
        printf("time between devices: %s\n",
               cudaGetErrorName(cudaEventElapsedTime(&milliseconds, devices[0].event, devices[last].event)));
        printf("event of another device: %s\n",
               cudaGetErrorName(cudaEventRecord(devices[0].event, devices[last].stream)));
        cudaGetLastError();
        step<<<1, 1, 0, devices[last].stream>>>(devices[0].values, 1, 0, 0);
        printf("stream of another device: %s\n", cudaGetErrorName(cudaGetLastError()));
        printf("peer without access: %s\n", cudaGetErrorName(cudaDeviceDisablePeerAccess(last)));
        cudaGetLastError();
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("device_exchange", "[DEVICES_AT_LEAST [ELEMENTS]]", argc, argv);
    int least = example_number(&example, 0, 1, 64, 1);

    count = example_number(&example, 1, WIDTH * HEIGHT, 1 << 26, 200000);
    CHECK(cudaGetDeviceCount(&device_count));
    if (device_count < least) {
        fprintf(stderr, "device_exchange: %d devices, not %d\n", device_count, least);
        return example_end(&example, 0);
    }
    devices.resize(device_count);
    for (int i = 0; i < device_count; i++) {
        make_device(i);
    }
    pairs();
    ring(20);
    shapes();
    from_elsewhere();
    threads();
    host_functions();
    refusals();
    for (int i = 0; i < device_count; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFreeArray(devices[i].array));
        CHECK(cudaFree(devices[(i + 1) % device_count].rows)); /* of whichever device */
        CHECK(cudaFree(devices[i].values));
        CHECK(cudaFree(devices[i].other));
        CHECK(cudaStreamDestroy(devices[i].stream));
        CHECK(cudaEventDestroy(devices[i].event));
    }
    return example_end(&example, 1);
}
