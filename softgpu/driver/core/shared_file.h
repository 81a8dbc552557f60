/*
 * shared_file.h - memory that processes share: files in memory whose names say what they are.
 *
 * A name ends in 128 random bits, the file's secret. A process that is told process, number and secret of a
 * file opens it through /proc, and sees by the name that it is the one that was meant: a handle that is made
 * up opens nothing. The files cannot shrink, so no process can take memory from under another.
 */
#ifndef SG_DRIVER_CORE_SHARED_FILE_H
#define SG_DRIVER_CORE_SHARED_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SG_SECRET 16

enum sg_shared_kind {
    SG_SHARED_MEMORY = 'm',     /* one allocation of cuMemAlloc */
    SG_SHARED_EVENT = 'e',      /* an event */
    SG_SHARED_ALLOCATION = 'a', /* physical memory of cuMemCreate */
    SG_SHARED_POOL = 'p',       /* a pool's memory, which grows */
};

struct sg_device;

struct sg_shared_file {
    enum sg_shared_kind kind;
    struct sg_device
        *device; /* this process's, which may have another ordinal in others; NULL: it has not that one */
    uint64_t size;
    unsigned char secret[SG_SECRET];
};

/** What goes into the 64 bytes of a CUipcMemHandle, CUipcEventHandle or CUmemPoolPtrExportData. */
struct sg_shared_handle {
    uint32_t magic;
    int32_t process, file;
    uint32_t kind;
    uint64_t offset, size; /* within the file */
    unsigned char secret[SG_SECRET];
    unsigned char unused[16];
};
_Static_assert(sizeof(struct sg_shared_handle) == 64, "as large as the API's handles");

/** A new file of `size` bytes; fills in the secret. -1: the system refused (logged). */
int sg_shared_file_new(struct sg_shared_file *file);
/** Whether an open file is one of these, of `kind`; describes it. */
bool sg_shared_file_known(int number, enum sg_shared_kind kind, struct sg_shared_file *out);
/** Describes a file of this process for others. */
void sg_shared_handle_make(void *handle, const struct sg_shared_file *file, int number, uint64_t offset,
                           uint64_t size);
/** Takes a handle apart; false if it is none of `kind`. */
bool sg_shared_handle_read(const void *handle, enum sg_shared_kind kind, struct sg_shared_handle *out);
/**
 * Opens the file of a handle of another process; -1: it is not there. Where SOFTGPU_SHARE names a folder, processes ask each
 * other for files by a socket there (shared_socket.c): they need not be able to look into each other.
 */
int sg_shared_handle_open(const struct sg_shared_handle *handle, struct sg_shared_file *out);
/** Whether a process that has made or opened handles is still there. */
bool sg_shared_process_lives(int32_t process);

#endif
