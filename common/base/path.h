/*
 * path.h - where remote-gpu's own parts are, from wherever this code runs.
 *
 * The installed tree (and the build's stage, which mirrors it) is PREFIX/bin and PREFIX/lib/remote-gpu. This
 * code is linked into programs in bin/, programs in lib/remote-gpu/, and shared libraries in lib/remote-gpu/
 * or one folder below; each finds the tree from the file it was itself mapped from, never from the working
 * directory or PATH. A program elsewhere (a test) names the folder: REMOTE_GPU_LIBDIR, or
 * rg_path_set_library_dir.
 */
#ifndef RG_COMMON_BASE_PATH_H
#define RG_COMMON_BASE_PATH_H

#include "common/base/status.h"

#include <stddef.h>

/** The absolute path, free of links, of the shared library or program that this copy of the code is linked
 * into. */
RG_MUST_CHECK enum rg_status rg_path_self(char *out, size_t size);

/**
 * Path of `part` below lib/remote-gpu: rg_path_library("transport/tcp.so", …); "" gives the folder itself.
 * Says where the part has to be, not that it is there. RG_ERR_NOT_FOUND: this code is not in an installed
 * tree.
 */
RG_MUST_CHECK enum rg_status rg_path_library(const char *part, char *out, size_t size);

/** Path of a program in bin/ beside that lib/remote-gpu. */
RG_MUST_CHECK enum rg_status rg_path_program(const char *name, char *out, size_t size);

/** Names lib/remote-gpu from now on; NULL: find it. For tests, before other threads run. */
void rg_path_set_library_dir(const char *dir);

#endif
