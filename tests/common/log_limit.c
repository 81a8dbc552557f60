/* log_limit.c - lines that others cause are counted once there are many of them. */
#include "common/log_limit.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int captured;

static void capture(void)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    captured = ends[0];
}

/* All that was logged since the last look; *lines: how many lines that is. */
static const char *logged(unsigned *lines)
{
    static char text[32768];
    ssize_t n = read(captured, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    *lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        ++*lines;
    return text;
}

Test(log_limit, counts_what_it_leaves_out)
{
    struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    unsigned lines;
    capture();
    rg_log_set_level(RG_LOG_INFO);
    for (int i = 0; i < 1000; i++)
        rg_log_limited(&limit, 5 + (uint64_t)i, RG_LOG_INFO, "knock %d", i);
    const char *text = logged(&lines);
    cr_assert_eq(lines, RG_LOG_LIMIT_LINES);
    cr_assert(strstr(text, "knock 0\n"));
    cr_assert(strstr(text, "knock 19 (for some seconds, others like this are left out)\n"));
    rg_log_limited(&limit, 4 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "still");
    logged(&lines);
    cr_assert_eq(lines, 0);
    rg_log_limited(&limit, 5 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "again");
    cr_assert_str_eq(logged(&lines), "remote-gpu: 981 lines like the next one were left out\nremote-gpu: again\n");
    rg_log_limited(&limit, 6 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "and again");
    cr_assert_str_eq(logged(&lines), "remote-gpu: and again\n");
}

Test(log_limit, levels)
{
    struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    unsigned lines;
    capture();
    rg_log_set_level(RG_LOG_WARN);
    for (int i = 0; i < 100; i++)
        rg_log_limited(&limit, 1, RG_LOG_INFO, "not shown, not counted");
    rg_log_limited(&limit, 1, RG_LOG_WARN, "shown");
    cr_assert_str_eq(logged(&lines), "remote-gpu: warning: shown\n");
    rg_log_set_level(RG_LOG_DEBUG);
    for (int i = 0; i < 100; i++)
        rg_log_limited(&limit, 1, RG_LOG_INFO, "all of them");
    logged(&lines);
    cr_assert_eq(lines, 100);
}
