/*
 * core.h - how the stand-in libraries load the client core.
 *
 * The core is beside the stand-in library: client.so or, for the software device's management library, management.so. It is
 * loaded locally, so that neither it nor what it needs enters the application's symbol scope, and once a process: each stand-in
 * library gets its own table from it. What is wrong is told on stderr, once.
 *
 * Any thread, and several at a time: no lock is held while the core is loaded. The loader has one of its own (dlopen(3)), which a
 * thread holds that opens a library of the program's while that library's constructors make their first call.
 */
#ifndef RG_INTERPOSE_CORE_H
#define RG_INTERPOSE_CORE_H

#include <stddef.h>

#define RG_EXPORT __attribute__((visibility("default")))

/** The core's table by the name of its entry (client/entry.h), `count` functions; NULL: it was said why not. */
void *const *rg_interpose_core(const char *entry_name, size_t count);
/** Keeps what was loaded in `table` unless another thread has kept its own before; returns what is kept. */
void *const *rg_interpose_first(void *const **table, void *const *loaded);

#endif
