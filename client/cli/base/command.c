/* command.c - see command.h. */
#include "client/cli/base/command.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The file that execvp(3) runs for the command. */
static bool find(const char *command, char path[PATH_MAX])
{
    const char *folder = getenv("PATH");
    if (strchr(command, '/'))
        return snprintf(path, PATH_MAX, "%s", command) < PATH_MAX;
    for (folder = folder ? folder : "/bin:/usr/bin"; folder;) {
        const size_t size = strcspn(folder, ":");
        struct stat file;
        if (snprintf(path, PATH_MAX, "%.*s%s%s", (int)size, folder, size ? "/" : "", command) < PATH_MAX &&
            access(path, X_OK) == 0 && stat(path, &file) == 0 && S_ISREG(file.st_mode))
            return true;
        folder = folder[size] ? folder + size + 1 : NULL;
    }
    return false;
}

/* In words, which rights the file gives whoever runs it (AT_SECURE, getauxval(3)); NULL: its caller's. */
static const char *other_rights(const char *path)
{
    struct stat file;
    struct statvfs system;
    if (stat(path, &file) != 0 || statvfs(path, &system) != 0 || system.f_flag & ST_NOSUID)
        return NULL;
    if (file.st_mode & S_ISUID && file.st_uid != getuid())
        return "set-user-ID";
    if (file.st_mode & S_ISGID && file.st_mode & S_IXGRP && file.st_gid != getgid())
        return "set-group-ID";
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0 ? "file capabilities" : NULL;
}

void rg_cli_warn_of_rights(const char *command)
{
    char path[PATH_MAX];
    const char *rights = find(command, path) ? other_rights(path) : NULL;
    if (rights)
        rg_warn("%s runs with other rights than yours (%s), so the system keeps remote-gpu's libraries and "
                "settings from it: neither it nor what it starts finds a server. Start remote-gpu run by it "
                "instead, as in: %s remote-gpu run -s SERVER COMMAND",
                path, rights, command);
}

/* Reads the name of an ELF file's dynamic linker; "": it is no such file, or has none. */
static void read_linker(const char *path, char *out, size_t size)
{
    RG_CLEANUP_FD const int file = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr header;
    Elf64_Phdr part;
    out[0] = '\0';
    if (file < 0 || pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof part || header.e_phoff > INT64_MAX / 2)
        return;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        const off_t at = (off_t)(header.e_phoff + i * sizeof part);
        if (pread(file, &part, sizeof part, at) != (ssize_t)sizeof part)
            return;
        if (part.p_type != PT_INTERP || part.p_filesz >= size || part.p_offset > INT64_MAX)
            continue;
        const ssize_t n = pread(file, out, part.p_filesz, (off_t)part.p_offset);
        out[n > 0 ? n : 0] = '\0';
        return;
    }
}

bool rg_cli_can_preload(const char *command)
{
    char path[PATH_MAX], linker[PATH_MAX];
    if (!find(command, path))
        return true;
    read_linker(path, linker, sizeof linker);
    const char *slash = strrchr(linker, '/');
    if (!slash || strncmp(slash, "/ld-musl", 8) != 0)
        return true;
    rg_error(
        "%s is made for the C library musl (%s), as programs of Alpine are, and cannot load remote-gpu's "
        "libraries, which need glibc 2.28 or later; use a build of it, or an image, with glibc",
        path, linker);
    return false;
}
