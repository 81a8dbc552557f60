/* report.c - see report.h. */
#include "client/profile/report.h"

#include "client/profile/json_text.h"
#include "client/profile/output_file.h"
#include "client/profile/tables.h"
#include "client/profile/threads.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_NS 100000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static char path[PATH_MAX];
static int fd = -1;
static off_t end_of_events;
static bool over, complained;
static struct rg_json_text buffer;
static uint64_t known_calls;
static uint64_t known_events;

static void event_text(const struct rg_profile_event *event, int thread)
{
    const uint64_t zero = rg_profile_started();
    rg_json_text_put(&buffer, ",\n{\"name\":\"");
    rg_json_text_put(&buffer, event->kind == RG_PROFILE_WAIT ? "wait"
                              : event->api == RG_PROFILE_OWN ? "remote-gpu"
                                                             : rg_profile_names[event->api]);
    rg_json_text_put(&buffer, event->kind == RG_PROFILE_WAIT ? "\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":"
                                                             : "\",\"cat\":\"call\",\"ph\":\"X\",\"pid\":");
    rg_json_text_number(&buffer, (uint64_t)getpid());
    rg_json_text_put(&buffer, ",\"tid\":");
    rg_json_text_number(&buffer, (uint64_t)thread);
    rg_json_text_put(&buffer, ",\"ts\":");
    rg_json_text_us(&buffer, event->start > zero ? event->start - zero : 0);
    rg_json_text_put(&buffer, ",\"dur\":");
    rg_json_text_us(&buffer, event->end - event->start);
    if (event->round_trips) {
        rg_json_text_put(&buffer, ",\"args\":{\"round_trips\":");
        rg_json_text_number(&buffer, event->round_trips);
        rg_json_text_put(&buffer, "}");
    }
    rg_json_text_put(&buffer, "}");
}

/* The events that are new, which are then forgotten. */
static void take_events(void)
{
    struct rg_profile_chunk *previous = NULL, *chunk = rg_profile_chunks();
    while (chunk) {
        const bool closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
        const unsigned n = atomic_load_explicit(&chunk->n, memory_order_acquire);
        for (; chunk->written < n; chunk->written++, known_events++)
            event_text(&chunk->events[chunk->written], chunk->thread);
        if (closed) {
            chunk = rg_profile_chunk_drop(previous, chunk);
        } else {
            previous = chunk;
            chunk = atomic_load(&chunk->next);
        }
    }
}

static bool write_at(off_t at, const char *data, size_t size)
{
    return rg_file_write_at(fd, at, data, size) && ftruncate(fd, at + (off_t)size) == 0;
}

/* Writes new events and a new end; the lock is held. */
static void write_new(bool last)
{
    buffer.used = 0;
    take_events();
    const off_t events_size = (off_t)buffer.used;
    rg_profile_end_text(&buffer, known_events, last);
    if (!buffer.failed && write_at(end_of_events, buffer.data, buffer.used)) {
        end_of_events += events_size;
        return;
    }
    if (!complained)
        rg_warn("cannot write the profile to %s: %s", path,
                buffer.failed ? "out of memory" : strerror(errno));
    complained = true;
}

static uint64_t calls_so_far(void)
{
    static struct rg_profile_sum rows[RG_API_COUNT + 1];
    uint64_t calls = 0;
    rg_profile_add_up(rows);
    for (int i = 0; i <= RG_API_COUNT; i++)
        calls += rows[i].calls;
    return calls;
}

static void *writer_main(void *unused)
{
    (void)unused;
    for (;;) {
        rg_pause(PERIOD_NS);
        pthread_mutex_lock(&lock);
        if (over) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        const uint64_t calls = calls_so_far();
        if (calls != known_calls && !complained)
            write_new(false);
        known_calls = calls;
        pthread_mutex_unlock(&lock);
    }
}

bool rg_profile_report_start(const char *wanted)
{
    fd = rg_profile_create_file(wanted, path);
    rg_json_text_put(
        &buffer,
        "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":");
    rg_json_text_number(&buffer, (uint64_t)getpid());
    rg_json_text_put(&buffer, ",\"args\":{\"name\":");
    rg_json_text_string(&buffer, program_invocation_short_name);
    rg_json_text_put(&buffer, "}}");
    if (fd < 0 || buffer.failed || !write_at(0, buffer.data, buffer.used)) {
        rg_warn("cannot write the profile to %s: %s", path, rg_profile_file_error(errno));
        return false;
    }
    end_of_events = (off_t)buffer.used;
    pthread_mutex_lock(&lock);
    write_new(false);
    pthread_mutex_unlock(&lock);
    if (rg_thread_create_detached("rg-profile", writer_main, NULL) != RG_OK)
        rg_warn("cannot start a thread; the profile is written at the end only");
    return true;
}

void rg_profile_report_finish(void)
{
    RG_SCOPED_LOCK(&lock);
    if (!over) {
        over = true;
        write_new(true);
        close(fd);
        buffer.used = 0;
        rg_profile_summary_text(&buffer, path);
        if (!buffer.failed)
            (void)rg_file_write(STDERR_FILENO, buffer.data, buffer.used); /* else there is nobody to tell */
    }
}
