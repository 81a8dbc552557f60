/*
 * folders.c - folders that the server makes for others' users and removes: what lies behind a link is not touched.
 */
#include "server/sandbox/folders.h"
#include "tests/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char text[2][PATH_MAX];

static const char *in(int i, const char *name)
{
    snprintf(text[i], sizeof text[i], "%s/%s", temporary_folder(), name);
    return text[i];
}

static void make_file(const char *name)
{
    const int fd = open(in(0, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static bool exists(const char *name)
{
    struct stat about;
    return lstat(in(0, name), &about) == 0;
}

static void removing(void)
{
    CHECK(rg_sandbox_make_path(in(0, "tree/a/b/c"), 0700));
    CHECK(rg_sandbox_make_path(in(0, "outside/d"), 0700));
    make_file("outside/d/kept");
    make_file("tree/a/one");
    make_file("tree/a/b/c/two");
    CHECK(symlink(in(0, "outside"), in(1, "tree/a/link")) == 0);
    CHECK(symlink(in(0, "outside/d/kept"), in(1, "tree/a/b/file")) == 0);
    CHECK(symlink("nothing", in(1, "tree/dangling")) == 0);
    rg_sandbox_remove_tree(in(0, "tree"));
    CHECK(!exists("tree") && exists("outside/d/kept"));
    CHECK(symlink(in(0, "outside"), in(1, "link")) == 0);
    rg_sandbox_remove_tree(in(0, "link")); /* the link alone */
    CHECK(!exists("link") && exists("outside/d/kept"));
    make_file("file");
    rg_sandbox_remove_tree(in(0, "file"));
    rg_sandbox_remove_tree(in(0, "not there"));
    CHECK(!exists("file"));
}

/* Folders in each other without end end the removal, not the process. */
static void deep(void)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/deep", temporary_folder());
    for (int i = 0; i < 500; i++)
        size += snprintf(path + size, sizeof path - (size_t)size, "/d");
    CHECK(rg_sandbox_make_path(path, 0700));
    rg_sandbox_remove_tree(in(0, "deep"));
    CHECK(exists("deep"));
    CHECK(chmod(in(0, "deep"), 0755) == 0);
    CHECK(!rg_sandbox_folder_of(in(0, "deep"), 0) &&
          errno == ENOTEMPTY); /* what is not empty is given to nobody */
}

static void owners(void)
{
    struct stat about;
    CHECK(rg_sandbox_own_folder(in(0, "own"), 0711));
    CHECK(rg_sandbox_own_folder(in(0, "own"), 0700));
    CHECK(stat(in(0, "own"), &about) == 0 && (about.st_mode & 0777) == 0700);
    CHECK(symlink(in(0, "own"), in(1, "to own")) == 0);
    CHECK(!rg_sandbox_own_folder(in(0, "to own"), 0700) && errno == EPERM);
    make_file("own/kept");
    CHECK(rg_sandbox_folder_of(in(0, "own"), 0) && exists("own/kept"));
    CHECK(chmod(in(0, "own"), 0755) == 0); /* others could have been there */
    CHECK(rg_sandbox_folder_of(in(0, "own"), 0) && !exists("own/kept"));
    CHECK(stat(in(0, "own"), &about) == 0 && (about.st_mode & 0777) == 0700);
    CHECK(rg_sandbox_folder_of(in(0, "to own"), 0)); /* no link: a folder in its place */
    CHECK(lstat(in(0, "to own"), &about) == 0 && S_ISDIR(about.st_mode));
    if (geteuid() != 0)
        return;
    make_file("own/kept");
    CHECK(rg_sandbox_folder_of(in(0, "own"), 54321) && !exists("own/kept"));
    CHECK(stat(in(0, "own"), &about) == 0 && about.st_uid == 54321 && about.st_gid == 54321);
    CHECK(!rg_sandbox_own_folder(in(0, "own"), 0700) && errno == EPERM);
}

int main(void)
{
    removing();
    owners();
    deep();
    return 0;
}
