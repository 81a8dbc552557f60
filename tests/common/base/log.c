/* log.c - lines on stderr: one write each, levels, nothing that breaks a line, no signal. */
#include "common/base/log.h"
#include "common/base/status.h"
#include "tests/common/base/captured.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static int n_evaluated;

static const char *evaluated(void)
{
    n_evaluated++;
    return "loud";
}

Test(log, lines)
{
    capture();
    rg_log_set_level(RG_LOG_INFO);
    rg_error("the %s broke", "thing");
    cr_assert_str_eq(logged(), "remote-gpu: the thing broke\n");
    rg_warn("careful");
    cr_assert_str_eq(logged(), "remote-gpu: warning: careful\n");
    rg_info("fyi");
    cr_assert_str_eq(logged(), "remote-gpu: fyi\n");
    rg_debug("%s", evaluated());
    cr_assert_eq(n_evaluated, 0);
    rg_log(RG_LOG_DEBUG, "quiet");
    cr_assert_str_eq(logged(), "");
    rg_log_set_level(RG_LOG_DEBUG);
    rg_debug("%s", evaluated());
    cr_assert_str_eq(logged(), "remote-gpu: debug: loud\n");
    rg_log_name("remote-gpud");
    rg_error("x");
    cr_assert_str_eq(logged(), "remote-gpud: x\n");
    cr_assert_str_eq(rg_log_get_name(), "remote-gpud");
}

Test(log, control_characters_and_length)
{
    capture();
    rg_error("a\nb\033[2Jc\td\r");
    cr_assert_str_eq(logged(), "remote-gpu: a?b?[2Jc?d?\n");
    rg_error("M\xc3\xbcller \xc2\x9b\x32J \xe2\x80\xae \xff");
    cr_assert_str_eq(logged(), "remote-gpu: M\xc3\xbcller ??2J ??? ?\n");
    char long_text[5000];
    memset(long_text, 'y', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    rg_error("%s", long_text);
    const char *line = logged();
    cr_assert_gt(strlen(line), 1000);
    cr_assert_lt(strlen(line), 4096);
    cr_assert_eq(strchr(line, '\n'), line + strlen(line) - 1);
}

Test(log, level_of_the_environment)
{
    capture();
    setenv("REMOTE_GPU_LOG", "info", 1);
    cr_assert_eq(rg_log_get_level(), RG_LOG_INFO);
    cr_assert(rg_log_enabled(RG_LOG_INFO));
    cr_assert_not(rg_log_enabled(RG_LOG_DEBUG));
    cr_assert_str_eq(logged(), "");
}

Test(log, level_by_name)
{
    cr_expect(rg_log_set_level_by_name("error"));
    cr_expect_eq(rg_log_get_level(), RG_LOG_ERROR);
    cr_expect(rg_log_set_level_by_name("debug"));
    cr_expect_not(rg_log_set_level_by_name("Debug"));
    cr_expect_not(rg_log_set_level_by_name(""));
    cr_expect_eq(rg_log_get_level(), RG_LOG_DEBUG);
}

Test(log, unknown_level_is_said_once)
{
    capture();
    setenv("REMOTE_GPU_LOG", "loud", 1);
    rg_error("x");
    cr_assert_str_eq(logged(),
                     "remote-gpu: warning: REMOTE_GPU_LOG=loud is not one of error, warn, info, debug\n"
                     "remote-gpu: x\n");
    rg_error("x");
    cr_assert_str_eq(logged(), "remote-gpu: x\n");
}

Test(log, errno_is_kept_and_a_broken_pipe_is_survived)
{
    capture();
    errno = ENOENT;
    rg_error("%m");
    cr_assert_eq(errno, ENOENT);
    cr_assert_str_eq(logged(), "remote-gpu: No such file or directory\n");
    close(captured);
    signal(SIGPIPE, SIG_DFL);
    rg_error("nobody reads this");
    cr_assert_eq(errno, ENOENT);
}

Test(status, every_status_has_a_phrase)
{
    static const enum rg_status all[] = {
        RG_OK,          RG_ERR_INVALID, RG_ERR_NO_MEMORY, RG_ERR_UNSUPPORTED, RG_ERR_NOT_FOUND,
        RG_ERR_TIMEOUT, RG_ERR_FAULT,   RG_ERR_IO,        RG_ERR_PROTOCOL,    RG_ERR_LIMIT,
        RG_ERR_REFUSED, RG_ERR_CLOSED,  RG_ERR_LOST,      RG_ERR_UNREACHABLE};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t k = 0; k < i; k++)
            cr_assert_str_neq(rg_status_string(all[i]), rg_status_string(all[k]));
    cr_assert_str_eq(rg_status_string((enum rg_status)999), "unknown status");
    char why[8] = "";
    rg_explain(why, sizeof why, "%s", "longer than that");
    cr_assert_str_eq(why, "longer ");
    rg_explain(NULL, 0, "nobody asked");
}
