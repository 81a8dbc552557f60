/*
 * collective_ranks.c - one rank of NCCL's, which times collectives by size; a program of the driver API, unaware of where the GPUs are.
 *
 *   collective_ranks ID_FILE RANKS RANK OPERATION SIZE…         times OPERATION (all_reduce, all_gather, reduce_scatter, broadcast)
 *   collective_ranks ID_FILE RANKS RANK OPERATION=TIMES SIZE    does it so often, between "ready" and "done" on stdout, each of
 *                                                              which waits for a line of stdin: for others to count bytes
 *
 * SIZE is of the larger of both buffers, in bytes. As nccl-tests has it, a sample is the time of a burst of calls until the stream
 * has done all of them, divided by their number. Rank 0 makes the id, and the last one prints the lines
 * (of a broadcast rank 0 only knows that it has sent); each rank checks a result of every size.
 */
#include "cuda_program.h"
#include "nccl_program.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 9, BURST_MOST = 1000, BYTES_OF_A_SIZE = 64 << 20 };

static int ranks, rank;
static ncclComm_t comm;
static CUstream stream;
static CUdeviceptr from, to;

static ncclUniqueId share_id(const char *path)
{
    ncclUniqueId id;
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        FILE *file = fopen(temporary, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 ||
            rename(temporary, path) != 0)
            fail("%s cannot be written", path);
        return id;
    }
    FILE *file;
    while (!(file = fopen(path, "rb")))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (fread(&id, sizeof id, 1, file) != 1)
        fail("%s cannot be read", path);
    fclose(file);
    return id;
}

static void call(const char *operation, size_t size)
{
    const size_t whole = size / sizeof(float), part = whole / (size_t)ranks;
    const void *source = (const void *)(uintptr_t)from;
    void *target = (void *)(uintptr_t)to;
    if (strcmp(operation, "all_reduce") == 0)
        NCCL(ncclAllReduce(source, target, whole, ncclFloat32, ncclSum, comm, stream));
    else if (strcmp(operation, "all_gather") == 0)
        NCCL(ncclAllGather(source, target, part, ncclFloat32, comm, stream));
    else if (strcmp(operation, "reduce_scatter") == 0)
        NCCL(ncclReduceScatter(source, target, part, ncclFloat32, ncclSum, comm, stream));
    else if (strcmp(operation, "broadcast") == 0)
        NCCL(ncclBroadcast(source, target, whole, ncclFloat32, 0, comm, stream));
    else
        fail("there is no operation %s", operation);
}

/* Ends when all ranks have come here. */
static void synchronize(void)
{
    ncclResult_t state;
    CHECK(cuStreamSynchronize(stream));
    NCCL(ncclCommGetAsyncError(comm, &state));
    check_nccl(state, "a collective");
}

/* What a rank gives: small whole numbers, so that sums are exact. */
static float value(int of, size_t i)
{
    return (float)((i + (size_t)of * 3) % 13);
}

static float expected(const char *operation, size_t size, size_t i)
{
    const size_t part = size / sizeof(float) / (size_t)ranks;
    float sum = 0;
    if (strcmp(operation, "all_gather") == 0)
        return value((int)(i / part), i % part);
    if (strcmp(operation, "broadcast") == 0)
        return value(0, i);
    for (int of = 0; of < ranks; of++)
        sum += value(of, strcmp(operation, "all_reduce") == 0 ? i : (size_t)rank * part + i);
    return sum;
}

static void verify(const char *operation, size_t size, float *values)
{
    const size_t count =
        size / sizeof(float) / (size_t)(strcmp(operation, "reduce_scatter") == 0 ? ranks : 1);
    CHECK(cuMemcpyDtoH(values, to, count * sizeof *values));
    for (size_t i = 0; i < count; i++)
        if (values[i] != expected(operation, size, i))
            fail("%s of %zu bytes: element %zu is %g and not %g", operation, size, i, (double)values[i],
                 (double)expected(operation, size, i));
}

static void measure(const char *operation, size_t size, float *values)
{
    static struct samples samples;
    size_t burst = BYTES_OF_A_SIZE / size;
    char name[64];
    burst = burst < 1 ? 1 : burst > BURST_MOST ? BURST_MOST : burst;
    CHECK(cuMemsetD8Async(to, 0, size, stream));
    call(operation, size);
    synchronize();
    verify(operation, size, values);
    for (int i = 0; i < SAMPLES; i++) {
        call("all_reduce", 4 * (size_t)ranks); /* begins when the last rank has come */
        synchronize();
        const uint64_t began = now_ns();
        for (size_t k = 0; k < burst; k++)
            call(operation, size);
        synchronize();
        samples_add(&samples, (double)(now_ns() - began) / (double)burst);
    }
    snprintf(name, sizeof name, "%s.%zu", operation, size);
    if (rank == ranks - 1)
        samples_print(&samples, name, "ns");
    samples.n = 0;
}

static void say_and_wait(const char *word)
{
    puts(word);
    fflush(stdout);
    if (getchar() == EOF)
        fail("nobody waits for this");
}

static void count_calls(const char *operation, size_t size, int times)
{
    call(operation, size);
    synchronize();
    say_and_wait("ready");
    for (int i = 0; i < times; i++)
        call(operation, size);
    synchronize();
    say_and_wait("done");
}

int main(int argc, char **argv)
{
    size_t most = 0;
    if (argc < 6)
        fail("usage: collective_ranks ID_FILE RANKS RANK OPERATION[=TIMES] SIZE…");
    ranks = atoi(argv[2]);
    rank = atoi(argv[3]);
    for (int i = 5; i < argc; i++)
        most = strtoull(argv[i], NULL, 10) > most ? strtoull(argv[i], NULL, 10) : most;
    load_nccl();
    use_first_device();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&from, most));
    CHECK(cuMemAlloc(&to, most));
    char *times = strchr(argv[4], '=');
    if (times)
        *times++ = '\0';
    float *values = memory_of_pages(most);
    for (size_t i = 0; i < most / sizeof *values; i++)
        values[i] = value(rank, i);
    CHECK(cuMemcpyHtoD(from, values, most));
    const ncclUniqueId id = share_id(argv[1]);
    NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    for (int i = 5; i < argc && !times; i++)
        measure(argv[4], strtoull(argv[i], NULL, 10), values);
    if (times)
        count_calls(argv[4], most, atoi(times));
    NCCL(ncclCommDestroy(comm));
    return 0;
}
