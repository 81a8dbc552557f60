/*
 * advertised.h - memory that one end of transport mem advertises to the other, as a device with one-sided
 * writes would use it: bulk data comes to lie there when it is sent. So what is built on that is tested
 * without such a device.
 *
 * Threads: any; a lock of its own for each direction, held while data is written: after rg_mem_adverts_close
 * nothing is.
 */
#ifndef RG_TRANSPORT_MEM_ADVERTISED_H
#define RG_TRANSPORT_MEM_ADVERTISED_H

#include "transport/queue.h"

enum { RG_MEM_CHUNKS = 16, RG_MEM_ADVERTS = 24, RG_MEM_REGIONS = 64 };

/** What the receiving end of a direction has advertised and registered. */
struct rg_mem_adverts {
    pthread_mutex_t lock;
    bool closed;
    struct rg_mem_advert {
        enum { RG_MEM_FREE, RG_MEM_AWAY, RG_MEM_FILLED } state;
        uint64_t tag, base;
        unsigned char *memory;
        size_t size;
    } adverts[RG_MEM_ADVERTS]; /* those without a tag first */
    struct {
        unsigned char *base;
        size_t size;
    } regions[RG_MEM_REGIONS];
    uint64_t copied, placed; /* bytes, of what was received */
};

/** `adverts` is zeroed. What was registered stays its owner's at the end. */
void rg_mem_adverts_init(struct rg_mem_adverts *adverts);
void rg_mem_adverts_fini(struct rg_mem_adverts *adverts);
/** Of a GPU's memory `fd` is held by a descriptor that is open now; -1: none is needed. */
enum rg_status rg_mem_adverts_register_device(struct rg_mem_adverts *adverts, void *base, size_t size,
                                              int fd);
/** Whether what is left of the parcel would go straight to memory that is registered. */
bool rg_mem_adverts_write_directly(struct rg_mem_adverts *adverts, const struct rg_parcel *parcel,
                                   const void *memory, size_t size);
/** RG_ERR_NO_MEMORY: there are RG_MEM_REGIONS already. */
enum rg_status rg_mem_adverts_register(struct rg_mem_adverts *adverts, void *base, size_t size);
/** With its chunks that are advertised. The transport's operation, like the others up to suffice (operations.h). */
void rg_mem_adverts_unregister(struct rg_mem_adverts *adverts, void *base);
enum rg_status rg_mem_adverts_add(struct rg_mem_adverts *adverts, uint64_t tag, uint64_t base, void *memory,
                                  size_t size);
void rg_mem_adverts_withdraw(struct rg_mem_adverts *adverts, uint64_t tag, void *memory);
bool rg_mem_adverts_suffice(struct rg_mem_adverts *adverts, size_t size);
/** Nothing is written into what was advertised any more. */
void rg_mem_adverts_close(struct rg_mem_adverts *adverts);

/** Writes a parcel's bulk data to where it belongs, if enough is advertised for all of it. */
void rg_mem_adverts_write(struct rg_mem_adverts *adverts, const struct rg_send *message,
                          struct rg_parcel *parcel);
/** As rg_conn_take_advertised and rg_conn_recv_bulk, of the parcel that was received last. */
void rg_mem_adverts_take(struct rg_mem_adverts *adverts, struct rg_parcel *parcel, size_t most, void **memory,
                         size_t *size);
enum rg_status rg_mem_adverts_receive(struct rg_mem_adverts *adverts, struct rg_parcel *parcel,
                                      unsigned char *to, size_t size);

#endif
