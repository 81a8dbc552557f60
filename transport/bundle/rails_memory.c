/*
 * rails_memory.c - memory of all rails: what is registered is registered with each connection, GPUs' memory too, and what is
 * lent is lent where it is of use.
 *
 * With a tag: over all connections, by whichever the data comes. Without: each piece over one, the first connection as long
 * as it has room, or the rails while the peer uses them. What was lent over a rail that is gone goes to others, once
 * nothing more can be received by it.
 *
 * A GPU's memory is registered with all or with none, so that whichever rail carries it needs no processor for that: a rail
 * that cannot have what is registered already is not taken.
 */
#include "transport/bundle/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { FIRST_KEEPS = 4 }; /* pieces that are left to the first connection while the peer uses rails */

/* The first connection and those of rails, of all or of those that are left. memory_lock is held: they stay. */
static unsigned connections(struct bundle *b, bool living, struct rg_conn *out[RG_BUNDLE_LANES + 1])
{
    unsigned n = 0;
    out[n++] = b->first;
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < b->options.lanes; i++)
        if (b->lanes[i].conn && (!living || !b->lanes[i].dropped))
            out[n++] = b->lanes[i].conn;
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* --- registering --- */

static enum rg_status add_memory(struct bundle *b, const struct rg_bundle_memory *one)
{
    if (b->n_memory == b->memory_room) {
        const unsigned room = b->memory_room ? 2 * b->memory_room : 16;
        struct rg_bundle_memory *memory = realloc(b->memory, room * sizeof *memory);
        if (!memory)
            return RG_ERR_NO_MEMORY;
        b->memory = memory;
        b->memory_room = room;
    }
    b->memory[b->n_memory++] = *one;
    return RG_OK;
}

static void forget_memory(struct bundle *b, unsigned index)
{
    if (b->memory[index].fd >= 0)
        close(b->memory[index].fd);
    b->memory[index] = b->memory[--b->n_memory];
}

enum rg_status rg_rails_prepare(struct bundle *b, struct rg_conn *conn)
{
    for (unsigned i = 0; i < b->n_memory; i++) {
        const struct rg_bundle_memory *one = &b->memory[i];
        if (!one->device) {
            (void)rg_conn_register(conn, one->base, one->size); /* else it is copied */
        } else if (rg_conn_register_device(conn, one->base, one->size, one->fd, one->offset) != RG_OK) {
            rg_info("%s is no rail: its device does not take the GPU's memory", rg_conn_peer(conn));
            return RG_ERR_UNSUPPORTED;
        }
    }
    return RG_OK;
}

enum rg_status rg_rails_register(struct bundle *b, void *base, size_t size)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    pthread_mutex_lock(&b->memory_lock);
    enum rg_status status = rg_conn_register(b->first, base, size);
    if (status == RG_OK) {
        status = add_memory(b, &(struct rg_bundle_memory){.base = base, .size = size, .fd = -1});
        if (status != RG_OK)
            rg_conn_unregister(b->first, base);
    }
    if (status == RG_OK) {
        const unsigned n = connections(b, true, conns);
        for (unsigned i = 1; i < n; i++) {
            const enum rg_status at_rail = rg_conn_register(conns[i], base, size);
            status = at_rail == RG_ERR_NO_MEMORY ? at_rail : status; /* what has it uses it all the same */
        }
    }
    pthread_mutex_unlock(&b->memory_lock);
    return status;
}

unsigned rg_rails_device_paths(struct bundle *b)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    unsigned paths = ~0u;
    pthread_mutex_lock(&b->memory_lock);
    const unsigned n = connections(b, true, conns);
    for (unsigned i = 0; i < n; i++)
        paths &= rg_conn_device_paths(conns[i]);
    pthread_mutex_unlock(&b->memory_lock);
    return paths;
}

enum rg_status rg_rails_register_device(struct bundle *b, void *base, size_t size, int fd, uint64_t offset)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    struct rg_bundle_memory one = {.base = base, .size = size, .device = true, .fd = -1, .offset = offset};
    if (fd >= 0 && (one.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) /* for rails that come later */
        return RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&b->memory_lock);
    const unsigned n = connections(b, true, conns);
    enum rg_status status = RG_OK;
    unsigned done = 0;
    for (; done < n && status == RG_OK; done++)
        status = rg_conn_register_device(conns[done], base, size, fd, offset);
    int error = errno;
    if (status == RG_OK && (status = add_memory(b, &one)) != RG_OK)
        error = ENOMEM;
    else if (status != RG_OK)
        done--; /* the one that failed */
    for (unsigned i = 0; i < done && status != RG_OK; i++)
        rg_conn_unregister(conns[i], base);
    pthread_mutex_unlock(&b->memory_lock);
    if (status != RG_OK && one.fd >= 0)
        close(one.fd);
    errno = error;
    return status;
}

static void forget_loans(struct loans *loans, const unsigned char *base, size_t size)
{
    for (unsigned i = 0; i < loans->n;)
        if (loans->all[i].memory >= base && loans->all[i].memory < base + size)
            loans->all[i] = loans->all[--loans->n];
        else
            i++;
}

void rg_rails_unregister(struct bundle *b, void *base)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    pthread_mutex_lock(&b->memory_lock);
    for (unsigned i = 0; i < b->n_memory; i++) {
        if (b->memory[i].base != base)
            continue;
        const size_t size = b->memory[i].size;
        pthread_mutex_lock(&b->lock);
        forget_loans(&b->first_loans, base, size);
        forget_loans(&b->homeless, base, size);
        for (unsigned k = 0; k < b->options.lanes; k++)
            forget_loans(&b->lanes[k].loans, base, size);
        pthread_mutex_unlock(&b->lock);
        forget_memory(b, i);
        const unsigned n = connections(b, false, conns);
        for (unsigned k = 0; k < n; k++)
            rg_conn_unregister(conns[k], base);
        break;
    }
    pthread_mutex_unlock(&b->memory_lock);
}

void rg_rails_memory_end(struct bundle *b)
{
    while (b->n_memory)
        forget_memory(b, b->n_memory - 1);
}

/* --- lending --- */

static bool lend_by(struct rg_conn *conn, struct loans *loans, void *memory, size_t size,
                    enum rg_status *status)
{
    if (loans->n == RG_BUNDLE_LOANS)
        return false;
    *status = rg_conn_lend(conn, 0, 0, memory, size);
    if (*status == RG_OK)
        loans->all[loans->n++] = (struct loan){memory, size};
    return *status == RG_OK;
}

/* By the rail over which the least is lent. */
static bool lend_by_rail(struct bundle *b, void *memory, size_t size, enum rg_status *status)
{
    struct lane *best = NULL;
    for (unsigned i = 0; i < b->options.lanes; i++)
        if (!b->lanes[i].dropped && (!best || b->lanes[i].loans.n < best->loans.n))
            best = &b->lanes[i];
    return best && lend_by(best->conn, &best->loans, memory, size, status);
}

/* A piece without a tag; the lock is held. */
static enum rg_status lend_piece(struct bundle *b, void *memory, size_t size)
{
    enum rg_status status = RG_ERR_TIMEOUT;
    if (b->peer_stripes && b->first_loans.n >= FIRST_KEEPS && lend_by_rail(b, memory, size, &status))
        return status;
    if (lend_by(b->first, &b->first_loans, memory, size, &status) || status == RG_ERR_UNSUPPORTED)
        return status;
    return lend_by_rail(b, memory, size, &status) ? RG_OK : status;
}

void rg_rails_lend_again(struct bundle *b)
{
    for (unsigned i = 0; i < b->options.lanes; i++) {
        struct lane *lane = &b->lanes[i];
        for (; lane->dropped && lane->closed && lane->reader_ended && lane->loans.n &&
               b->homeless.n < RG_BUNDLE_LOANS;)
            b->homeless.all[b->homeless.n++] = lane->loans.all[--lane->loans.n];
    }
    while (b->homeless.n && !b->ending && !b->interrupted) {
        const struct loan *one = &b->homeless.all[b->homeless.n - 1];
        if (lend_piece(b, one->memory, one->size) != RG_OK)
            break;
        b->homeless.n--;
    }
}

enum rg_status rg_rails_lend(struct bundle *b, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    enum rg_status status;
    if (!tag) {
        pthread_mutex_lock(&b->lock);
        rg_rails_lend_again(b);
        status = lend_piece(b, memory, size);
        pthread_mutex_unlock(&b->lock);
        return status;
    }
    pthread_mutex_lock(&b->memory_lock);
    const unsigned n = connections(b, true, conns);
    status = rg_conn_lend(b->first, tag, base, memory, size);
    for (unsigned i = 1; i < n && status == RG_OK && size >= RG_RAILS_MIN; i++)
        (void)rg_conn_lend(conns[i], tag, base, memory, size); /* else what comes by it is asked for */
    pthread_mutex_unlock(&b->memory_lock);
    return status;
}

void rg_rails_unlend(struct bundle *b, uint64_t tag, void *memory)
{
    struct rg_conn *conns[RG_BUNDLE_LANES + 1];
    pthread_mutex_lock(&b->memory_lock);
    const unsigned n = connections(b, false, conns);
    for (unsigned i = 0; i < n; i++)
        rg_conn_unlend(conns[i], tag, memory);
    pthread_mutex_unlock(&b->memory_lock);
}

void rg_rails_lent_is_back(struct loans *loans, const void *memory)
{
    const unsigned char *at = memory;
    for (unsigned i = 0; i < loans->n; i++)
        if (at >= loans->all[i].memory && at < loans->all[i].memory + loans->all[i].size) {
            loans->all[i] = loans->all[--loans->n];
            return;
        }
}
