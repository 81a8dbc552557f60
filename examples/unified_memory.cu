/*
 * Memory that host and device both address, in every way that the CUDA programming guide has: managed variables, objects
 * and lists in managed memory, memory attached to streams or to the host, advice and prefetches, host functions and
 * threads that use it, page-locked memory by its host address (in parameters, in structures, in lists), registered
 * memory that shares its pages, and host and device that wait for each other by flags.
 *
 * With the argument `calls` also what needs the kernel's help where the device is elsewhere: system calls on such memory,
 * and threads that block all signals. With `held` it only lets the device have managed memory for some seconds before it
 * reads that.
 */
#include "example.h"
#include <atomic>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static const int N = 40000;

__managed__ int counter = 5;
__managed__ float table[1000];
__managed__ int *where;
__device__ int offset = 1;

/* Objects whose memory is managed. */
struct managed {
    static void *operator new(size_t size)
    {
        void *memory;
        CHECK(cudaMallocManaged(&memory, size));
        CHECK(cudaDeviceSynchronize());
        return memory;
    }
    static void operator delete(void *memory)
    {
        CHECK(cudaFree(memory));
    }
};

struct text : managed {
    int length;
    char *characters;

    explicit text(const char *from) : length((int)strlen(from))
    {
        CHECK(cudaMallocManaged(&characters, length + 1));
        memcpy(characters, from, length + 1);
    }
    ~text()
    {
        CHECK(cudaFree(characters));
    }
};

struct element : managed {
    element *next;
    text *name;
    int *value; /* in page-locked memory */
};

/* What a kernel finds in device memory. */
struct places {
    int *in, *out;
};

__global__ void use_variables(int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        table[i] = table[i] * 2 + offset;
    }
    if (i == 0) {
        counter += 10;
        if (where) {
            *where = counter;
        }
    }
}

__global__ void add(int *array, int n, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        array[i] += value;
    }
}

__global__ void capitals(text *t)
{
    for (int i = threadIdx.x; i < t->length; i += blockDim.x) {
        if (t->characters[i] >= 'a' && t->characters[i] <= 'z') {
            t->characters[i] -= 'a' - 'A';
        }
    }
}

__global__ void walk(element *list)
{
    for (; list != NULL; list = list->next) {
        *list->value += list->name->length;
        list->name->characters[0] = '#';
    }
}

__global__ void through_places(const places *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        p->out[i] = p->in[i] + 1;
    }
}

/* Takes turns with the host: waits for an odd number, answers with the next even one. */
__global__ void take_turns(volatile int *turn, volatile int *data, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        while (*turn != 2 * i + 1) {
        }
        __threadfence_system();
        data[0] = data[0] * 3 + data[1];
        __threadfence_system();
        *turn = 2 * i + 2;
    }
}

static void launch_add(int *array, int n, int value, cudaStream_t stream = 0)
{
    add<<<(n + 255) / 256, 256, 0, stream>>>(array, n, value);
    CHECK_LAUNCH();
}

static int report(const char *what, int wrong)
{
    printf("%s: %s\n", what, wrong ? "WRONG" : "right");
    return wrong != 0;
}

static int count_wrong(const int *array, int n, int expected)
{
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        wrong += array[i] != expected + i;
    }
    return wrong;
}

static void number(int *array, int n, int first)
{
    for (int i = 0; i < n; i++) {
        array[i] = first + i;
    }
}

static int variables(void)
{
    int wrong = counter != 5, expected = 5;
    int *managed;

    for (int i = 0; i < 1000; i++) {
        table[i] = i;
    }
    CHECK(cudaMallocManaged(&managed, sizeof *managed));
    for (int round = 0; round < 3; round++) {
        where = round ? managed : NULL;
        use_variables<<<4, 256>>>(1000);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        expected += 10;
        wrong += counter != expected || (round && *managed != expected);
        counter = ++expected;
    }
    for (int i = 0; i < 1000; i++) {
        wrong += table[i] != i * 8.0f + 7;
    }
    CHECK(cudaFree(managed));
    return report("managed variables", wrong);
}

static int objects(void)
{
    static const char *const words[] = {"alpha", "be", "gam", "delta of the device", ""};
    element *list = NULL;
    int *values;
    int wrong = 0, n = sizeof words / sizeof *words;
    text *t = new text("managed memory, Objects and 8 more");

    capitals<<<1, 32>>>(t);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    wrong += strcmp(t->characters, "MANAGED MEMORY, OBJECTS AND 8 MORE") != 0;
    t->characters[0] = 'm';
    capitals<<<1, 32>>>(t);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    wrong += t->characters[0] != 'M';
    delete t;

    CHECK(cudaMallocHost(&values, n * sizeof *values));
    for (int i = 0; i < n; i++) {
        element *e = new element;
        e->next = list;
        e->name = new text(words[i]);
        e->value = &values[i];
        values[i] = 100 * i;
        list = e;
    }
    walk<<<1, 1>>>(list);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (int i = n - 1; list != NULL; i--) {
        element *next = list->next;
        wrong += values[i] != 100 * i + (int)strlen(words[i]) || list->name->characters[0] != '#';
        delete list->name;
        delete list;
        list = next;
    }
    CHECK(cudaFreeHost(values));
    return report("objects and a list", wrong);
}

static int attached(void)
{
    const int n_streams = 4;
    cudaStream_t streams[n_streams];
    int *parts[n_streams], *hosts;
    int wrong = 0;

    CHECK(cudaMallocManaged(&hosts, N * sizeof *hosts, cudaMemAttachHost));
    for (int s = 0; s < n_streams; s++) {
        CHECK(cudaStreamCreate(&streams[s]));
        CHECK(cudaMallocManaged(&parts[s], N * sizeof **parts, cudaMemAttachHost));
        number(parts[s], N, s);
        CHECK(cudaStreamAttachMemAsync(streams[s], parts[s], 0, cudaMemAttachSingle));
    }
    for (int round = 0; round < 3; round++) {
        for (int s = 0; s < n_streams; s++) {
            launch_add(parts[s], N, 10, streams[s]);
        }
        number(hosts, N, round); /* the host's own while kernels run */
        for (int s = 0; s < n_streams; s++) {
            CHECK(cudaStreamSynchronize(streams[s]));
            wrong += count_wrong(parts[s], N, s + 10 * (round + 1));
        }
        wrong += count_wrong(hosts, N, round);
    }
    for (int s = 0; s < n_streams; s++) {
        CHECK(cudaFree(parts[s]));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    CHECK(cudaStreamAttachMemAsync(0, hosts, 0, cudaMemAttachGlobal));
    CHECK(cudaDeviceSynchronize());
    launch_add(hosts, N, 1);
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(hosts, N, 3);
    CHECK(cudaFree(hosts));
    return report("attached memory", wrong);
}

static int advice(void)
{
    int wrong = 0, answer[2], *array, device = 0;
    cudaMemLocation on_device = {}, on_host = {};
    int sizes[] = {sizeof(int), sizeof(int), sizeof answer, sizeof(int)};

    (void)sizes;
    on_device.type = cudaMemLocationTypeDevice;
    on_device.id = device;
    on_host.type = cudaMemLocationTypeHost;
    CHECK(cudaMallocManaged(&array, N * sizeof *array));
    number(array, N, 0);
    CHECK(cudaMemAdvise(array, N * sizeof *array, cudaMemAdviseSetReadMostly, on_device));
    CHECK(cudaMemAdvise(array, N * sizeof *array, cudaMemAdviseSetPreferredLocation, on_device));
    CHECK(cudaMemAdvise(array, N * sizeof *array, cudaMemAdviseSetAccessedBy, on_host));
    CHECK(cudaMemPrefetchAsync(array, N * sizeof *array, on_device, 0, 0));
    launch_add(array, N, 1);
    CHECK(cudaMemPrefetchAsync(array, N * sizeof *array, on_host, 0, 0));
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(array, N, 1);
    CHECK(cudaMemRangeGetAttribute(answer, sizeof(int), cudaMemRangeAttributeReadMostly, array, N * sizeof *array));
    printf("read mostly %d", answer[0]);
    CHECK(cudaMemRangeGetAttribute(answer, sizeof(int), cudaMemRangeAttributePreferredLocation, array, N));
    printf(", preferred %d", answer[0]);
    CHECK(cudaMemRangeGetAttribute(answer, sizeof answer, cudaMemRangeAttributeAccessedBy, array, N));
    printf(", accessed by %d %d", answer[0], answer[1]);
    CHECK(cudaMemRangeGetAttribute(answer, sizeof(int), cudaMemRangeAttributeLastPrefetchLocation, array, N));
    printf(", prefetched to %d", answer[0]);
    CHECK(cudaMemAdvise(array, 4096, cudaMemAdviseUnsetReadMostly, on_device));
    CHECK(cudaMemRangeGetAttribute(answer, sizeof(int), cudaMemRangeAttributeReadMostly, array, N * sizeof *array));
    printf(", all of it read mostly %d\n", answer[0]);
    launch_add(array + 5, N - 5, 0);
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(array, N, 1);
    CHECK(cudaFree(array));
    return report("advice and prefetches", wrong);
}

struct visit {
    int *array;
    std::atomic<int> wrong, seen;
};

static void CUDART_CB visit_all(void *argument)
{
    visit *v = (visit *)argument;

    v->wrong += count_wrong(v->array, N, 10 * (v->seen + 1) + v->seen);
    for (int i = 0; i < N; i++) {
        v->array[i]++;
    }
    v->seen++;
}

static int host_functions(void)
{
    visit v;
    cudaStream_t stream;
    int *other;
    int wrong = 0;

    v.wrong = v.seen = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int kind = 0; kind < 2; kind++) {
        v.seen = 0;
        CHECK(kind ? cudaHostAlloc(&v.array, N * sizeof(int), cudaHostAllocMapped)
                   : cudaMallocManaged(&v.array, N * sizeof(int)));
        number(v.array, N, 0);
        for (int i = 0; i < 3; i++) {
            launch_add(v.array, N, 10, stream);
            CHECK(cudaLaunchHostFunc(stream, visit_all, &v));
        }
        launch_add(v.array, N, 10, stream);
        CHECK(cudaMalloc(&other, 1000));
        CHECK(cudaFree(other)); /* waits for the device, and so for the host functions */
        CHECK(cudaStreamSynchronize(stream));
        wrong += count_wrong(v.array, N, 43) + (v.seen != 3);
        CHECK(kind ? cudaFreeHost(v.array) : cudaFree(v.array));
    }
    CHECK(cudaStreamDestroy(stream));
    return report("host functions", wrong + v.wrong);
}

static int threads(void)
{
    const int n_threads = 8, pages = 512;
    std::vector<std::thread> all;
    std::atomic<int> wrong(0);
    int *shared;

    CHECK(cudaMallocManaged(&shared, pages * 1024 * sizeof *shared));
    memset(shared, 0, pages * 1024 * sizeof *shared);
    launch_add(shared, pages * 1024, 7);
    CHECK(cudaDeviceSynchronize());
    for (int t = 0; t < n_threads; t++) {
        all.emplace_back([&, t] {
            unsigned at = 12345u + t;
            for (int i = 0; i < 2000; i++) {
                at = at * 1103515245u + 12345u;
                wrong += shared[(at >> 8) % (pages * 1024)] != 7;
            }
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    all.clear();
    CHECK(cudaFree(shared));
    for (int t = 0; t < n_threads; t++) {
        all.emplace_back([&, t] {
            int *own;
            cudaStream_t stream;
            CHECK(cudaStreamCreate(&stream));
            CHECK(cudaMallocHost(&own, N * sizeof *own));
            number(own, N, t);
            for (int round = 1; round <= 5; round++) {
                launch_add(own, N, 2, stream);
                CHECK(cudaStreamSynchronize(stream));
                wrong += count_wrong(own, N, t + 2 * round);
            }
            CHECK(cudaFreeHost(own));
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    return report("threads", wrong);
}

static int page_locked(void)
{
    places p, *there;
    int *in, *out, *mapped, *device;
    int wrong = 0;

    CHECK(cudaMallocHost(&in, N * sizeof *in));
    CHECK(cudaMallocHost(&out, N * sizeof *out));
    CHECK(cudaMalloc(&there, sizeof *there));
    number(in, N, 4);
    p.in = in;
    p.out = out;
    CHECK(cudaMemcpy(there, &p, sizeof p, cudaMemcpyHostToDevice));
    for (int round = 0; round < 3; round++) {
        through_places<<<(N + 255) / 256, 256>>>(there, N);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        wrong += count_wrong(out, N, 5 + round);
        for (int i = 0; i < N; i++) {
            in[i] = out[i];
        }
    }
    CHECK(cudaMalloc(&device, N * sizeof *device)); /* copies of what the device has mapped */
    CHECK(cudaMemcpy(device, in, N * sizeof *in, cudaMemcpyHostToDevice));
    launch_add(device, N, 5);
    CHECK(cudaMemcpy(out, device, N * sizeof *in, cudaMemcpyDeviceToHost));
    wrong += count_wrong(out, N, 12);
    CHECK(cudaFree(device));
    CHECK(cudaFree(there));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));

    CHECK(cudaHostAlloc(&mapped, N * sizeof *mapped, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    CHECK(cudaHostGetDevicePointer(&device, mapped, 0));
    number(mapped, N, 0);
    launch_add(device, N, 3);
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(mapped, N, 3);
    CHECK(cudaMemset(device, 0, 40));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 10; i++) {
        wrong += mapped[i] != 0;
    }
    wrong += mapped[10] != 13;
    CHECK(cudaFreeHost(mapped));
    return report("page-locked memory", wrong);
}

static int registered(void)
{
    const int n = 5000, small = 100;
    std::vector<int> memory(2 * n + 1000);
    int *a = &memory[3], *b = a + small + 5, *c = b + small + 9; /* the first two on one page */
    int wrong = 0;

    number(memory.data(), (int)memory.size(), 0);
    CHECK(cudaHostRegister(a, small * sizeof *a, cudaHostRegisterMapped));
    CHECK(cudaHostRegister(b, small * sizeof *b, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(c, n * sizeof *c, cudaHostRegisterPortable));
    for (int round = 0; round < 3; round++) {
        launch_add(a, small, 1000);
        launch_add(b, small, 2000);
        launch_add(c, n, 3000);
        a[small + 1]++; /* nobody's, between the first two */
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < (int)memory.size(); i++) {
            int *at = &memory[i];
            int more = at >= a && at < a + small   ? 1000
                       : at >= b && at < b + small ? 2000
                       : at >= c && at < c + n     ? 3000
                       : at == a + small + 1       ? 1
                                                   : 0;
            wrong += *at != i + more * (round + 1);
        }
    }
    b[0] = -1;
    CHECK(cudaHostUnregister(a));
    launch_add(b, small, 1);
    launch_add(c, n, 1);
    CHECK(cudaDeviceSynchronize());
    wrong += b[0] != 0;
    CHECK(cudaHostUnregister(c));
    CHECK(cudaHostUnregister(b));
    wrong += c[n - 1] != (int)(c + n - 1 - memory.data()) + 9001;
    return report("registered memory", wrong);
}

static int turns(void)
{
    const int rounds = 20;
    int *turn, *data, *device_turn, *device_data;
    int wrong = 0, expected = 1;

    CHECK(cudaHostAlloc(&turn, 64, cudaHostAllocMapped));
    CHECK(cudaHostAlloc(&data, 4096, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device_turn, turn, 0));
    CHECK(cudaHostGetDevicePointer(&device_data, data, 0));
    *(volatile int *)turn = 0;
    data[0] = 1;
    data[1] = 0;
    take_turns<<<1, 1>>>(device_turn, device_data, rounds);
    CHECK_LAUNCH();
    for (int i = 0; i < rounds; i++) {
        ((volatile int *)data)[1] = i;
        __atomic_store_n(turn, 2 * i + 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(turn, __ATOMIC_SEQ_CST) != 2 * i + 2) {
            sched_yield();
        }
        expected = expected * 3 + i;
        wrong += __atomic_load_n(data, __ATOMIC_SEQ_CST) != expected;
    }
    CHECK(cudaDeviceSynchronize());
    wrong += data[0] != expected;
    CHECK(cudaFreeHost(turn));
    CHECK(cudaFreeHost(data));
    return report("turns with a kernel that runs", wrong);
}

static int copies(void)
{
    std::vector<int> plain(N);
    int *one, *two, *device;
    int wrong = 0;

    CHECK(cudaMallocManaged(&one, N * sizeof *one));
    CHECK(cudaMallocManaged(&two, N * sizeof *two));
    CHECK(cudaMalloc(&device, N * sizeof *device));
    number(one, N, 0);
    CHECK(cudaMemcpy(device, one, N * sizeof *one, cudaMemcpyDefault));
    launch_add(device, N, 1);
    CHECK(cudaMemcpy(two, device, N * sizeof *one, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(two, N, 1);
    CHECK(cudaMemcpy(plain.data(), two, N * sizeof *one, cudaMemcpyDefault));
    wrong += count_wrong(plain.data(), N, 1);
    two[7] = -7;
    CHECK(cudaMemcpy2D(one, 400, two, 400, 400, 50, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    wrong += one[7] != -7 || one[4999] != 5000 || one[5000] != 5000;
    CHECK(cudaMemset(two, 0xff, 4000));
    CHECK(cudaDeviceSynchronize());
    wrong += two[999] != -1 || two[1000] != 1001;
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    CHECK(cudaFree(device));
    return report("copies", wrong);
}

static int children(void)
{
    std::vector<int> memory(N);
    int wrong = 0, status = 0;

    number(memory.data(), N, 0);
    CHECK(cudaHostRegister(memory.data(), N * sizeof memory[0], cudaHostRegisterMapped));
    launch_add(memory.data(), N, 5);
    CHECK(cudaDeviceSynchronize());
    pid_t child = fork();
    if (child == 0) {
        int bad = count_wrong(memory.data(), N, 5);
        memory[N / 2] = 1; /* its own copy */
        _exit(bad != 0);
    }
    waitpid(child, &status, 0);
    wrong += status != 0 || count_wrong(memory.data(), N, 5);
    launch_add(memory.data(), N, 5);
    CHECK(cudaDeviceSynchronize());
    wrong += count_wrong(memory.data(), N, 10);
    CHECK(cudaHostUnregister(memory.data()));
    wrong += count_wrong(memory.data(), N, 10);
    return report("a child process", wrong);
}

static sigjmp_buf back;

static void on_fault(int)
{
    siglongjmp(back, 1);
}

/* The program's own handler of faults, set after the device has been used, sees the program's own faults alone. */
static int own_handler(void)
{
    struct sigaction action = {}, before;
    int *array;
    int wrong = 0;
    volatile int caught = 0;

    CHECK(cudaMallocManaged(&array, N * sizeof *array));
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, &before);
    number(array, N, 0);
    for (int round = 0; round < 3; round++) {
        launch_add(array, N, 1);
        CHECK(cudaDeviceSynchronize());
        wrong += count_wrong(array, N, round + 1);
        if (sigsetjmp(back, 1) == 0) {
            *(volatile int *)8 = 1;
        } else {
            caught = caught + 1;
        }
    }
    wrong += caught != 3;
    sigaction(SIGSEGV, &before, NULL);
    CHECK(cudaFree(array));
    return report("the program's handler of faults", wrong);
}

static int system_calls(void)
{
    char name[] = "/tmp/unified_memory.XXXXXX";
    int file = mkstemp(name), wrong = file < 0;
    const size_t size = N * sizeof(int);

    unlink(name);
    for (int kind = 0; kind < 3; kind++) {
        int *array, *second;
        CHECK(kind == 0   ? cudaMallocManaged(&array, size)
              : kind == 1 ? cudaMallocHost(&array, size)
                          : cudaHostAlloc(&array, size, cudaHostAllocMapped));
        CHECK(cudaMallocManaged(&second, size));
        number(array, N, kind);
        launch_add(array, N, 1);
        launch_add(second, N, 1);
        CHECK(cudaDeviceSynchronize());
        wrong += pwrite(file, array, size, 0) != (ssize_t)size; /* held by the device */
        wrong += pread(file, second, size, 0) != (ssize_t)size;
        launch_add(second, N, 1);
        CHECK(cudaDeviceSynchronize());
        wrong += count_wrong(second, N, kind + 2);
        launch_add(second, N, 1);
        CHECK(cudaDeviceSynchronize());
        lseek(file, 0, SEEK_SET);
        FILE *stream = fdopen(dup(file), "r+");
        wrong += fwrite(second, 1, size, stream) != size || fflush(stream) != 0;
        launch_add(array, N, 1);
        CHECK(cudaDeviceSynchronize());
        rewind(stream);
        wrong += fread(array, 1, size, stream) != size;
        fclose(stream);
        wrong += count_wrong(array, N, kind + 3);
        CHECK(kind ? cudaFreeHost(array) : cudaFree(array));
        CHECK(cudaFree(second));
    }
    close(file);
    return report("system calls", wrong);
}

static int blocked_signals(void)
{
    int *array;
    std::atomic<int> wrong(0);
    CHECK(cudaMallocManaged(&array, N * sizeof *array));
    number(array, N, 0);
    launch_add(array, N, 1);
    CHECK(cudaDeviceSynchronize());
    std::thread thread([&] {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        wrong += count_wrong(array, N, 1);
    });
    thread.join();
    CHECK(cudaFree(array));
    return report("a thread that blocks signals", wrong);
}

static int held(void)
{
    int *array;

    CHECK(cudaMallocManaged(&array, N * sizeof *array));
    number(array, N, 0);
    launch_add(array, N, 1);
    CHECK(cudaDeviceSynchronize());
    sleep(4);
    int wrong = report("held by the device", count_wrong(array, N, 1));
    CHECK(cudaFree(array));
    return wrong;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("unified_memory", "[calls | held]", argc, argv);
    int wrong = 0;

    if (example.argument_count > 0 && strcmp(example.arguments[0], "held") == 0) {
        return example_end(&example, held() == 0);
    }
    wrong += variables();
    wrong += objects();
    wrong += attached();
    wrong += advice();
    wrong += copies();
    wrong += host_functions();
    wrong += threads();
    wrong += page_locked();
    wrong += registered();
    wrong += turns();
    wrong += children();
    wrong += own_handler();
    if (example.argument_count > 0 && strcmp(example.arguments[0], "calls") == 0) {
        wrong += system_calls();
        wrong += blocked_signals();
    }
    return example_end(&example, wrong == 0);
}
