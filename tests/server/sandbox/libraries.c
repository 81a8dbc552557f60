/*
 * libraries.c - folders of the linker's that a confined process sees although they are below a covered one: these, as they are, and none
 * that they lie in.
 */
#include "server/sandbox/folders.h"
#include "server/sandbox/group.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG 12000 /* bytes of a list: more than two paths have */

static char base[] = "/tmp/rg-libraries-XXXXXX";

static const char *in(const char *name)
{
    static char text[4][PATH_MAX];
    static unsigned at;
    char *out = text[at++ % 4];
    snprintf(out, PATH_MAX, "%s/%s", base, name);
    return out;
}

static struct rg_sandbox_lease *find(const char *list, const char *driver)
{
    struct rg_sandbox_lease *lease = calloc(1, sizeof *lease);
    CHECK(lease && setenv("LD_LIBRARY_PATH", list, 1) == 0);
    rg_sandbox_find_libraries(lease, driver, 0);
    return lease;
}

static void end(struct rg_sandbox_lease *lease)
{
    rg_sandbox_forget_libraries(lease);
    free(lease);
}

static bool keeps(const struct rg_sandbox_lease *lease, const char *folder)
{
    bool found = false;
    for (int i = 0; i < RG_SANDBOX_KEEP && lease->sandbox.keep[i].folder; i++)
        found = found || strcmp(lease->sandbox.keep[i].folder, folder) == 0;
    return found;
}

static int count(const struct rg_sandbox_lease *lease)
{
    int n = 0;
    while (n < RG_SANDBOX_KEEP && lease->sandbox.keep[n].folder)
        n++;
    return n;
}

static void each_is_kept(void)
{
    char list[4 * PATH_MAX], told[4 * PATH_MAX];
    snprintf(list, sizeof list, "%s:/usr/lib:%s", in("a"), in("b"));
    struct rg_sandbox_lease *lease = find(list, "/usr/lib/driver/libcuda.so.1");
    snprintf(told, sizeof told, "LD_LIBRARY_PATH=%s:/usr/lib:%s:/usr/lib/driver", in("a"), in("b"));
    CHECK(count(lease) == 2 && keeps(lease, in("a")) && keeps(lease, in("b")));
    CHECK(strcmp(lease->linker, told) == 0);
    end(lease);
}

/* Whatever stands behind a covered folder's name, it is not all of that. */
static void none_is_a_covered_folder(void)
{
    static const char *const lists[] = {"/tmp",     "/tmp/", "/tmp//", "/tmp/.",   "/tmp/./",
                                        "/tmp//./", "//tmp", "/run//", "/home//.", "/"};
    char list[PATH_MAX];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct rg_sandbox_lease *lease = find(lists[i], NULL);
        CHECK(count(lease) == 0);
        end(lease);
    }
    snprintf(list, sizeof list, "%s/..", base);
    struct rg_sandbox_lease *lease = find(list, NULL);
    CHECK(count(lease) == 0);
    end(lease);
    CHECK(symlink("/tmp", in("all")) == 0);
    lease = find(in("all"), NULL);
    CHECK(count(lease) == 0);
    end(lease);
}

/* By whichever name, the folder itself is meant. */
static void names_that_lead_elsewhere(void)
{
    char list[4 * PATH_MAX], told[4 * PATH_MAX];
    CHECK(symlink("a", in("to a")) == 0);
    snprintf(list, sizeof list, "%s:%s/b/../a:/%s//b", in("to a"), base, base);
    struct rg_sandbox_lease *lease = find(list, NULL);
    CHECK(count(lease) == 3 && keeps(lease, in("a")) && keeps(lease, in("b")));
    snprintf(told, sizeof told, "LD_LIBRARY_PATH=%s:%s:%s", in("a"), in("a"), in("b"));
    CHECK(strcmp(lease->linker, told) == 0);
    end(lease);
}

/* What is cut off would be another folder: one in which that lies which is meant. */
static void a_long_list(void)
{
    static char list[LONG + 2 * PATH_MAX];
    memset(list, '/', LONG);
    snprintf(list + LONG, sizeof list - LONG, "usr/lib:%s", in("a/deep/folder"));
    struct rg_sandbox_lease *lease = find(list, NULL);
    CHECK(count(lease) == 1 && keeps(lease, in("a/deep/folder")));
    end(lease);
    for (size_t cut = 1; cut < 24; cut++) { /* wherever a list is cut that has room for so much */
        snprintf(list, sizeof list, "/%0*d:%s",
                 2 * PATH_MAX - (int)strlen(in("a/deep/folder")) - 3 + (int)cut, 0, in("a/deep/folder"));
        lease = find(list, NULL);
        CHECK(count(lease) == 1 && keeps(lease, in("a/deep/folder")));
        end(lease);
    }
}

static void what_only_the_linker_knows_stays(void)
{
    static const char *const lists[] = {"/tmp/$LIB/x:rel:", ":/no/such:", "a;/usr/../no/such"};
    static const char *const told[] = {"LD_LIBRARY_PATH=/tmp/$LIB/x:rel:", "LD_LIBRARY_PATH=:/no/such:",
                                       "LD_LIBRARY_PATH=a:/usr/../no/such"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct rg_sandbox_lease *lease = find(lists[i], NULL);
        CHECK(count(lease) == 0 && strcmp(lease->linker, told[i]) == 0);
        end(lease);
    }
    struct rg_sandbox_lease *lease = find("", NULL);
    CHECK(!lease->linker);
    end(lease);
}

static void nccl(void)
{
    char told[2 * PATH_MAX];
    snprintf(told, sizeof told, "%s/b/../a/libnccl.so.2", base);
    CHECK(setenv("REMOTE_GPU_NCCL", told, 1) == 0);
    struct rg_sandbox_lease *lease = find("", NULL);
    snprintf(told, sizeof told, "REMOTE_GPU_NCCL=%s", in("a/libnccl.so.2"));
    CHECK(count(lease) == 1 && keeps(lease, in("a")) && strcmp(lease->nccl, told) == 0);
    end(lease);
    CHECK(setenv("REMOTE_GPU_NCCL", "off", 1) == 0);
    lease = find("", NULL);
    CHECK(count(lease) == 0 && !lease->nccl);
    end(lease);
}

int main(void)
{
    CHECK(mkdtemp(base));
    CHECK(rg_sandbox_make_path(in("a/deep/folder"), 0700) && rg_sandbox_make_path(in("b"), 0700));
    each_is_kept();
    none_is_a_covered_folder();
    names_that_lead_elsewhere();
    a_long_list();
    what_only_the_linker_knows_stays();
    nccl();
    rg_sandbox_remove_tree(base);
    return 0;
}
