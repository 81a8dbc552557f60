/* mps.c - whether a control daemon waits in a folder: by a socket of any type, or by a named pipe. */
#include "common/cuda/mps.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *folder;
static char *control;

static void begin(void)
{
    folder = temporary_folder();
    control = temporary_path("control");
}

TestSuite(mps, .init = begin);

static void refused(const char *named, const char *expected)
{
    char why[512] = "";
    cr_expect(!rg_mps_answers(named, why, sizeof why), "%s", named);
    cr_expect(strstr(why, expected), "'%s' is not in: %s", expected, why);
}

static int bind_control(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", control);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    cr_assert(type == SOCK_DGRAM || listen(fd, 4) == 0);
    return fd;
}

Test(mps, nobody)
{
    refused("relative", "not the whole path");
    refused("/nonexistent", "there is no folder /nonexistent");
    refused("/dev/null", "there is no folder /dev/null");
    refused(folder, "there is no nvidia-cuda-mps-control in ");
    close(open(control, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    refused(folder, "neither a socket nor a pipe");
}

Test(mps, sockets)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char why[512] = "";
        const int fd = bind_control(types[i]);
        cr_expect(rg_mps_answers(folder, why, sizeof why), "type %d: %s", types[i], why);
        close(fd);
        refused(folder, "answers in");
        (void)unlink(control);
    }
}

Test(mps, pipes)
{
    char why[512] = "";
    cr_assert_eq(mkfifo(control, 0600), 0);
    refused(folder, "answers in");
    const int reader = open(control, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_expect(rg_mps_answers(folder, why, sizeof why), "%s", why);
    close(reader);
    refused(folder, "answers in");
}
