/*
 * folders.h - folders that the server makes for its processes, and removes. Who owns what is in them may be hostile: nothing
 * is followed that such a user could replace. Any thread.
 */
#ifndef RG_SERVER_SANDBOX_FOLDERS_H
#define RG_SERVER_SANDBOX_FOLDERS_H

#include <stdbool.h>
#include <sys/types.h>

/** Makes it if it is not there; false with errno: it is not a folder of this process's user alone. */
bool rg_sandbox_own_folder(const char *path, mode_t mode);
/** Makes it, and those that it lies in, if they are not there; false with errno. */
bool rg_sandbox_make_path(const char *path, mode_t mode);
/**
 * A folder that belongs to `uid` alone (0: to this process's user), in one that only this process's user can change. One
 * that belonged to another user is emptied: nothing in it is worth a doubt. False with errno.
 */
bool rg_sandbox_folder_of(const char *path, uid_t uid);
/** Removes it with all that is in it, as far as that can be. */
void rg_sandbox_remove_tree(const char *path);

#endif
