/*
 * proc_address.h - version-exact look-up for cuGetProcAddress, shared by the client and the software device.
 *
 * The answer to (name, version, flags) is the newest ABI of `name` that was introduced no later than `version`; with
 * the per-thread flag, its per-thread default stream form where one exists. The table comes from the versioned
 * typedefs of the toolkit (proto/generate/import_api.py).
 */
#ifndef RG_PROTO_API_PROC_ADDRESS_H
#define RG_PROTO_API_PROC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

struct rg_proc_entry {
    const char *name; /* without version suffix */
    int since;        /* CUDA version that introduced this ABI, e.g. 12080 */
    bool per_thread;
    int index; /* enum rg_api */
};
/* generated; sorted by name, then per_thread, then since */
extern const struct rg_proc_entry rg_proc_entries[];

enum rg_proc_result {
    RG_PROC_FOUND,
    RG_PROC_UNKNOWN_NAME,       /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    RG_PROC_VERSION_NOT_ENOUGH, /* CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT */
};

/** Finds the enum rg_api index for a look-up. `flags` as cuGetProcAddress takes them (2: per-thread). Any thread. */
enum rg_proc_result rg_proc_find(const char *name, int version, uint64_t flags, int *index);
/** The same as a driver of version `newest` answers, to which all that came later is an unknown name. */
enum rg_proc_result rg_proc_find_in(int newest, const char *name, int version, uint64_t flags, int *index);
/** Whether that answer is the same for all drivers from version `oldest` on. */
bool rg_proc_same_since(int oldest, const char *name, int version, uint64_t flags);

#endif
