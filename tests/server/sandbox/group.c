/*
 * group.c - servers of one machine that begin and end sessions of one identity at the same moment: they take one user for it, have one
 * folder, and none takes it away from another. Root alone has users to give; it is skipped (77) otherwise.
 */
#include "server/sandbox/group.h"

#include "server/sandbox/folders.h"
#include "tests/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVERS = 4, ROUNDS = 400, FIRST = 61000, LAST = 61010 };

static char base[] = "/tmp/remote-gpu-group-XXXXXX";
static _Atomic uid_t *users; /* that each server has for the identity now; shared */

/* The user, and 0 while it has none. What is wrong ends the process. */
static void take_and_give(struct rg_sandboxes *sandboxes, int server, const char *identity)
{
    char why[256] = "", secret[PATH_MAX + 16];
    struct rg_sandbox_group *group = rg_sandbox_group_of(sandboxes, identity, why, sizeof why);
    if (!group)
        fprintf(stderr, "%s: %s\n", identity, why);
    CHECK(group);
    if (*identity) {
        atomic_store(&users[server], group->uid);
        snprintf(secret, sizeof secret, "%s/secret", group->runtime);
        for (int i = 0; i < SERVERS; i++) {
            const uid_t other = atomic_load(&users[i]);
            CHECK(other == 0 || other == group->uid);
        }
        CHECK(access(secret, F_OK) == 0);
        usleep((useconds_t)rand() % 300);
        CHECK(access(secret, F_OK) == 0);
        atomic_store(&users[server], 0);
    }
    sandboxes->groups = NULL;
    rg_sandbox_group_free(group);
}

static void serve(int server)
{
    struct rg_sandboxes *sandboxes = calloc(1, sizeof *sandboxes);
    CHECK(sandboxes);
    sandboxes->settings.share = RG_SANDBOX_SHARE_IDENTITY;
    sandboxes->measures = RG_SANDBOX_OWN_USER;
    sandboxes->first = FIRST;
    sandboxes->last = LAST;
    snprintf(sandboxes->base, sizeof sandboxes->base, "%s", base);
    srand((unsigned)server);
    for (int i = 0; i < ROUNDS; i++)
        take_and_give(sandboxes, server, i % 4 ? "alice" : ""); /* ""; the server's own programs */
    free(sandboxes);
}

int main(void)
{
    char path[PATH_MAX];
    if (geteuid() != 0)
        return 77;
    CHECK(mkdtemp(base));
    snprintf(path, sizeof path, "%s/users", base);
    CHECK(rg_sandbox_own_folder(path, 0700));
    snprintf(path, sizeof path, "%s/identities", base);
    CHECK(rg_sandbox_own_folder(path, 0711));
    users = mmap(NULL, SERVERS * sizeof *users, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(users != MAP_FAILED);
    for (int i = 0; i < SERVERS; i++)
        if (fork() == 0) {
            serve(i);
            _exit(0);
        }
    int wrong = 0, status;
    while (wait(&status) > 0)
        wrong += status != 0;
    snprintf(path, sizeof path, "%s/identities", base);
    CHECK(wrong || rmdir(path) == 0); /* nothing is left */
    rg_sandbox_remove_tree(base);
    return wrong != 0;
}
