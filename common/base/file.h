/* file.h - whole pieces of files, over interruptions and short counts. Any thread. */
#ifndef RG_COMMON_BASE_FILE_H
#define RG_COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** Exactly `size` bytes from where `fd` stands. False: errno tells why, EIO if the file ends before. */
bool rg_file_read(int fd, void *data, size_t size);
/**
 * Exactly `size` bytes to where `fd` stands. False: errno tells why; a part may have been written. No signal comes of it, be it
 * that nobody reads (EPIPE) or that the file may not grow (EFBIG).
 */
bool rg_file_write(int fd, const void *data, size_t size);
/** The same at `offset`, wherever `fd` stands. */
bool rg_file_write_at(int fd, off_t offset, const void *data, size_t size);

/** A file in memory with these contents, which stands at its beginning and can be sealed. -1: errno tells why. */
int rg_file_in_memory(const char *name, const void *data, size_t size);
/**
 * Makes a new empty file for this user alone in $TMPDIR, else /tmp; its path, NAME and six characters, is put into `path`.
 * Open to be read and written, closed in what is executed; -1: errno tells why, ENAMETOOLONG if the path does not fit.
 */
int rg_file_temporary(const char *name, char *path, size_t size);

#endif
