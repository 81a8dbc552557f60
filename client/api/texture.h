/* texture.h - texture and surface objects as other parts of the client need them. */
#ifndef RG_CLIENT_API_TEXTURE_H
#define RG_CLIENT_API_TEXTURE_H

#include <stdint.h>

/** The context that a texture or surface object was made in, by its number; 0: there is none. Any thread. */
uint64_t rg_texture_context(uint64_t number);

#endif
