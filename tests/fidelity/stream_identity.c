/*
 * stream_identity.c - which streams are the same to libraries that ask the driver as cuBLAS does: by two slots of a table that
 * cuGetExportTable has. Workspaces of cuBLAS's go by the answers.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "must.h"

static CUcontext context;
static CUresult (*find)(CUcontext, CUstream, CUstream *, int);
static CUresult (*number)(CUcontext, CUstream, unsigned long long *);

/* `per_thread`: what NULL means. */
static unsigned long long ask(CUstream handle, int per_thread)
{
    CUstream stream = NULL;
    unsigned long long id = 0x7f9d00000000; /* as what happens to lie there */
    CHECK(find(context, handle, &stream, per_thread));
    CHECK(number(context, stream, &id));
    return id;
}

static bool as_the_driver_says(CUstream stream)
{
    unsigned long long id = 0;
    CHECK(cuStreamGetId(stream, &id));
    return ask(stream, 0) == id;
}

static void *ask_elsewhere(void *id)
{
    CHECK(cuCtxSetCurrent(context));
    *(unsigned long long *)id = ask(CU_STREAM_PER_THREAD, 1);
    return NULL;
}

static int n_wrong;

static void expect(bool right, const char *what)
{
    printf("%s: %s\n", what, right ? "yes" : "NO");
    n_wrong += !right;
}

int main(void)
{
    static const CUuuid libraries = {{0x21, 0x31, (char)0x8c, 0x60, (char)0x97, 0x14, 0x32, 0x48, (char)0x8c,
                                      (char)0xa6, 0x41, (char)0xff, 0x73, 0x24, (char)0xc8, (char)0xf2}};
    const void *table;
    CUstream a, b;
    pthread_t thread;
    unsigned long long elsewhere = 0;
    context = use_first_device();
    CHECK(cuGetExportTable(&table, &libraries));
    memcpy(&number, (const char *)table + 39 * sizeof(void *), sizeof number);
    memcpy(&find, (const char *)table + 51 * sizeof(void *), sizeof find);
    CHECK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    expect(ask(a, 0) == ask(a, 0), "a stream is one");
    expect(ask(a, 0) != ask(b, 0), "two streams are two");
    expect(ask(a, 0) != ask(NULL, 0), "a stream is not the default one");
    expect(ask(NULL, 0) == ask(CU_STREAM_LEGACY, 0), "the default stream has two names");
    expect(ask(NULL, 1) == ask(CU_STREAM_PER_THREAD, 1), "the thread's stream has two names");
    expect(ask(NULL, 0) != ask(NULL, 1), "the default streams are two");
    expect(as_the_driver_says(a) && as_the_driver_says(b) && as_the_driver_says(CU_STREAM_LEGACY) &&
               as_the_driver_says(CU_STREAM_PER_THREAD),
           "cuStreamGetId says the same");
    const unsigned long long first = ask(a, 0);
    CHECK(cuStreamDestroy_v2(a));
    CHECK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    expect(ask(a, 0) != first, "a stream is not the one before it");
    must(pthread_create(&thread, NULL, ask_elsewhere, &elsewhere) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS,
         "a thread");
    (void)pthread_join(thread, NULL);
    expect(ask(CU_STREAM_PER_THREAD, 1) != elsewhere, "another thread's stream is another one");
    return n_wrong != 0;
}
