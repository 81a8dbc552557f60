/*
 * blas_streams.c - cuBLAS: products under way in two streams at once, whose sums of parts go through a workspace.
 *
 * A handle has some workspaces, and uses one again as soon as an event says that it is free, or in the same stream. Whether it is the
 * same stream the driver tells it; where it is wrong about that, two products write into one workspace. That shows in most runs of
 * `ROUNDS`, not in each product.
 */
#include "library.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS  2
#define PRODUCTS 4 /* of a stream in a round */
#define ROUNDS   12

/* Such that the library sums in parts. */
enum { M = 100, N = 1024, K = 32 };

/* What one stream multiplies. */
struct job {
    cublasHandle_t handle;
    cudaStream_t stream;
    struct array a, b, c[PRODUCTS];
    double complex *expected;
    int status;
    double error; /* the largest of all products */
};

static double complex *product_of(const struct array *a, const struct array *b)
{
    double complex *c = calloc((size_t)M * N, sizeof *c);
    must(c == NULL, "calloc");
    for (size_t j = 0; j < N; j++)
        for (size_t i = 0; i < M; i++) {
            double sum = 0;
            for (size_t l = 0; l < K; l++)
                sum += creal(array_get(a, l + i * K)) * creal(array_get(b, l + j * K));
            c[i + j * M] = sum;
        }
    return c;
}

static struct job job_new(cublasHandle_t handle, cudaStream_t stream)
{
    struct job job = {.handle = handle,
                      .stream = stream,
                      .a = array_random(S, (size_t)K * M),
                      .b = array_random(S, (size_t)K * N)};
    for (int i = 0; i < PRODUCTS; i++)
        job.c[i] = array_zero(S, (size_t)M * N);
    job.expected = product_of(&job.a, &job.b);
    return job;
}

static void job_free(struct job *job)
{
    array_free(&job->a), array_free(&job->b);
    for (int i = 0; i < PRODUCTS; i++)
        array_free(&job->c[i]);
    free(job->expected);
}

/* Puts product `i` into the job's stream. The handle must have that stream. */
static void multiply(struct job *job, int i)
{
    const float one = 1, zero = 0;
    MUST(cudaMemsetAsync(job->c[i].device, 0xff, job->c[i].n * sizeof(float), job->stream));
    const int status = cublasSgemm(job->handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &one, job->a.device, K,
                                   job->b.device, K, &zero, job->c[i].device, M);
    job->status = job->status != 0 ? job->status : status;
}

/* Behind all work: looks at what has been computed. */
static void look(struct job *job)
{
    for (int i = 0; i < PRODUCTS; i++) {
        const double error = array_error(&job->c[i], job->expected, job->c[i].n);
        if (!(error <= job->error) && !isnan(job->error)) /* one that is no number stays */
            job->error = error;
    }
}

/* One thread, one handle, streams in turn; `flags`: of the streams. */
static void one_handle(unsigned flags, const char *what)
{
    struct job jobs[STREAMS];
    cublasHandle_t handle;
    MUST(cublasCreate(&handle));
    for (int s = 0; s < STREAMS; s++) {
        cudaStream_t stream;
        MUST(cudaStreamCreateWithFlags(&stream, flags));
        jobs[s] = job_new(handle, stream);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PRODUCTS; i++)
            for (int s = 0; s < STREAMS; s++) {
                MUST(cublasSetStream(handle, jobs[s].stream));
                multiply(&jobs[s], i);
            }
        MUST(cudaDeviceSynchronize());
        for (int s = 0; s < STREAMS; s++)
            look(&jobs[s]);
    }
    for (int s = 0; s < STREAMS; s++) {
        tried(jobs[s].status, jobs[s].error, type_tolerance(S), "cublas sgemm by one handle, %s stream %d",
              what, s);
        MUST(cudaStreamDestroy(jobs[s].stream));
        job_free(&jobs[s]);
    }
    MUST(cublasDestroy(handle));
}

static pthread_barrier_t round_begins;

static void *multiply_all(void *of)
{
    struct job *job = of;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&round_begins);
        for (int i = 0; i < PRODUCTS; i++)
            multiply(job, i);
        MUST(cudaStreamSynchronize(job->stream));
        look(job);
    }
    return NULL;
}

/* Runs the jobs, each in a thread, and says what became of them. */
static void in_threads(struct job *jobs, const char *what)
{
    pthread_t threads[STREAMS];
    must(pthread_barrier_init(&round_begins, NULL, STREAMS), "pthread_barrier_init");
    for (int s = 0; s < STREAMS; s++)
        must(pthread_create(&threads[s], NULL, multiply_all, &jobs[s]), "pthread_create");
    for (int s = 0; s < STREAMS; s++)
        must(pthread_join(threads[s], NULL), "pthread_join");
    pthread_barrier_destroy(&round_begins);
    for (int s = 0; s < STREAMS; s++)
        tried(jobs[s].status, jobs[s].error, type_tolerance(S), "cublas sgemm by %s, thread %d", what, s);
}

/* One handle, whose stream is another one in each thread. */
static void thread_streams(void)
{
    struct job jobs[STREAMS];
    cublasHandle_t handle;
    MUST(cublasCreate(&handle));
    MUST(cublasSetStream(handle, cudaStreamPerThread));
    for (int s = 0; s < STREAMS; s++)
        jobs[s] = job_new(handle, cudaStreamPerThread);
    in_threads(jobs, "one handle with the threads' streams");
    for (int s = 0; s < STREAMS; s++)
        job_free(&jobs[s]);
    MUST(cublasDestroy(handle));
}

/* A handle and a stream for each thread. */
static void own_handles(void)
{
    struct job jobs[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        cublasHandle_t handle;
        cudaStream_t stream;
        MUST(cublasCreate(&handle));
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cublasSetStream(handle, stream));
        jobs[s] = job_new(handle, stream);
    }
    in_threads(jobs, "a handle for each thread");
    for (int s = 0; s < STREAMS; s++) {
        MUST(cublasDestroy(jobs[s].handle));
        MUST(cudaStreamDestroy(jobs[s].stream));
        job_free(&jobs[s]);
    }
}

int main(int argc, char **argv)
{
    if (wanted(argc, argv, "streams")) {
        one_handle(cudaStreamNonBlocking, "non-blocking");
        one_handle(cudaStreamDefault, "blocking");
    }
    if (wanted(argc, argv, "threads")) {
        thread_streams();
        own_handles();
    }
    return verdict();
}
