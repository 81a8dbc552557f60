/* extension.c - the table of what the library has beside NCCL's functions. See common/cuda/nccl_network.h. */
#include "softgpu/nccl/extension.h"

#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/list.h"

static void end(void)
{
    sg_cliques_lock();
    sg_cliques_end();
    sg_cliques_unlock();
}

extern const struct rg_nccl_extension rg_nccl_extension;

__attribute__((visibility("default"))) const struct rg_nccl_extension rg_nccl_extension = {
    .size = sizeof rg_nccl_extension,
    .use = sg_extension_use,
    .set_place = sg_extension_set_place,
    .opened = sg_extension_opened,
    .message = sg_extension_message,
    .lost = sg_extension_lost,
    .await = sg_extension_await,
    .unreachable = sg_extension_unreachable,
    .give_up = sg_clique_abort,
    .end = end,
};
