/* transport_choice.c - see transport_choice.h. */
#include "client/core/transport_choice.h"

#include "common/base/log.h"

#include <stdatomic.h>
#include <stdlib.h>

enum rg_transport_choice rg_transport_choice_wanted(void)
{
    const char *text = secure_getenv("REMOTE_GPU_TRANSPORT");
    enum rg_transport_choice choice = RG_TRANSPORT_AUTO;
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (text && rg_transport_choice_parse(text, &choice) != RG_OK && !atomic_flag_test_and_set(&told))
        rg_warn("REMOTE_GPU_TRANSPORT=%s is not one of auto, tcp, rdma; taking auto", text);
    return choice;
}
