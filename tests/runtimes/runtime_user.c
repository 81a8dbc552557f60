/*
 * runtime_user.c - a program of any version of the CUDA runtime: it does by hand what nvcc's stubs do, with prototypes that
 * have been the same since CUDA 10, so one source is linked to each runtime there is.
 *
 *   runtime_user FATBIN
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    unsigned x, y, z;
} dimensions;
enum { FROM_DEVICE = 2, ON_DEVICE = 3 };

extern void **__cudaRegisterFatBinary(void *wrapper);
extern void __cudaRegisterFatBinaryEnd(void **handle);
extern void __cudaUnregisterFatBinary(void **handle);
extern void __cudaRegisterFunction(void **handle, const char *stub, char *name, const char *device_name,
                                   int limit, void *, void *, void *, void *, int *);
extern int cudaLaunchKernel(const void *stub, dimensions grid, dimensions block, void **arguments,
                            size_t shared, void *stream);
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int);
extern int cudaMemset(void *, int, size_t), cudaDeviceSynchronize(void), cudaGetDeviceCount(int *);
extern int cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *), cudaGetLastError(void),
    cudaDeviceReset(void);
extern int cudaStreamCreate(void **), cudaStreamDestroy(void *), cudaEventCreate(void **),
    cudaEventRecord(void *, void *);
extern int cudaEventSynchronize(void *), cudaEventElapsedTime(float *, void *, void *);
extern int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
extern int cudaMallocManaged(void **, size_t, unsigned),
    cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
extern const char *cudaGetErrorString(int);
extern int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *);
extern int cudaPointerGetAttributes(void *attributes, const void *);

static struct {
    int magic, version;
    void *data, *unused;
} wrapper = {.magic = 0x466243b1, .version = 1};
static char image[1 << 20];

static void stub(void)
{
}

#define OK(call)                                                                                             \
    do {                                                                                                     \
        int result_ = (call);                                                                                \
        if (result_) {                                                                                       \
            printf("%s: %d %s\n", #call, result_, cudaGetErrorString(result_));                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static int launch(int **memory, int count, int summand, unsigned block, void *stream)
{
    void *arguments[] = {memory, &count, &summand};
    return cudaLaunchKernel((const void *)stub, (dimensions){4, 1, 1}, (dimensions){block, 1, 1}, arguments,
                            0, stream);
}

/* --- pointers in a thread that has used nothing yet, and in a child of fork ------------------------------------------ */

/* cudaPointerAttributes: what all versions since 11 begin with, and room for what others append. */
struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long more[16];
};
static void *asked[3]; /* device memory, page-locked memory, other memory */

static void *ask(void *unused)
{
    static const int types[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        struct attributes about = {-1, -1, NULL, NULL, {0}};
        OK(cudaPointerGetAttributes(&about, asked[i]));
        printf("pointer %d: type %d, device %d, %d %d\n", i, about.type, about.device,
               about.device_pointer == asked[i], about.host_pointer == asked[i]);
        if (about.type != types[i])
            exit(1);
    }
    return unused;
}

static void ask_elsewhere(void *device)
{
    pthread_t thread;
    int status = 0;
    asked[0] = device;
    asked[2] = malloc(1);
    OK(cudaHostAlloc(&asked[1], 4096, 0));
    if (pthread_create(&thread, NULL, ask, NULL) != 0)
        exit(1);
    pthread_join(thread, NULL);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) { /* CUDA is not for children: it says so */
        struct attributes about = {-1, -1, NULL, NULL, {0}};
        _exit(cudaPointerGetAttributes(&about, asked[1]) != 0 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    printf("in a child of fork: %d\n", status);
    OK(cudaFreeHost(asked[1]));
    free(asked[2]);
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file || !fread(image, 1, sizeof image, file))
        return 2;
    fclose(file);
    wrapper.data = image;
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, (const char *)stub, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    int devices = 0, runtime = 0, driver = 0, blocks = 0;
    int *p, *q, *managed, host[1000];
    void *stream, *start, *end;
    float milliseconds = -1;
    OK(cudaGetDeviceCount(&devices));
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    printf("%d devices, runtime %d, driver %d\n", devices, runtime, driver);

    OK(cudaMalloc((void **)&p, sizeof host));
    OK(cudaMemset(p, 0, sizeof host));
    OK(launch(&p, 1000, 5, 256, NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, p, sizeof host, FROM_DEVICE));
    printf("%d %d\n", host[0], host[999]);

    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(start, stream));
    OK(cudaMallocAsync((void **)&q, sizeof host, stream));
    OK(cudaMemcpyAsync(q, p, sizeof host, ON_DEVICE, stream));
    OK(launch(&q, 1000, 7, 256, stream));
    OK(cudaMemcpyAsync(host, q, sizeof host, FROM_DEVICE, stream));
    OK(cudaFreeAsync(q, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, start, end));
    printf("%d %d %d\n", host[0], host[999], milliseconds >= 0);

    OK(cudaMallocManaged((void **)&managed, sizeof host, 1));
    for (int i = 0; i < 1000; i++)
        managed[i] = i;
    OK(launch(&managed, 1000, 7, 256, NULL));
    OK(cudaDeviceSynchronize());
    const int good = host[999] == 12 && managed[0] == 7 && managed[999] == 1006;
    printf("%d %d\n", managed[0], managed[999]);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)stub, 256, 0));
    printf("%d\n", blocks > 0);
    const int refused = launch(&p, 1000, 1, 25600, NULL);
    const int last = cudaGetLastError();
    printf("a block too large: %d, then %d and %d\n", refused, last, cudaGetLastError());
    ask_elsewhere(p);
    OK(cudaFree(p));
    OK(cudaStreamDestroy(stream));
    OK(cudaDeviceReset());
    __cudaUnregisterFatBinary(handle);
    return !good;
}
