/* A credentials folder in the making: whole or not there at all, on a full disk and after a kill as well. */
#include "client/credentials/draft.h"

#include "client/credentials/credentials.h"
#include "tests/client/credentials/folder.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static bool like_nfs; /* folders cannot change places */

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (like_nfs && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

static char why[1024];
static struct rg_address server;

static void parse(const char *text)
{
    cr_assert_eq(rg_address_parse(text, &server, NULL, 0), RG_OK);
}

static unsigned entries(const char *path)
{
    unsigned n = 0;
    DIR *opened = opendir(path);
    while (opened && readdir(opened))
        n++;
    if (opened)
        closedir(opened);
    return n ? n - 2 : 0;
}

static void reads(const char *path, const char *expected)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fread(text, 1, sizeof text - 1, file), strlen(expected));
    fclose(file);
    cr_assert_str_eq(text, expected);
}

/* A draft with its three files. */
static void fill(struct rg_draft *draft, bool force, const char *text)
{
    cr_assert_eq(rg_draft_begin(draft, &server, force, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_draft_write(draft, "tls.key", text, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_draft_reserve(draft, "tls.crt", 8192, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_draft_write(draft, "tls.crt", text, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_draft_write(draft, "ca.crt", text, why, sizeof why), RG_OK, "%s", why);
}

Test(draft, made_and_replaced, .init = make_home)
{
    struct rg_draft draft;
    struct rg_credentials found;
    struct stat info;
    char joined[320];
    rmdir(below(".config/remote-gpu/servers"));
    rmdir(below(".config/remote-gpu"));
    rmdir(below(".config"));
    umask(0);
    parse("GPU:7600");
    fill(&draft, false, "one\n");
    cr_assert_neq(access(draft.final, F_OK), 0);
    cr_assert(!rg_credentials_joined(joined, sizeof joined));
    cr_assert_eq(rg_draft_commit(&draft, why, sizeof why), RG_OK, "%s", why);
    rg_draft_abandon(&draft); /* nothing to do any more */
    cr_assert_eq(rg_credentials_find("gpu", &found, why, sizeof why), RG_OK, "%s", why);
    cr_assert(found.found && found.joined);
    reads(found.certificate, "one\n"); /* nothing of what was reserved */
    cr_assert(rg_credentials_joined(joined, sizeof joined));
    cr_assert_str_eq(joined, "gpu:7600");
    cr_assert_eq(stat(found.folder, &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0700);
    cr_assert_eq(stat(below(".config/remote-gpu"), &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0700);
    cr_assert_eq(stat(found.certificate, &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0600);

    cr_assert_eq(rg_draft_begin(&draft, &server, false, why, sizeof why), RG_ERR_INVALID);
    cr_assert_not_null(strstr(why, "--force"));
    fill(&draft, true, "two\n");
    reads(found.certificate, "one\n");
    rg_draft_abandon(&draft);
    reads(found.certificate, "one\n");
    fill(&draft, true, "three\n");
    cr_assert_eq(rg_draft_commit(&draft, why, sizeof why), RG_OK, "%s", why);
    reads(found.certificate, "three\n");
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 1);
    cr_assert_eq(entries(found.folder), 4);

    parse("other:1");
    fill(&draft, false, "four\n");
    cr_assert_eq(rg_draft_commit(&draft, why, sizeof why), RG_OK, "%s", why);
    cr_assert(rg_credentials_joined(joined, sizeof joined));
    cr_assert_str_eq(joined, "other:1");
    reads(found.certificate, "three\n");
    cr_assert_eq(rg_draft_replace(found.folder, "tls.crt", "five\n", why, sizeof why), RG_OK, "%s", why);
    reads(found.certificate, "five\n");
    cr_assert_eq(entries(found.folder), 4);
}

Test(draft, replaced_where_folders_cannot_change_places, .init = make_home)
{
    struct rg_draft draft;
    struct rg_credentials found;
    like_nfs = true;
    parse("gpu");
    fill(&draft, false, "one\n");
    cr_assert_eq(rg_draft_commit(&draft, why, sizeof why), RG_OK, "%s", why);
    fill(&draft, true, "two\n");
    cr_assert_eq(rg_draft_commit(&draft, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_credentials_find("gpu", &found, why, sizeof why), RG_OK, "%s", why);
    reads(found.key, "two\n");
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 1);
    fill(&draft, true, "three\n");
    cr_assert_eq(rename(draft.path, below("elsewhere")),
                 0); /* the new one cannot follow: the older one comes back */
    cr_assert_neq(rg_draft_commit(&draft, why, sizeof why), RG_OK);
    rg_draft_abandon(&draft);
    reads(found.key, "two\n");
    cr_assert_eq(rename(below("elsewhere"), below(".config/remote-gpu/servers/.joining-x")), 0);
    fill(&draft, true, "four\n"); /* takes it away */
    rg_draft_abandon(&draft);
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 1);
    reads(found.key, "two\n");
}

Test(draft, left_by_a_kill, .init = make_home)
{
    struct rg_draft draft;
    parse("gpu");
    const pid_t child = fork();
    if (child == 0) {
        fill(&draft, false, "one\n");
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 1);
    struct rg_credentials found;
    cr_assert_eq(rg_credentials_find("gpu", &found, why, sizeof why), RG_ERR_REFUSED); /* and not a half */
    struct rg_draft other;
    fill(&draft, false, "two\n");
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 1);
    fill(&other, false, "three\n"); /* one that is worked on stays */
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 2);
    rg_draft_abandon(&other);
    rg_draft_abandon(&draft);
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 0);
}

Test(draft, full_disk, .init = make_home)
{
    struct rg_draft draft;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", below(".config"), "tmpfs", 0, "size=16k,mode=700") != 0)
        cr_skip_test("needs the right to mount a tmpfs");
    parse("gpu");
    cr_assert_eq(rg_draft_begin(&draft, &server, false, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_draft_write(&draft, "tls.key", "key\n", why, sizeof why), RG_OK, "%s", why);
    enum rg_status status = RG_OK;
    for (int i = 0; i < 8 && status == RG_OK; i++)
        status = rg_draft_reserve(&draft, i % 2 ? "ca.crt" : "tls.crt", 8192u * (unsigned)(i + 1), why,
                                  sizeof why);
    cr_assert_eq(status, RG_ERR_IO);
    cr_assert_not_null(strstr(why, "No space left"), "%s", why);
    cr_assert_not_null(strstr(why, "make room"), "%s", why);
    rg_draft_abandon(&draft);
    cr_assert_eq(entries(below(".config/remote-gpu/servers")), 0);
    umount(below(".config"));
}

Test(draft, no_right_to_write, .init = make_home)
{
    struct rg_draft draft;
    parse("gpu");
    if (geteuid() == 0)
        cr_assert_eq(seteuid(65534), 0);
    else
        chmod(below(".config/remote-gpu/servers"), 0500);
    cr_assert_eq(rg_draft_begin(&draft, &server, false, why, sizeof why), RG_ERR_IO);
    cr_assert_not_null(strstr(why, "REMOTE_GPU_CREDENTIALS"), "%s", why);
    if (getuid() == 0)
        cr_assert_eq(seteuid(0), 0);
    chmod(below(".config/remote-gpu/servers"), 0700);
    unsetenv("HOME");
    cr_assert_eq(rg_draft_begin(&draft, &server, false, why, sizeof why), RG_ERR_NOT_FOUND);
}
