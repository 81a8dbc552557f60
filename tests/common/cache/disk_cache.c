/* disk_cache.c - files that may be thrown away: kept, added to, bounded, and nothing read that another user could have made. */
#include "common/cache/disk_cache.h"

#include "common/cache/digest.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;

static void make_folder(void)
{
    folder = temporary_path("a/b");
}

TestSuite(cache, .init = make_folder);

static void path_of(uint8_t first, char *out, size_t size)
{
    int at = snprintf(out, size, "%s/%02x", folder, first);
    for (int i = 1; i < RG_DISK_CACHE_NAME; i++)
        at += snprintf(out + at, size - (size_t)at, "00");
}

static char *read_back(struct rg_disk_cache *cache, uint8_t first, size_t max, size_t *size)
{
    const uint8_t name[RG_DISK_CACHE_NAME] = {first};
    return rg_disk_cache_read(cache, name, 0, max, 1, size);
}

static void write_one(struct rg_disk_cache *cache, uint8_t first, const void *data, size_t size)
{
    const uint8_t name[RG_DISK_CACHE_NAME] = {first};
    rg_disk_cache_write(cache, name, data, size);
}

Test(cache, keeps_replaces_adds_and_removes)
{
    const uint8_t name[RG_DISK_CACHE_NAME] = {1};
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 1 << 20);
    size_t size;
    cr_assert_null(read_back(cache, 1, 100, &size));
    write_one(cache, 1, "first", 5);
    write_one(cache, 1, "other", 5);
    rg_disk_cache_append(cache, name, " more", 5);
    char *data = read_back(cache, 1, 100, &size);
    cr_assert_not_null(data);
    cr_expect_eq(size, 10);
    cr_expect_str_eq(data, "other more");
    free(data);
    cr_expect_null(read_back(cache, 1, 9, &size), "longer than the reader takes");
    data = rg_disk_cache_read(cache, name, 3, 100, 0, &size);
    cr_expect(memcmp(data + 3, "other", 5) == 0, "behind room for the caller");
    free(data);
    rg_disk_cache_remove(cache, name);
    cr_expect_null(read_back(cache, 1, 100, &size));
    rg_disk_cache_close(cache);
}

Test(cache, the_longest_unused_goes)
{
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 16000);
    char data[1000], path[256];
    size_t size;
    memset(data, 'x', sizeof data);
    for (uint8_t i = 1; i <= 15; i++) {
        write_one(cache, i, data, sizeof data);
        path_of(i, path, sizeof path);
        const struct timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
        cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    free(read_back(cache, 1, sizeof data, &size)); /* used */
    write_one(cache, 16, data, sizeof data);
    write_one(cache, 17, data, sizeof data);
    char *kept = read_back(cache, 1, sizeof data, &size), *gone = read_back(cache, 2, sizeof data, &size),
         *last = read_back(cache, 17, sizeof data, &size);
    cr_expect_not_null(kept);
    cr_expect_null(gone);
    cr_expect_not_null(last);
    free(kept);
    free(last);
    char large[17000] = "";
    write_one(cache, 18, large, sizeof large);
    cr_expect_null(read_back(cache, 18, sizeof large, &size), "more than the whole limit");
    rg_disk_cache_close(cache);
}

/* A file that is being written: its writer's lock, or -1 if it has ended. */
static int begin_file(const char *name, size_t size, bool alive)
{
    char path[256];
    snprintf(path, sizeof path, "%s/new.%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    if (alive) {
        cr_assert_eq(flock(fd, LOCK_EX), 0);
        return fd;
    }
    close(fd);
    return -1;
}

static bool is_there(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/new.%s", folder, name);
    return access(path, F_OK) == 0;
}

Test(cache, what_a_dead_writer_left_goes_at_once)
{
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 1000);
    cr_assert(rg_disk_cache_make(cache));
    (void)begin_file("0000000000000001", 900, false);
    (void)begin_file("0000000000000002", 900, false);
    write_one(cache, 1, "kept", 4);
    cr_expect(!is_there("0000000000000001") && !is_there("0000000000000002"));
    rg_disk_cache_close(cache);
}

Test(cache, what_is_being_written_counts)
{
    size_t size;
    char bytes[400] = {0};
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 1000);
    write_one(cache, 1, bytes, sizeof bytes);
    const int writer = begin_file("0000000000000001", 500, true);
    write_one(cache, 2, bytes, sizeof bytes);
    cr_expect(is_there("0000000000000001"), "its writer is at work");
    cr_expect_null(read_back(cache, 1, 1000, &size), "1300 bytes are more than there may be");
    char *data = read_back(cache, 2, 1000, &size);
    cr_expect_not_null(data);
    free(data);
    close(writer);
    rg_disk_cache_close(cache);
}

Test(cache, reads_nothing_that_others_could_have_made)
{
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 1 << 20);
    char path[256], target[256];
    size_t size;
    write_one(cache, 1, "text", 4);
    path_of(1, path, sizeof path);
    cr_assert_eq(chmod(path, 0622), 0);
    cr_expect_null(read_back(cache, 1, 100, &size), "a file that all may write");
    write_one(cache, 2, "text", 4);
    path_of(2, target, sizeof target);
    cr_assert_eq(symlink(target, path), 0, "the file that all may write is still there");
    cr_expect_null(read_back(cache, 1, 100, &size), "a link");
    cr_assert_eq(mkfifo(path, 0600), 0, "the link is still there");
    cr_expect_null(read_back(cache, 1, 100, &size), "a pipe, which it does not wait for");
    cr_assert_eq(mkdir(path, 0700), 0, "the pipe is still there");
    cr_expect_null(read_back(cache, 1, 100, &size), "a folder");
    write_one(cache, 1, "text", 4); /* cannot be put in its place */
    cr_assert_eq(rmdir(path), 0);
    cr_expect_eq(rg_disk_cache_counts(cache)->dropped, 3);
    cr_expect_eq(rg_disk_cache_counts(cache)->written, 2);
    cr_assert_eq(chmod(folder, 0777), 0);
    cr_expect_null(read_back(cache, 2, 100, &size), "a folder that all may write");
    write_one(cache, 3, "text", 4);
    path_of(3, path, sizeof path);
    cr_expect_neq(access(path, F_OK), 0);
    cr_expect_not(rg_disk_cache_make(cache));
    rg_disk_cache_close(cache);
}

Test(cache, a_relative_folder_is_where_it_was_named)
{
    size_t size;
    cr_assert_eq(chdir(temporary_folder()), 0);
    struct rg_disk_cache *cache = rg_disk_cache_open("a/b", 1 << 20);
    cr_assert_eq(chdir("/"), 0);
    cr_expect(rg_disk_cache_make(cache));
    cr_expect_eq(access(folder, W_OK), 0);
    write_one(cache, 1, "text", 4);
    char *data = read_back(cache, 1, 100, &size);
    cr_expect_not_null(data);
    free(data);
    rg_disk_cache_close(cache);
    cr_expect_null(rg_disk_cache_open("", 1 << 20));
}

Test(cache, a_place_that_cannot_be_written_keeps_nothing)
{
    struct rg_disk_cache *cache = rg_disk_cache_open("/proc/no/such/place", 1 << 20);
    size_t size;
    write_one(cache, 1, "text", 4);
    cr_expect_null(read_back(cache, 1, 100, &size));
    cr_expect_not(rg_disk_cache_make(cache));
    rg_disk_cache_close(cache);
}

/* The signal that a process gets for a larger file would end it. */
Test(cache, files_that_may_not_be_so_large_are_not_kept)
{
    struct rg_disk_cache *cache = rg_disk_cache_open(folder, 1 << 20);
    struct rlimit limit;
    size_t size;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 4;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    write_one(cache, 1, "texts", 5);
    cr_expect_null(read_back(cache, 1, 100, &size));
    write_one(cache, 2, "text", 4);
    char *data = read_back(cache, 2, 100, &size);
    cr_expect_not_null(data);
    free(data);
    rg_disk_cache_close(cache);
}

static void place(const char *named, const char *caches, const char *home, const char *part,
                  const char *expected)
{
    const char *names[] = {"A_CACHE", "XDG_CACHE_HOME", "HOME"}, *values[] = {named, caches, home};
    char out[64] = "";
    for (int i = 0; i < 3; i++)
        cr_assert_eq(values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]), 0);
    cr_expect_eq(rg_disk_cache_folder("A_CACHE", part, out, sizeof out), expected != NULL);
    if (expected)
        cr_expect_str_eq(out, expected);
}

Test(cache_environment, says_where)
{
    place("off", "/x", "/h", "part", NULL);
    place("own", "/x", "/tmp", "part", "own");
    place("", "/x", "/tmp", "part", "/x/remote-gpu/part");
    place(NULL, "/x", "/no home", "", "/x/remote-gpu");
    place(NULL, "relative", "/tmp", "part", "/tmp/.cache/remote-gpu/part");
    place(NULL, NULL, "/tmp", "", "/tmp/.cache/remote-gpu");
    place(NULL, NULL, "/no home", "", NULL);
    place(NULL, NULL, "relative", "part", NULL);
    place(NULL, NULL, NULL, "part", NULL);
    place("/a/folder/with/a/name/that/is/longer/than/the/caller/has/room/for", "/x", "/h", "part", NULL);
}

Test(cache_environment, says_how_large)
{
    unsetenv("A_SIZE");
    cr_expect_eq(rg_disk_cache_limit("A_SIZE", 5 << 20), 5 << 20);
    setenv("A_SIZE", "2M", 1);
    cr_expect_eq(rg_disk_cache_limit("A_SIZE", 5 << 20), 2 << 20);
    setenv("A_SIZE", "0", 1);
    cr_expect_eq(rg_disk_cache_limit("A_SIZE", 5 << 20), 0);
    setenv("A_SIZE", "much", 1);
    cr_expect_eq(rg_disk_cache_limit("A_SIZE", 5 << 20), 5 << 20);
}

/* The test vector of RFC 7693 with a digest of 32 bytes: BLAKE2b-256("abc"). */
Test(digest, is_the_one_of_the_standard)
{
    static const uint8_t expected[] = {0xbd, 0xdd, 0x81, 0x3c, 0x63, 0x42, 0x39, 0x72, 0x31, 0x71, 0xef,
                                       0x3f, 0xee, 0x98, 0x57, 0x9b, 0x94, 0x96, 0x4e, 0x3b, 0xb1, 0xcb,
                                       0x3e, 0x42, 0x72, 0x62, 0xc8, 0xc0, 0x68, 0xd5, 0x23, 0x19};
    const struct rg_digest_part whole[] = {{"abc", 3}}, cut[] = {{"a", 1}, {"", 0}, {"bc", 2}};
    struct rg_digest one = rg_digest_of_bytes(whole, 1), other = rg_digest_of_bytes(cut, 3);
    cr_expect(memcmp(one.bytes, expected, sizeof expected) == 0);
    cr_expect(memcmp(&one, &other, sizeof one) == 0);
    one = rg_digest_of(whole, 1);
    other = rg_digest_of(cut, 3);
    cr_expect(memcmp(&one, &other, sizeof one) != 0, "where parts end counts");
}
