/*
 * group.c - servers of one machine that begin and end sessions of one identity at the same moment: they take one user for it, have one
 * folder, and none takes it away from another. Root alone has users to give; it is skipped (77) otherwise.
 */
#include "server/sandbox/group.h"

#include "server/sandbox/folders.h"
#include "tests/temporary.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVERS = 4, ROUNDS = 400, FIRST = 61000, LAST = 61010 };

static const char *base;
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

static struct rg_sandboxes *make_sandboxes(void)
{
    struct rg_sandboxes *sandboxes = calloc(1, sizeof *sandboxes);
    CHECK(sandboxes);
    sandboxes->settings.share = RG_SANDBOX_SHARE_IDENTITY;
    sandboxes->measures = RG_SANDBOX_OWN_USER;
    sandboxes->first = FIRST;
    sandboxes->last = LAST;
    snprintf(sandboxes->base, sizeof sandboxes->base, "%s", base);
    return sandboxes;
}

static void serve(int server)
{
    struct rg_sandboxes *sandboxes = make_sandboxes();
    srand((unsigned)server);
    for (int i = 0; i < ROUNDS; i++)
        take_and_give(sandboxes, server, i % 4 ? "alice" : ""); /* ""; the server's own programs */
    free(sandboxes);
}

static void make_parts(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/users", base);
    CHECK(rg_sandbox_own_folder(path, 0700));
    snprintf(path, sizeof path, "%s/identities", base);
    CHECK(rg_sandbox_own_folder(path, 0711));
}

static struct rg_sandbox_group *begin(struct rg_sandboxes *sandboxes)
{
    char why[256] = "";
    struct rg_sandbox_group *group = rg_sandbox_group_of(sandboxes, "bob", why, sizeof why);
    CHECK(group);
    return group;
}

/* As in containers that have the machine's /dev/shm: their folders of one path are others, and so is what they share memory by. */
static void test_another_folder_of_the_same_path(void)
{
    struct rg_sandboxes *one = make_sandboxes(), *other = make_sandboxes();
    struct rg_sandbox_group *of_one = begin(one);
    snprintf(one->base, sizeof one->base, "%s-moved", base);
    CHECK(rename(base, one->base) == 0 && mkdir(base, 0711) == 0);
    make_parts();
    struct rg_sandbox_group *of_other = begin(other);
    const bool in_memory = strncmp(of_one->shm, "/dev/shm/", 9) == 0; /* else each folder has its own */
    CHECK(!in_memory || strcmp(of_one->shm, of_other->shm) != 0);
    rg_sandboxes_close(other);
    CHECK(!in_memory || access(of_one->shm, F_OK) == 0);
    rg_sandbox_remove_tree(base);
    CHECK(rename(one->base, base) == 0);
    snprintf(one->base, sizeof one->base, "%s", base);
    rg_sandboxes_close(one);
}

/* In /dev/shm everybody may make folders: one that is in the place is neither used nor emptied. */
static void test_folder_of_somebody_else(void)
{
    struct rg_sandboxes *sandboxes = make_sandboxes();
    struct rg_sandbox_group *group = begin(sandboxes);
    char shm[PATH_MAX];
    snprintf(shm, sizeof shm, "%s", group->shm);
    rg_sandboxes_close(sandboxes);
    CHECK(access(shm, F_OK) != 0);
    if (strncmp(shm, "/dev/shm/", 9) != 0)
        return;
    CHECK(mkdir(shm, 0700) == 0 && chown(shm, 1001, 1001) == 0);
    sandboxes = make_sandboxes();
    group = begin(sandboxes);
    CHECK(strcmp(group->shm, shm) != 0 && access(group->shm, F_OK) == 0);
    rg_sandboxes_close(sandboxes);
    CHECK(rmdir(shm) == 0);
}

int main(void)
{
    char path[PATH_MAX];
    if (geteuid() != 0)
        return 77;
    base = temporary_folder();
    make_parts();
    test_another_folder_of_the_same_path();
    test_folder_of_somebody_else();
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
    return wrong != 0;
}
