/*
 * integrity.h - the answer of the driver's integrity check, by which a CUDA runtime decides whether to go on.
 *
 * For most versions it is an HMAC-MD2 over facts that both sides know: versions, process, thread, the
 * addresses of two export tables, the devices' identities. It is therefore computed in the application's own
 * process, from what the stand-in reports through its public calls.
 */
#ifndef RG_COMMON_CUDA_INTEGRITY_H
#define RG_COMMON_CUDA_INTEGRITY_H

#include <stddef.h>
#include <stdint.h>

#define RG_MD2_SIZE 16

/** MD2 (RFC 1319). */
void rg_md2(const void *data, size_t size, unsigned char digest[RG_MD2_SIZE]);
/** HMAC over MD2 (RFC 2104, block of 16 bytes); keys of up to 16 bytes. */
void rg_hmac_md2(const void *key, size_t key_size, const void *data, size_t size,
                 unsigned char mac[RG_MD2_SIZE]);

struct rg_integrity_device {
    unsigned char uuid[16];
    int32_t pci_domain, pci_bus, pci_device;
};

struct rg_integrity_facts {
    uint32_t driver_version;
    uint32_t pid, thread;           /* thread: low half of pthread_self() */
    const void *runtime_table;      /* export table 6bd5fb6c… */
    const void *integrity_table;    /* export table d4082055… */
    const void *integrity_function; /* its slot 1 */
    const struct rg_integrity_device *devices;
    size_t n_devices;
};

/** Computes the two words that check(version, unix_seconds, out) is to give. */
void rg_integrity_answer(const struct rg_integrity_facts *facts, uint32_t version, uint64_t unix_seconds,
                         uint64_t out[2]);

#endif
