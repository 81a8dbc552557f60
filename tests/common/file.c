/* file.c - whole pieces of files: through a pipe that takes and gives less at a time, at an offset, past the end. */
#include "common/file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
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
    char path[] = "/tmp/rg-file-XXXXXX", text[8] = "";
    int fd = mkstemp(path);
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
