/*
 * contained.c - see contained.h.
 *
 * /proc/self/fdinfo of a pidfd tells the process's numbers, from the namespace of /proc down to its own: also where /proc shows no
 * processes of others (ProtectProc=, hidepid=). The kernel gives a pidfd of who has connected (SO_PEERPIDFD, Linux 6.5); before that it
 * is of the number, which another process may have by now, if who has connected was quick to end.
 *
 * As many numbers as this process's own mean the same namespace, whichever one /proc is of, among those that have a number in this one.
 */
#include "server/daemon/grant/contained.h"

#include "common/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* -1: it has ended, or has no number here: then its namespace is none of those below this process's. */
static int pidfd_of(int connection)
{
    struct ucred peer;
    int pidfd = -1;
    socklen_t size = sizeof peer;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
        return -1;
    size = sizeof pidfd;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
        return pidfd;
    return errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, peer.pid, 0u) : -1;
}

/* How many numbers a process has, by a file that says it; 0: it has ended, has none here, or that cannot be known. */
static unsigned count_numbers(const char *path)
{
    static const char name[] = "NSpid:";
    char line[512];
    unsigned n = 0;
    FILE *file = fopen(path, "re");
    while (file && n == 0 && fgets(line, sizeof line, file)) {
        char *at = line + sizeof name - 1, *end;
        for (long number; strncmp(line, name, sizeof name - 1) == 0; at = end, n++)
            if ((number = strtol(at, &end, 10)) <= 0 || end == at)
                break;
    }
    if (file)
        fclose(file);
    return n;
}

bool rg_is_contained(int connection)
{
    char path[64];
    RG_CLEANUP_FD const int pidfd = pidfd_of(connection);
    if (pidfd < 0)
        return true;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    const unsigned theirs = count_numbers(path);
    return theirs == 0 || theirs != count_numbers("/proc/self/status");
}
