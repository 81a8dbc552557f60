/*
 * output.c - standard error of a worker, on which kernels can put any line by an assertion's text: what is the program's goes to its
 * client, and what gets into the log says there whose it is, cannot move a terminal's cursor, and has a limit.
 */
#include "server/timeline/output.h"

#include "common/base/log_limit.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <fcntl.h>
#include <string.h>

enum { FLOOD = 2000 };

static void say(const char *text)
{
    CHECK(write(STDERR_FILENO, text, strlen(text)) == (ssize_t)strlen(text));
}

static void read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (read(fd, line + n, 1) == 1 && line[n] != '\n')
        CHECK(++n < size);
    line[n] = '\0';
}

static void test_whose_words(struct client *c, int log)
{
    char line[512], expected[128];
    say("a.cu:1: f: block: [0,0,0], thread: [0,0,0] Assertion `x\nremote-gpud: all is well\033[2J` "
        "failed.\n");
    expect_notice(c, RG_NOTICE_OUTPUT, 0);
    CHECK(c->got.notice.arg[0] == 2 && strncmp((const char *)c->got.output, "a.cu:1: f: block", 16) == 0);
    read_line(log, line, sizeof line);
    snprintf(expected, sizeof expected,
             "remote-gpud: warning: session %llu: its driver says: remote-gpud: all is well?[2J` failed.",
             (unsigned long long)c->worker->session);
    CHECK(strcmp(line, expected) == 0);
}

static void test_flood(struct client *c, int log)
{
    static char text[1 << 16];
    unsigned lines = 0;
    for (int i = 0; i < FLOOD; i++)
        say("x\n");
    rg_output_drain(c->worker);
    CHECK(fcntl(log, F_SETFL, O_NONBLOCK) == 0);
    for (ssize_t got; (got = read(log, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    CHECK(lines > 0 && lines <= RG_LOG_PROCESS_LINES + 2);
}

int main(void)
{
    const int terminal = dup(STDERR_FILENO);
    int out[2], errors[2], log[2];
    CHECK((stderr = fdopen(terminal, "w")) && setvbuf(stderr, NULL, _IONBF, 0) == 0);
    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(errors, O_CLOEXEC | O_NONBLOCK) == 0 &&
          pipe2(log, O_CLOEXEC) == 0);
    rg_log_name("remote-gpud");
    rg_log_set_level(RG_LOG_WARN);
    rg_log_limit_process(RG_LOG_PROCESS_LINES);
    stub_driver_use(stub_succeed);
    struct client *c = client_create();
    const struct rg_output_pipes pipes = {
        .out = out[0], .errors = errors[0], .errors_in = errors[1], .log = log[1]};
    CHECK(rg_output_start(c->worker, &pipes) == RG_OK);
    test_whose_words(c, log[0]);
    test_flood(c, log[0]);
    CHECK(dup2(terminal, STDERR_FILENO) >= 0 && dup2(terminal, log[1]) >= 0);
    close(out[1]); /* by which the module's thread ends */
    CHECK(client_destroy(c) == 0);
    return 0;
}
