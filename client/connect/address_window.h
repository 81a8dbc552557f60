/*
 * address_window.h - the addresses of this process that are kept free for a server's device memory, from
 * before its driver is loaded until the process ends. The server is told of them in the hello and closes all
 * others to its driver, so that whatever the program maps, before or later, is never where device memory is.
 *
 * What can fail: a process may have hardly any addresses left; then less is kept, or nothing, and
 * address_map.h still finds what collides. Where it has a limit on how many it may map (RLIMIT_AS) the window
 * is named, but not reserved: the kernel does not come near it with what is left.
 */
#ifndef RG_CLIENT_CONNECT_ADDRESS_WINDOW_H
#define RG_CLIENT_CONNECT_ADDRESS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Keeps a window for the session with that number; `part`: of the windows that servers of one program have,
 * counted from 0; `alone`: it has one server, whose window is as large as there is room for. *size is 0 if there is
 * no room for one. The thread that starts sessions.
 */
void rg_address_window_keep(unsigned session, unsigned part, bool alone, uint64_t *start, uint64_t *size);
/** Keeps what drivers take by fixed addresses, as far as nothing of the program's is there. */
void rg_address_window_keep_low(unsigned session);

#endif
