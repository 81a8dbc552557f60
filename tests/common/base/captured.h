/* captured.h - what is logged during a unit test: standard error is a pipe. */
#ifndef TESTS_COMMON_CAPTURED_H
#define TESTS_COMMON_CAPTURED_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

static int captured;

/** From now on standard error is captured. */
static void capture(void)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    captured = ends[0];
}

/** All that was logged since the last look. */
static const char *logged(void)
{
    static char text[32768];
    ssize_t n = read(captured, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

#endif
