/* log_limit.c - lines that others cause are counted once there are many of them. */
#include "common/base/log_limit.h"
#include "tests/common/base/captured.h"

#include <string.h>

static unsigned lines_of(const char *text)
{
    unsigned lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

Test(log_limit, counts_what_it_leaves_out)
{
    struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    capture();
    rg_log_set_level(RG_LOG_INFO);
    for (int i = 0; i < 1000; i++)
        rg_log_limited(&limit, 5 + (uint64_t)i, RG_LOG_INFO, "knock %d", i);
    const char *text = logged();
    cr_assert_eq(lines_of(text), RG_LOG_LIMIT_LINES);
    cr_assert(strstr(text, "knock 0\n"));
    cr_assert(strstr(text, "knock 19 (for some seconds, others like this are left out)\n"));
    rg_log_limited(&limit, 4 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "still");
    cr_assert_eq(lines_of(logged()), 0);
    rg_log_limited(&limit, 5 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "again");
    cr_assert_str_eq(logged(), "remote-gpu: 981 lines like the next one were left out\nremote-gpu: again\n");
    rg_log_limited(&limit, 6 + RG_LOG_LIMIT_NS, RG_LOG_INFO, "and again");
    cr_assert_str_eq(logged(), "remote-gpu: and again\n");
}

Test(log_limit, levels)
{
    struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    capture();
    rg_log_set_level(RG_LOG_WARN);
    for (int i = 0; i < 100; i++)
        rg_log_limited(&limit, 1, RG_LOG_INFO, "not shown, not counted");
    rg_log_limited(&limit, 1, RG_LOG_WARN, "shown");
    cr_assert_str_eq(logged(), "remote-gpu: warning: shown\n");
    rg_log_set_level(RG_LOG_DEBUG);
    for (int i = 0; i < 100; i++)
        rg_log_limited(&limit, 1, RG_LOG_INFO, "all of them");
    cr_assert_eq(lines_of(logged()), 100);
}

Test(log_limit, of_a_process)
{
    capture();
    rg_log_set_level(RG_LOG_INFO);
    rg_log_limit_process(RG_LOG_PROCESS_LINES);
    for (int i = 0; i < 5000; i++)
        rg_log(i % 2 ? RG_LOG_ERROR : RG_LOG_INFO, "from here and there %d", i);
    const char *text = logged();
    cr_assert_eq(lines_of(text), RG_LOG_PROCESS_LINES + 1);
    cr_assert(strstr(text, "says too much"));
    cr_assert(strstr(text, "from here and there 49\n"));
    rg_log_always(RG_LOG_ERROR, "the end");
    cr_assert_str_eq(logged(), "remote-gpu: the end\n");
    rg_log_set_level(RG_LOG_DEBUG);
    rg_warn("while somebody looks for a mistake, everything");
    cr_assert_eq(lines_of(logged()), 1);
}
