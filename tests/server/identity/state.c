/* state.c - the state folder: whole files or none, the lock, and everything that can be wrong with modes, kinds and space. */
#include "server/identity/state.h"

#include "common/base/limits.h"
#include "tests/server/identity/folder.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rg_state state;
static char why[512];

static void open_state(void)
{
    cr_assert_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_OK, "%s", why);
}

static void expect_why(const char *words)
{
    cr_expect_not_null(strstr(why, words), "'%s' does not say '%s'", why, words);
}

Test(state, made_for_this_user_alone)
{
    umask(0);
    open_state();
    cr_expect_eq(mode_of(""), 0700);
    cr_expect_eq(mode_of("users"), 0700);
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "ca.key", "secret", 6, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(mode_of("ca.key"), 0600);
    cr_expect_eq(mode_of("lock"), 0600);
    rg_state_close(&state);
}

Test(state, not_made_unless_asked)
{
    cr_expect_eq(rg_state_open(&state, test_folder(), false, why, sizeof why), RG_ERR_NOT_FOUND);
    expect_why("/state cannot be opened: No such file");
    cr_expect_neq(access(test_folder(), F_OK), 0);
}

Test(state, folders_above_are_made)
{
    char path[400];
    snprintf(path, sizeof path, "%s/a/b/c", test_folder());
    cr_assert_eq(rg_state_open(&state, path, true, why, sizeof why), RG_OK, "%s", why);
    rg_state_close(&state);
}

Test(state, a_folder_that_others_can_write)
{
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    cr_assert_eq(chmod(test_folder(), 0770), 0);
    cr_expect_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_ERR_INVALID);
    expect_why("can be written by other users (mode 0770)");
    cr_assert_eq(chmod(test_folder(), 0755), 0);
    open_state();
    cr_expect_eq(mode_of(""), 0700, "one that others could only read is closed");
}

Test(state, a_file_in_its_place)
{
    const int fd = open(test_folder(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_expect_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_ERR_IO);
    expect_why("Not a directory");
}

Test(state, files_that_are_not_to_be_trusted)
{
    open_state();
    char *text;
    size_t size;
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_SECRET, &text, &size, why, sizeof why),
                 RG_ERR_NOT_FOUND);
    write_file("ca.key", "x", 0640);
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_SECRET, &text, &size, why, sizeof why),
                 RG_ERR_INVALID);
    expect_why("ca.key is open to other users (mode 0640, must be 0600)");
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why), RG_OK);
    free(text);
    cr_assert_eq(chmod(below("ca.key"), 0622), 0);
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why),
                 RG_ERR_INVALID);
    expect_why("can be written by other users");
    cr_assert_eq(unlink(below("ca.key")), 0);
    cr_assert_eq(symlink("/etc/passwd", below("ca.key")), 0);
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why),
                 RG_ERR_INVALID);
    expect_why("is a symbolic link");
    cr_assert_eq(unlink(below("ca.key")), 0);
    cr_assert_eq(mkfifo(below("ca.key"), 0600), 0);
    cr_expect_eq(rg_state_read(&state, "ca.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why),
                 RG_ERR_INVALID);
    expect_why("is not a file");
    cr_assert_eq(unlink(below("ca.key")), 0);
    cr_assert_eq(mkdir(below("ca.key"), 0700), 0);
    cr_expect_neq(rg_state_read(&state, "ca.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why), RG_OK);
    write_file("tls.key", "", 0600);
    cr_assert_eq(truncate(below("tls.key"), RG_IDENTITY_FILE_MAX + 1), 0);
    cr_expect_eq(rg_state_read(&state, "tls.key", RG_STATE_PUBLIC, &text, &size, why, sizeof why),
                 RG_ERR_INVALID);
    expect_why("is larger than");
}

Test(state, what_a_dead_writer_left_is_removed)
{
    open_state();
    write_file(".new-0123456789abcdef", "half", 0600);
    write_file("users/.new-0123456789abcdef", "half", 0600);
    write_file("tokens/.new-0123456789abcdef", "half", 0600);
    write_file("users/alice", "", 0600);
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_expect_eq(count_files("users"), 1);
    cr_expect_eq(count_files("tokens"), 0);
    cr_expect_neq(access(below(".new-0123456789abcdef"), F_OK), 0);
    rg_state_close(&state);
}

/* A limit on sizes of files fails a write as a full disk does: half of it is written. */
Test(state, a_write_that_fails_changes_nothing)
{
    open_state();
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "users/alice", "before", 6, why, sizeof why), RG_OK);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = 4096};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    static char large[8192];
    cr_expect_eq(rg_state_write(&state, "users/alice", large, sizeof large, why, sizeof why), RG_ERR_IO);
    expect_why("users/alice cannot be written: File too large");
    char *text = read_file("users/alice");
    cr_expect_str_eq(text, "before");
    free(text);
    cr_expect_eq(count_files("users"), 1, "nothing half-written is left");
}

Test(state, nothing_is_written_that_could_not_be_read)
{
    open_state();
    static char large[RG_IDENTITY_FILE_MAX + 1];
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "revoked", "alice", 5, why, sizeof why), RG_OK);
    cr_expect_eq(rg_state_write(&state, "revoked", large, sizeof large, why, sizeof why), RG_ERR_LIMIT);
    expect_why("revoked would be larger than");
    char *text = read_file("revoked");
    cr_expect_str_eq(text, "alice");
    free(text);
    rg_state_close(&state);
}

Test(state, a_full_disk)
{
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    if (mount("none", test_folder(), "tmpfs", 0, "size=64k,mode=0700") != 0)
        cr_skip("a small file system needs root");
    open_state();
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "ca.key", "before", 6, why, sizeof why), RG_OK);
    static char large[1 << 16];
    cr_expect_eq(rg_state_write(&state, "ca.key", large, sizeof large, why, sizeof why), RG_ERR_IO);
    expect_why("ca.key cannot be written: No space left on device");
    char *text = read_file("ca.key");
    cr_expect_str_eq(text, "before");
    free(text);
    rg_state_close(&state);
    cr_expect_eq(umount(test_folder()), 0);
}

Test(state, read_only)
{
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    if (mount("none", test_folder(), "tmpfs", MS_RDONLY, "mode=0700") != 0)
        cr_skip("a read-only file system needs root");
    cr_expect_eq(rg_state_open(&state, test_folder(), true, why, sizeof why), RG_ERR_IO);
    expect_why("Read-only file system");
    cr_expect_eq(umount(test_folder()), 0);
}

/* Two processes add one to the same number, each under the lock: none of it is lost. */
static void count_up(int times)
{
    open_state();
    for (int i = 0; i < times; i++) {
        char *text, number[16];
        size_t size;
        cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK, "%s", why);
        cr_assert_eq(rg_state_read(&state, "port", RG_STATE_PUBLIC, &text, &size, why, sizeof why), RG_OK);
        snprintf(number, sizeof number, "%d", atoi(text) + 1);
        free(text);
        cr_assert_eq(rg_state_write(&state, "port", number, strlen(number), why, sizeof why), RG_OK);
        rg_state_unlock(&state);
    }
    rg_state_close(&state);
}

Test(state, two_processes_at_once)
{
    open_state();
    rg_state_close(&state);
    write_file("port", "0", 0600);
    const pid_t child = fork();
    count_up(50);
    if (child == 0)
        _exit(0);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    char *text = read_file("port");
    cr_expect_str_eq(text, "100");
    free(text);
}

Test(state, a_lock_that_is_never_released)
{
    open_state();
    const int fd = open(below("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_expect_eq(rg_state_lock(&state, why, sizeof why), RG_ERR_TIMEOUT);
    expect_why("is being changed by another process");
    close(fd);
    cr_expect_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    rg_state_close(&state);
}

Test(state, root_gives_files_to_the_owner)
{
    if (geteuid() != 0)
        cr_skip("needs root");
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    cr_assert_eq(chown(test_folder(), 4711, 4712), 0);
    open_state();
    cr_assert_eq(rg_state_lock(&state, why, sizeof why), RG_OK);
    cr_assert_eq(rg_state_write(&state, "users/alice", "x", 1, why, sizeof why), RG_OK);
    static const char *const names[] = {"users", "users/alice", "lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stat is;
        cr_assert_eq(stat(below(names[i]), &is), 0);
        cr_expect_eq(is.st_uid, 4711, "%s", names[i]);
        cr_expect_eq(is.st_gid, 4712, "%s", names[i]);
    }
    rg_state_close(&state);
}

Test(state, root_gives_away_nothing_of_others)
{
    if (geteuid() != 0)
        cr_skip("needs root");
    cr_assert_eq(mkdir(test_folder(), 0700), 0);
    cr_assert_eq(chown(test_folder(), 4711, 4712), 0);
    open_state();
    write_file("precious", "of root", 0600);
    cr_assert_eq(link(below("precious"), below("lock")), 0);
    cr_expect_eq(rg_state_lock(&state, why, sizeof why), RG_ERR_IO);
    expect_why("lock cannot be given to its owner");
    struct stat is;
    cr_assert_eq(stat(below("precious"), &is), 0);
    cr_expect_eq(is.st_uid, 0);
    rg_state_close(&state);
}

Test(state, another_users_folder)
{
    if (geteuid() != 0)
        cr_skip("needs root");
    cr_assert_eq(mkdir(test_folder(), 0755), 0);
    char above[400];
    snprintf(above, sizeof above, "%s/..", test_folder());
    cr_assert_eq(chmod(above, 0755), 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = setuid(4711) == 0 &&
                             rg_state_open(&state, test_folder(), true, why, sizeof why) == RG_ERR_INVALID &&
                             strstr(why, "belongs to user 0, and this is user 4711");
        _exit(refused ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
}

Test(state, lists_are_sorted_and_without_temporaries)
{
    open_state();
    write_file("users/carol", "", 0600);
    write_file("users/alice", "", 0600);
    write_file("users/.new-1", "", 0600);
    char **names;
    size_t n;
    cr_assert_eq(rg_state_list(&state, "users", &names, &n, why, sizeof why), RG_OK);
    cr_assert_eq(n, 2);
    cr_expect_str_eq(names[0], "alice");
    cr_expect_str_eq(names[1], "carol");
    rg_state_list_free(names, n);
    cr_assert_eq(rg_state_list(&state, "nothing", &names, &n, why, sizeof why), RG_OK);
    cr_expect_eq(n, 0);
    rg_state_close(&state);
}
