/*
 * tree.h - reading /sys, /proc, /dev and /etc below the doctor's root.
 */
#ifndef RG_CLIENT_CLI_DOCTOR_TREE_H
#define RG_CLIENT_CLI_DOCTOR_TREE_H

#include "client/cli/doctor/doctor.h"

#include <sys/stat.h>

enum { RG_TREE_NAMES = 2048 }; /* a large machine has some hundred PCI devices */

struct rg_tree_names {
    unsigned n;
    char names[RG_TREE_NAMES][64];
};

/** The first line of a file, without its end. False and "" if it cannot be read. */
bool rg_tree_line(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
/** A number at the beginning of a file, 0x… included; `other` if there is none. */
long rg_tree_number(const struct rg_doctor *doctor, long other, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
/** The names in a folder, in order ("mlx5_2" before "mlx5_10"); false if there is no such folder. */
bool rg_tree_list(const struct rg_doctor *doctor, struct rg_tree_names *out, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
bool rg_tree_stat(const struct rg_doctor *doctor, struct stat *out, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
bool rg_tree_exists(const struct rg_doctor *doctor, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/** The last part of what a symbolic link points to. False and "" if it is none. */
bool rg_tree_link(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
/** All of a file, up to `size` - 1 bytes, with a NUL. Returns how many; 0 and "" if it cannot be read. */
size_t rg_tree_read(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

#endif
