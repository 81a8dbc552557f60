/* environment.c - the environment that a command prints, and what it changes of another. */
#include "places/slurm/environment.h"

#include <criterion/criterion.h>

#include <stdio.h>
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
