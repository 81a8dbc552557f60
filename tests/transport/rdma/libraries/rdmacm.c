/* rdmacm.c - a librdmacm of the test's own: what transport rdma must find. */
#define NEVER_CALLED(name)                                                                                   \
    __attribute__((visibility("default"))) void name(void);                                                  \
    void name(void)                                                                                          \
    {                                                                                                        \
        __builtin_trap();                                                                                    \
    }

NEVER_CALLED(rdma_accept)
NEVER_CALLED(rdma_ack_cm_event)
NEVER_CALLED(rdma_bind_addr)
NEVER_CALLED(rdma_connect)
NEVER_CALLED(rdma_create_event_channel)
NEVER_CALLED(rdma_create_id)
NEVER_CALLED(rdma_create_qp)
NEVER_CALLED(rdma_destroy_event_channel)
NEVER_CALLED(rdma_destroy_id)
NEVER_CALLED(rdma_destroy_qp)
NEVER_CALLED(rdma_disconnect)
NEVER_CALLED(rdma_event_str)
NEVER_CALLED(rdma_get_cm_event)
NEVER_CALLED(rdma_get_src_port)
NEVER_CALLED(rdma_listen)
NEVER_CALLED(rdma_migrate_id)
NEVER_CALLED(rdma_reject)
NEVER_CALLED(rdma_resolve_addr)
NEVER_CALLED(rdma_resolve_route)
NEVER_CALLED(rdma_set_option)
