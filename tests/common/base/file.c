/* file.c - whole pieces of files: through a pipe that takes and gives less at a time, at an offset, past the end. */
#include "common/base/file.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 300000 }; /* more than a pipe holds */

static unsigned char sent[SIZE], got[SIZE];

static void *write_pipe(void *fd)
{
    return rg_file_write(*(int *)fd, sent, SIZE) ? fd : NULL;
}

Test(file, goes_on_until_all_has_moved)
{
    int ends[2];
    pthread_t writer;
    void *wrote;
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 31 >> 4);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(pthread_create(&writer, NULL, write_pipe, &ends[1]), 0);
    cr_expect(rg_file_read(ends[0], got, SIZE));
    cr_assert_eq(pthread_join(writer, &wrote), 0);
    cr_expect_not_null(wrote);
    cr_expect(memcmp(sent, got, SIZE) == 0);
    close(ends[1]);
    cr_expect_not(rg_file_read(ends[0], got, 1), "nobody writes any more");
    cr_expect_eq(errno, EIO);
    close(ends[0]);
}

Test(file, writes_at_an_offset_and_reads_up_to_the_end)
{
    char path[PATH_MAX], text[8] = "";
    int fd = rg_file_temporary("rg-file", path, sizeof path);
    cr_assert_geq(fd, 0);
    cr_expect(rg_file_write(fd, "abcdef", 6));
    cr_expect(rg_file_write_at(fd, 2, "xy", 2));
    cr_expect(rg_file_write(fd, "g", 1), "the offset moved nothing");
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    cr_expect(rg_file_read(fd, text, 7));
    cr_expect_str_eq(text, "abxyefg");
    cr_expect_not(rg_file_read(fd, text, 1));
    close(fd);
    unlink(path);
    cr_expect_not(rg_file_write(-1, "a", 1));
    cr_expect_eq(errno, EBADF);
}

Test(file, what_may_not_be_written_raises_no_signal)
{
    const struct rlimit few = {4, 4};
    char path[PATH_MAX];
    sigset_t pending, one;
    int ends[2], fd = rg_file_temporary("rg-file", path, sizeof path);
    cr_assert_geq(fd, 0);
    unlink(path);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
    cr_expect_not(rg_file_write(fd, "abcdef", 6));
    cr_expect_eq(errno, EFBIG);
    cr_expect_not(rg_file_write_at(fd, 100, "x", 1));
    cr_expect_eq(errno, EFBIG);
    close(fd);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    cr_expect_not(rg_file_write(ends[1], "a", 1));
    cr_expect_eq(errno, EPIPE);
    cr_expect(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE) &&
              !sigismember(&pending, SIGXFSZ));

    sigemptyset(&one); /* one that was on its way before is somebody else's */
    sigaddset(&one, SIGPIPE);
    cr_assert_eq(sigprocmask(SIG_BLOCK, &one, NULL), 0);
    cr_assert_eq(raise(SIGPIPE), 0);
    cr_expect_not(rg_file_write(ends[1], "a", 1));
    cr_expect(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE));
    close(ends[1]);
}

Test(file, temporary_ones_are_where_TMPDIR_says)
{
    const char *folder = temporary_folder();
    char path[PATH_MAX];
    struct stat is;
    setenv("TMPDIR", folder, 1);
    int fd = rg_file_temporary("some", path, sizeof path);
    cr_assert_geq(fd, 0);
    cr_expect_eq(strncmp(path, folder, strlen(folder)), 0);
    cr_expect_eq(strncmp(path + strlen(folder), "/some.", 6), 0);
    cr_assert_eq(fstat(fd, &is), 0);
    cr_expect_eq(is.st_mode & 07777, 0600);
    cr_expect_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    unlink(path);
    cr_expect_eq(rg_file_temporary("some", path, strlen(folder)), -1);
    cr_expect_eq(errno, ENAMETOOLONG);
    rmdir(folder);
    cr_expect_eq(rg_file_temporary("some", path, sizeof path), -1);
    cr_expect_eq(errno, ENOENT);
    setenv("TMPDIR", "", 1);
    fd = rg_file_temporary("some", path, sizeof path);
    cr_expect_eq(strncmp(path, "/tmp/some.", 10), 0);
    close(fd);
    unlink(path);
}
