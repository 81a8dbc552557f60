/* modules.h - the parts of the client, which hear of what the core does by the hooks of client/core/hooks.h. */
#ifndef RG_CLIENT_MODULES_H
#define RG_CLIENT_MODULES_H

/** Enters them; before the first call. */
void rg_modules_register(void);

#endif
