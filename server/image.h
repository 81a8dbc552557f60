/* image.h - images that the client has sent, waiting to be loaded or linked. The dispatcher's. */
#ifndef RG_SERVER_IMAGE_H
#define RG_SERVER_IMAGE_H

#include "server/worker.h"

#define RG_IMAGE_TAIL 64 /* zeros behind an image: text is ended, and no header begins in the last bytes */

/** Where the image's link is; *link is NULL if there is none. */
struct rg_image **rg_image_find(struct rg_worker *worker, uint64_t id);
/** Unlinks and frees an image. */
void rg_image_free(struct rg_worker *worker, struct rg_image **link);
/** Whether a JIT option's value is a number, and so means the same here as at the client. */
bool rg_jit_option_travels(CUjit_option option);

#endif
