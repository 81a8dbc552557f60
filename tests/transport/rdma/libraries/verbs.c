/*
 * verbs.c - a libibverbs of the test's own: what transport rdma must find, as an old rdma-core has it. With FOREIGN one
 * function is missing.
 */
#include <stddef.h>

#define VISIBLE __attribute__((visibility("default")))
#define NEVER_CALLED(name)                                                                                   \
    VISIBLE void name(void);                                                                                 \
    void name(void)                                                                                          \
    {                                                                                                        \
        __builtin_trap();                                                                                    \
    }

#ifndef FOREIGN
NEVER_CALLED(ibv_alloc_pd)
#endif
NEVER_CALLED(ibv_ack_cq_events)
NEVER_CALLED(ibv_create_comp_channel)
NEVER_CALLED(ibv_create_cq)
NEVER_CALLED(ibv_dealloc_pd)
NEVER_CALLED(ibv_dereg_mr)
NEVER_CALLED(ibv_destroy_comp_channel)
NEVER_CALLED(ibv_destroy_cq)
NEVER_CALLED(ibv_get_cq_event)
NEVER_CALLED(ibv_get_device_name)

VISIBLE const char *ibv_wc_status_str(int status);
const char *ibv_wc_status_str(int status)
{
    return status == 0 ? "the test's own" : "?";
}

/* The memory itself, so that the caller sees what it was asked for. */
VISIBLE void *ibv_reg_mr(void *pd, void *addr, size_t length, int access);
void *ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{
    return !pd && length == 4096 && access == 3 ? addr : NULL;
}
