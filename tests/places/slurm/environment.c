/* environment.c - the environment that a command prints, and what it changes of another. */
#include "places/slurm/environment.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHELL(script) ((const char *[]){"/bin/sh", "-c", script, NULL})

static char why[512];

static bool ask(struct rg_slurm_environment *out, const char *const argv[], const char *const envp[],
                int timeout_ms)
{
    *why = '\0';
    return rg_slurm_environment_ask(out, (char *const *)argv, (char *const *)envp, timeout_ms, why,
                                    sizeof why);
}

/* Collects changes as one text. */
static bool note(void *context, const char *name, const char *value)
{
    char *text = context;
    snprintf(text + strlen(text), 256, "%s=%s;", name, value ? value : "(gone)");
    return true;
}

static bool refuse(void *context, const char *name, const char *value)
{
    (void)context;
    (void)name;
    (void)value;
    return false;
}

Test(slurm_environment, what_changes)
{
    struct rg_slurm_environment now;
    const char *before[] = {"KEPT=a=b\nc", "GOES=1", "CHANGES=old", "PATH=/usr/bin:/bin", "NAMELESS", NULL};
    char text[1024] = "";
    const char *const argv[] = {
        "/usr/bin/env", "-u", "GOES", "CHANGES=", "NEW=x y", "/usr/bin/env", "-0", NULL};
    cr_assert(ask(&now, argv, before, 60000), "%s", why);
    cr_expect(rg_slurm_environment_compare(&now, (char *const *)before, note, text));
    cr_expect(strstr(text, "CHANGES=;") && strstr(text, "NEW=x y;") && strstr(text, "GOES=(gone);"), "%s",
              text);
    cr_expect(!strstr(text, "KEPT") && !strstr(text, "PATH"), "%s", text);
    cr_expect(!rg_slurm_environment_compare(&now, (char *const *)before, refuse, NULL));
    rg_slurm_environment_fini(&now);
}

/* A task's environment as Slurm has it: what is compared is what is changed, and goes elsewhere when it grows. */
struct live {
    char **list;
    size_t n;
    char told[1024];
};

static bool change(void *context, const char *name, const char *value)
{
    struct live *live = context;
    const size_t size = strlen(name);
    size_t at = 0;
    (void)note(live->told, name, value);
    while (at < live->n && (strncmp(live->list[at], name, size) != 0 || live->list[at][size] != '='))
        at++;
    if (at < live->n)
        free(live->list[at]);
    if (at < live->n && !value) {
        memmove(&live->list[at], &live->list[at + 1], (live->n-- - at) * sizeof *live->list);
        return true;
    }
    if (at == live->n) {
        char **larger = calloc(live->n + 2, sizeof *larger);
        memcpy(larger, live->list, live->n * sizeof *larger);
        memset(live->list, 0, live->n++ * sizeof *larger);
        free(live->list);
        live->list = larger;
    }
    return asprintf(&live->list[at], "%s=%s", name, value) > 0;
}

Test(slurm_environment, what_is_compared_may_be_what_is_changed)
{
    static const char *const before[] = {"KEPT=1", "GOES=1", "GOES_TOO=2", "CHANGES=old", "STAYS=3"};
    const char *const argv[] = {"/usr/bin/env", "-i",     "NEW=1",        "CHANGES=new", "NEWER=2",
                                "STAYS=3",      "KEPT=1", "/usr/bin/env", "-0",          NULL};
    struct live live = {.list = calloc(6, sizeof *live.list), .n = 5};
    struct rg_slurm_environment now;
    const char *none[] = {NULL};
    for (size_t i = 0; i < live.n; i++)
        live.list[i] = strdup(before[i]);
    cr_assert(ask(&now, argv, none, 60000), "%s", why);
    cr_expect(rg_slurm_environment_compare(&now, live.list, change, &live));
    cr_expect_str_eq(live.told, "NEW=1;CHANGES=new;NEWER=2;GOES=(gone);GOES_TOO=(gone);");
    rg_slurm_environment_fini(&now);
    for (size_t i = 0; i < live.n; i++)
        free(live.list[i]);
    free(live.list);
}

Test(slurm_environment, why_a_command_failed)
{
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    cr_expect(!ask(&now, SHELL("echo first >&2; echo 'remote-gpu: you have no such lease' >&2; exit 125"),
                   none, 60000));
    cr_expect_str_eq(why, "you have no such lease");
    cr_expect(!ask(&now, SHELL("exit 1"), none, 60000));
    cr_expect_str_eq(why, "/bin/sh failed and said nothing");
    cr_expect(!ask(&now, SHELL("kill -9 $$"), none, 60000));
    cr_expect(!ask(&now, SHELL("printf A=cut"), none, 60000)); /* it ended in the middle of a variable */
    cr_expect(!ask(&now, (const char *[]){"/not/there", NULL}, none, 60000));
    cr_expect(strstr(why, "cannot run /not/there"), "%s", why);
    cr_expect(!now.text && !now.size);
}

Test(slurm_environment, a_command_that_does_not_end, .timeout = 60)
{
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    cr_expect(!ask(&now, SHELL("exec /bin/sleep 1000"), none, 100));
    cr_expect(strstr(why, "has not ended"), "%s", why);
}

Test(slurm_environment, what_is_too_much, .timeout = 30)
{
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    cr_expect(
        !ask(&now, SHELL("while :; do echo 0123456789012345678901234567890123456789; done"), none, 60000));
    cr_expect(strstr(why, "more than an environment"), "%s", why);
}

/* Comparing them all with each other in a process of root's would take for ever, and the node would be taken out of service. */
Test(slurm_environment, too_many_variables, .timeout = 60)
{
    static const char *many[20001];
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    for (size_t i = 0; i + 1 < sizeof many / sizeof *many; i++)
        many[i] = "A=";
    cr_expect(!ask(&now, SHELL("printf 'A=1\\0'"), many, 60000));
    cr_expect(strstr(why, "more than 8192 variables"), "%s", why);
    cr_expect(!ask(&now, SHELL("/usr/bin/yes A= | /usr/bin/head -n 20000 | /usr/bin/tr '\\n' '\\000'"), none,
                   60000));
    cr_expect(strstr(why, "more than an environment"), "%s", why);
}

Test(slurm_environment, what_goes_to_the_log_is_one_line_of_text)
{
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    cr_expect(!ask(&now, SHELL("printf 'one\\ntwo \\033[31m\\377' >&2; exit 1"), none, 60000));
    cr_expect_str_eq(why, "two ?[31m?");
}

Test(slurm_environment, descriptors_are_not_passed_on)
{
    const char *none[] = {NULL};
    struct rg_slurm_environment now;
    int open_here[2];
    cr_assert(pipe(open_here) == 0 && dup2(open_here[0], 77) == 77);
    cr_expect(ask(&now, SHELL("if [ -e /proc/$$/fd/77 ]; then exit 1; fi; printf 'A=1\\0'"), none, 60000),
              "%s", why);
    rg_slurm_environment_fini(&now);
}
