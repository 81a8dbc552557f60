/* packet.c - packets with descriptors: what is too much is refused, and nothing is written behind the end or left open. */
#include "common/base/packet.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MARK = 0x5a5a5a5a, MANY = 253 /* SCM_MAX_FD */ };

static int ends[2];

static void open_ends(void)
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
}

/* Without the limit that rg_packet_send has. */
static void send_many(const void *data, size_t size, unsigned n)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int) * MANY)];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int) * n);
    for (unsigned i = 0; i < n; i++)
        memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &ends[0], sizeof(int));
    cr_assert_eq(sendmsg(ends[0], &message, 0), (ssize_t)size);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

struct place {
    int fds[RG_PACKET_FDS_MAX];
    int behind[8];
};

static enum rg_status receive(struct place *place, unsigned *n_fds)
{
    char data[4];
    memset(place, 0x5a, sizeof *place);
    const enum rg_status status =
        rg_packet_receive(ends[1], MSG_DONTWAIT, data, sizeof data, place->fds, RG_PACKET_FDS_MAX, n_fds);
    for (size_t i = 0; i < sizeof place->behind / sizeof place->behind[0]; i++)
        cr_expect_eq(place->behind[i], MARK, "written behind the end");
    return status;
}

TestSuite(packet, .init = open_ends);

Test(packet, as_many_as_there_may_be)
{
    struct place place;
    unsigned n_fds;
    const unsigned before = open_descriptors();
    send_many("abcd", 4, RG_PACKET_FDS_MAX);
    cr_assert_eq(receive(&place, &n_fds), RG_OK);
    cr_expect_eq(n_fds, RG_PACKET_FDS_MAX);
    rg_packet_close(place.fds, n_fds);
    cr_expect_eq(open_descriptors(), before);
}

Test(packet, more_descriptors_than_there_may_be)
{
    const unsigned before = open_descriptors();
    static const unsigned numbers[] = {RG_PACKET_FDS_MAX + 1, RG_PACKET_FDS_MAX + 2, MANY};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct place place;
        unsigned n_fds;
        send_many("abcd", 4, numbers[i]);
        cr_expect_eq(receive(&place, &n_fds), RG_ERR_PROTOCOL, "%u", numbers[i]);
        cr_expect_eq(n_fds, 0);
        cr_expect_eq(open_descriptors(), before, "%u", numbers[i]);
    }
}

Test(packet, one_descriptor)
{
    const unsigned before = open_descriptors();
    send_many("a", 1, 1);
    const int fd = rg_packet_receive_fd(ends[1]);
    cr_assert_geq(fd, 0);
    close(fd);
    for (unsigned n = 0; n < 4; n += 2) { /* none, and one more, for which alignment leaves room */
        if (n)
            send_many("a", 1, n);
        else
            cr_assert_eq(send(ends[0], "a", 1, 0), 1);
        cr_expect_eq(rg_packet_receive_fd(ends[1]), -1, "%u", n);
        cr_expect_eq(open_descriptors(), before, "%u", n);
    }
    struct place place;
    unsigned n_fds;
    char data[4];
    send_many("abcd", 4, 3);
    cr_expect_eq(rg_packet_receive(ends[1], 0, data, sizeof data, place.fds, 2, &n_fds), RG_ERR_PROTOCOL);
    cr_expect_eq(open_descriptors(), before);
}

/* Which is nobody's fault: the question is there, and can be answered. */
Test(packet, no_room_for_descriptors)
{
    struct place place;
    unsigned n_fds;
    char data[4];
    struct rlimit limit;
    send_many("abcd", 4, 3);
    int last;
    do /* fills what is free between those that are open */
        last = dup(ends[0]);
    while (last >= 0 && last < 100);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)last + 2; /* one more, of three */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_eq(
        rg_packet_receive(ends[1], MSG_DONTWAIT, data, sizeof data, place.fds, RG_PACKET_FDS_MAX, &n_fds),
        RG_ERR_LIMIT);
    cr_expect_eq(n_fds, 0);
    cr_expect_eq(memcmp(data, "abcd", 4), 0);
    const int next = dup(ends[0]);
    cr_expect_eq(next, last + 1, "one is left open");
}

Test(packet, another_size)
{
    struct place place;
    unsigned n_fds;
    const unsigned before = open_descriptors();
    send_many("abcde", 5, 2);
    cr_expect_eq(receive(&place, &n_fds), RG_ERR_PROTOCOL);
    send_many("abc", 3, 2);
    cr_expect_eq(receive(&place, &n_fds), RG_ERR_PROTOCOL);
    cr_expect_eq(open_descriptors(), before);
    cr_expect_eq(receive(&place, &n_fds), RG_ERR_TIMEOUT);
}
