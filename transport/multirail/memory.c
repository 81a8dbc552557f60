/*
 * memory.c - memory of all rails: what is registered is registered with each connection, GPUs' memory too,
 * and what is advertised is advertised where it is of use.
 *
 * With a tag: over all connections, by whichever the data comes. Without: each piece over one, the first
 * connection as long as it has room, or the rails while the peer uses them. What was advertised over a rail
 * that is gone goes to others, once nothing more can be received by it.
 *
 * A GPU's memory is registered with all or with none, so that whichever rail carries it needs no processor
 * for that: a rail that cannot have what is registered already is not taken.
 */
#include "transport/multirail/internal.h"

#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { FIRST_KEEPS = 4 }; /* pieces that are left to the first connection while the peer uses rails */

/*
 * The first connection and those of rails, of all or of those that are left. memory_lock is held: they stay.
 */
static unsigned connections(struct multirail *m, bool living, struct rg_conn *out[RG_FANOUT_CHANNELS + 1])
{
    unsigned n = 0;
    out[n++] = m->f.first;
    RG_SCOPED_LOCK(&m->f.lock);
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].base.conn && (!living || !m->rails[i].base.dropped))
            out[n++] = m->rails[i].base.conn;
    return n;
}

/* --- registering --- */

static enum rg_status add_memory(struct multirail *m, const struct rg_multirail_memory *one)
{
    if (m->n_memory == m->memory_capacity) {
        const unsigned room = m->memory_capacity ? 2 * m->memory_capacity : 16;
        struct rg_multirail_memory *memory = realloc(m->memory, room * sizeof *memory);
        if (!memory)
            return RG_ERR_NO_MEMORY;
        m->memory = memory;
        m->memory_capacity = room;
    }
    m->memory[m->n_memory++] = *one;
    return RG_OK;
}

static void forget_memory(struct multirail *m, unsigned index)
{
    if (m->memory[index].fd >= 0)
        close(m->memory[index].fd);
    m->memory[index] = m->memory[--m->n_memory];
}

enum rg_status rg_multirail_prepare(struct multirail *m, struct rg_conn *conn)
{
    for (unsigned i = 0; i < m->n_memory; i++) {
        const struct rg_multirail_memory *one = &m->memory[i];
        if (!one->device) {
            (void)rg_conn_register(conn, one->base, one->size); /* else it is copied */
        } else if (rg_conn_register_device(conn, one->base, one->size, one->fd, one->offset) != RG_OK) {
            rg_info("%s is no rail: its device does not take the GPU's memory", rg_conn_peer(conn));
            return RG_ERR_UNSUPPORTED;
        }
    }
    return RG_OK;
}

enum rg_status rg_multirail_register(struct rg_conn *conn, void *base, size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    RG_SCOPED_LOCK(&m->memory_lock);
    enum rg_status status = rg_conn_register(m->f.first, base, size);
    if (status == RG_OK) {
        status = add_memory(m, &(struct rg_multirail_memory){.base = base, .size = size, .fd = -1});
        if (status != RG_OK)
            rg_conn_unregister(m->f.first, base);
    }
    if (status == RG_OK) {
        const unsigned n = connections(m, true, conns);
        for (unsigned i = 1; i < n; i++) {
            const enum rg_status at_rail = rg_conn_register(conns[i], base, size);
            status = at_rail == RG_ERR_NO_MEMORY ? at_rail : status; /* what has it uses it all the same */
        }
    }
    return status;
}

unsigned rg_multirail_device_paths(struct rg_conn *conn)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    unsigned paths = ~0u;
    RG_SCOPED_LOCK(&m->memory_lock);
    const unsigned n = connections(m, true, conns);
    for (unsigned i = 0; i < n; i++)
        paths &= rg_conn_device_paths(conns[i]);
    return paths;
}

enum rg_status rg_multirail_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                            uint64_t offset)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    struct rg_multirail_memory one = {.base = base, .size = size, .device = true, .fd = -1, .offset = offset};
    if (fd >= 0 && (one.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) /* for rails that come later */
        return RG_ERR_NO_MEMORY;
    pthread_mutex_lock(&m->memory_lock);
    const unsigned n = connections(m, true, conns);
    enum rg_status status = RG_OK;
    unsigned done = 0;
    for (; done < n && status == RG_OK; done++)
        status = rg_conn_register_device(conns[done], base, size, fd, offset);
    int error = errno;
    if (status == RG_OK && (status = add_memory(m, &one)) != RG_OK)
        error = ENOMEM;
    else if (status != RG_OK)
        done--; /* the one that failed */
    for (unsigned i = 0; i < done && status != RG_OK; i++)
        rg_conn_unregister(conns[i], base);
    pthread_mutex_unlock(&m->memory_lock);
    if (status != RG_OK && one.fd >= 0)
        close(one.fd);
    errno = error;
    return status;
}

static void forget_adverts(struct adverts *adverts, const unsigned char *base, size_t size)
{
    for (unsigned i = 0; i < adverts->n;)
        if (adverts->all[i].memory >= base && adverts->all[i].memory < base + size)
            adverts->all[i] = adverts->all[--adverts->n];
        else
            i++;
}

void rg_multirail_unregister(struct rg_conn *conn, void *base)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    pthread_mutex_lock(&m->memory_lock);
    for (unsigned i = 0; i < m->n_memory; i++) {
        if (m->memory[i].base != base)
            continue;
        const size_t size = m->memory[i].size;
        pthread_mutex_lock(&m->f.lock);
        forget_adverts(&m->first_adverts, base, size);
        forget_adverts(&m->unplaced_adverts, base, size);
        for (unsigned k = 0; k < m->options.rails; k++)
            forget_adverts(&m->rails[k].adverts, base, size);
        pthread_mutex_unlock(&m->f.lock);
        forget_memory(m, i);
        const unsigned n = connections(m, false, conns);
        for (unsigned k = 0; k < n; k++)
            rg_conn_unregister(conns[k], base);
        break;
    }
    pthread_mutex_unlock(&m->memory_lock);
}

void rg_multirail_memory_end(struct multirail *m)
{
    while (m->n_memory)
        forget_memory(m, m->n_memory - 1);
}

/* --- advertising --- */

static bool advertise_by(struct rg_conn *conn, struct adverts *adverts, void *memory, size_t size,
                         enum rg_status *status)
{
    if (adverts->n == RG_MULTIRAIL_ADVERTS)
        return false;
    *status = rg_conn_advertise(conn, 0, 0, memory, size);
    if (*status == RG_OK)
        adverts->all[adverts->n++] = (struct advert){memory, size};
    return *status == RG_OK;
}

/* By the rail over which the least is advertised. */
static bool advertise_by_rail(struct multirail *m, void *memory, size_t size, enum rg_status *status)
{
    struct rail *best = NULL;
    for (unsigned i = 0; i < m->options.rails; i++)
        if (!m->rails[i].base.dropped && (!best || m->rails[i].adverts.n < best->adverts.n))
            best = &m->rails[i];
    return best && advertise_by(best->base.conn, &best->adverts, memory, size, status);
}

/* A piece without a tag; the lock is held. */
static enum rg_status advertise_piece(struct multirail *m, void *memory, size_t size)
{
    enum rg_status status = RG_ERR_TIMEOUT;
    if (m->peer_stripes && m->first_adverts.n >= FIRST_KEEPS && advertise_by_rail(m, memory, size, &status))
        return status;
    if (advertise_by(m->f.first, &m->first_adverts, memory, size, &status) || status == RG_ERR_UNSUPPORTED)
        return status;
    return advertise_by_rail(m, memory, size, &status) ? RG_OK : status;
}

void rg_multirail_readvertise(struct multirail *m)
{
    for (unsigned i = 0; i < m->options.rails; i++) {
        struct rail *rail = &m->rails[i];
        for (; rail->base.dropped && rail->closed && rail->reader_ended && rail->adverts.n &&
               m->unplaced_adverts.n < RG_MULTIRAIL_ADVERTS;)
            m->unplaced_adverts.all[m->unplaced_adverts.n++] = rail->adverts.all[--rail->adverts.n];
    }
    while (m->unplaced_adverts.n && !m->f.ending && !m->f.interrupted) {
        const struct advert *one = &m->unplaced_adverts.all[m->unplaced_adverts.n - 1];
        if (advertise_piece(m, one->memory, one->size) != RG_OK)
            break;
        m->unplaced_adverts.n--;
    }
}

enum rg_status rg_multirail_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                      size_t size)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    enum rg_status status;
    if (!tag) {
        pthread_mutex_lock(&m->f.lock);
        rg_multirail_readvertise(m);
        status = advertise_piece(m, memory, size);
        pthread_mutex_unlock(&m->f.lock);
        return status;
    }
    pthread_mutex_lock(&m->memory_lock);
    const unsigned n = connections(m, true, conns);
    status = rg_conn_advertise(m->f.first, tag, base, memory, size);
    for (unsigned i = 1; i < n && status == RG_OK && size >= RG_MULTIRAIL_MIN; i++)
        (void)rg_conn_advertise(conns[i], tag, base, memory, size); /* else what comes by it is asked for */
    pthread_mutex_unlock(&m->memory_lock);
    return status;
}

void rg_multirail_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct multirail *m = (struct multirail *)conn;
    struct rg_conn *conns[RG_FANOUT_CHANNELS + 1];
    RG_SCOPED_LOCK(&m->memory_lock);
    const unsigned n = connections(m, false, conns);
    for (unsigned i = 0; i < n; i++)
        rg_conn_withdraw(conns[i], tag, memory);
}

void rg_multirail_advertised_is_back(struct adverts *adverts, const void *memory)
{
    const unsigned char *at = memory;
    for (unsigned i = 0; i < adverts->n; i++)
        if (at >= adverts->all[i].memory && at < adverts->all[i].memory + adverts->all[i].size) {
            adverts->all[i] = adverts->all[--adverts->n];
            return;
        }
}
