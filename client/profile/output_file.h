/* output_file.h - the file that a process writes its profile or its trace to. */
#ifndef RG_CLIENT_PROFILE_OUTPUT_FILE_H
#define RG_CLIENT_PROFILE_OUTPUT_FILE_H

#include <limits.h>

/**
 * Creates the file that `wanted` names (%p: the process's number) and puts its name into `path`; where that is
 * there already, one with a number in front of the name's ending. -1 with errno: it could not be created;
 * ENOTBLK: what is there already is not a file (a device, a pipe, a folder), beside which nothing is made.
 */
int rg_profile_create_file(const char *wanted, char path[PATH_MAX]);
/** Why it could not be created, for people. */
const char *rg_profile_file_error(int error);

#endif
