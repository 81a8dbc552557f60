/*
 * lent.h - memory that one end of transport mem lends to the other, as a device with one-sided writes would use it: bulk
 * data comes to lie there when it is sent. So what is built on that is tested without such a device.
 *
 * Threads: any; a lock of its own for each direction, held while data is written: after rg_mem_loans_close nothing is.
 */
#ifndef RG_TRANSPORT_MEM_LENT_H
#define RG_TRANSPORT_MEM_LENT_H

#include "transport/queue.h"

enum { RG_MEM_CHUNKS = 16, RG_MEM_LOANS = 24, RG_MEM_REGIONS = 64 };

/** What the receiving end of a direction has lent and registered. */
struct rg_mem_loans {
    pthread_mutex_t lock;
    bool closed;
    struct rg_mem_loan {
        enum { RG_MEM_FREE, RG_MEM_AWAY, RG_MEM_FILLED } state;
        uint64_t tag, base;
        unsigned char *memory;
        size_t size;
    } loans[RG_MEM_LOANS]; /* those without a tag first */
    struct {
        unsigned char *base;
        size_t size;
    } regions[RG_MEM_REGIONS];
    uint64_t copied, placed; /* bytes, of what was received */
};

void rg_mem_loans_init(struct rg_mem_loans *loans);
void rg_mem_loans_fini(struct rg_mem_loans *loans);
/** Of a GPU's memory `fd` is held by a descriptor that is open now; -1: none is needed. */
enum rg_status rg_mem_loans_register_device(struct rg_mem_loans *loans, void *base, size_t size, int fd);
/** Whether what is left of the parcel would go straight to memory that is registered. */
bool rg_mem_loans_places(struct rg_mem_loans *loans, const struct rg_parcel *parcel, const void *memory,
                         size_t size);
enum rg_status rg_mem_loans_register(struct rg_mem_loans *loans, void *base, size_t size);
void rg_mem_loans_unregister(struct rg_mem_loans *loans, void *base);
enum rg_status rg_mem_loans_lend(struct rg_mem_loans *loans, uint64_t tag, uint64_t base, void *memory,
                                 size_t size);
void rg_mem_loans_unlend(struct rg_mem_loans *loans, uint64_t tag, void *memory);
bool rg_mem_loans_have_room(struct rg_mem_loans *loans, size_t size);
/** Nothing is written into what was lent any more. */
void rg_mem_loans_close(struct rg_mem_loans *loans);

/** Writes a parcel's bulk data to where it belongs, if enough is lent for all of it. */
void rg_mem_loans_place(struct rg_mem_loans *loans, const struct rg_outgoing *message,
                        struct rg_parcel *parcel);
/** As rg_conn_take_lent and rg_conn_recv_bulk, of the parcel that was received last. */
void rg_mem_loans_take(struct rg_mem_loans *loans, struct rg_parcel *parcel, size_t most, void **memory,
                       size_t *size);
enum rg_status rg_mem_loans_receive(struct rg_mem_loans *loans, struct rg_parcel *parcel, unsigned char *to,
                                    size_t size);

#endif
