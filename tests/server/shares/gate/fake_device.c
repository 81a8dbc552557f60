/* fake_device.c - see fake_device.h. */
#include "tests/server/shares/gate/fake_device.h"

#include "common/base/clock.h"
#include "tests/check.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { STREAMS = 64, MOMENT_NS = 200000 };

static struct stream {
    CUstream object;
    uint64_t given, done_at; /* in all; when the last of it is done */
} streams[STREAMS];
static unsigned n_streams, last, overlaps;
static uint64_t each, free_at;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct stream *find(CUstream object)
{
    for (unsigned i = 0; i < n_streams; i++)
        if (streams[i].object == object)
            return &streams[i];
    CHECK(n_streams < STREAMS);
    streams[n_streams].object = object;
    return &streams[n_streams++];
}

static CUresult give(CUstream object, uint64_t ns)
{
    pthread_mutex_lock(&lock);
    const uint64_t now = rg_now_ns();
    struct stream *stream = find(object);
    for (unsigned i = 0; i < n_streams; i++)
        overlaps += &streams[i] != stream && streams[i].done_at > now + MOMENT_NS;
    free_at = (free_at > now ? free_at : now) + ns;
    stream->given += ns;
    stream->done_at = free_at;
    last = (unsigned)(stream - streams);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult query(CUstream object)
{
    pthread_mutex_lock(&lock);
    const bool done = find(object)->done_at <= rg_now_ns();
    pthread_mutex_unlock(&lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size;
    return give(stream, each);
}

static CUresult fill(CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    (void)to, (void)value;
    return give(stream, size);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)address, (void)value, (void)flags;
    return give(stream, each);
}

void fake_device_use(uint64_t ns)
{
    each = ns;
    rg_driver.cuStreamQuery = query;
    rg_driver.cuMemcpyDtoDAsync_v2 = copy;
    rg_driver.cuMemsetD8Async = fill;
    rg_driver.cuStreamWriteValue32_v2 = write_value;
}

unsigned fake_device_last(void)
{
    return last;
}

uint64_t fake_device_work(unsigned n)
{
    pthread_mutex_lock(&lock);
    const uint64_t now = rg_now_ns(), late = streams[n].done_at > now ? streams[n].done_at - now : 0;
    const uint64_t work = streams[n].given > late ? streams[n].given - late : 0;
    pthread_mutex_unlock(&lock);
    return work;
}

unsigned fake_device_overlaps(void)
{
    pthread_mutex_lock(&lock);
    const unsigned n = overlaps;
    pthread_mutex_unlock(&lock);
    return n;
}
