/*
 * doctor.c - remote-gpu doctor: what of this machine, and of the way to a server, is not as it should be.
 */
#include "client/cli/doctor/doctor.h"

#include "client/cli/base/output.h"
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define EXIT_PROBLEMS 1

static const char *const level_names[] = {"ok", "warning", "problem"};

void rg_doctor_say(struct rg_doctor *doctor, enum rg_check_level level, const char *name, const char *fix,
                   const char *format, ...)
{
    struct rg_check *checks = realloc(doctor->checks, (doctor->n_checks + 1) * sizeof *checks);
    if (!checks) {
        doctor->out_of_memory = true;
        return;
    }
    doctor->checks = checks;
    struct rg_check *check = &checks[doctor->n_checks++];
    *check = (struct rg_check){.level = level, .name = name};
    snprintf(check->fix, sizeof check->fix, "%s", fix ? fix : "");
    char text[RG_DOCTOR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* Devices, and servers, have a say in it: nothing that a terminal or JSON would stumble over. */
    rg_control_text(check->found, sizeof check->found, text,
                    size < (int)sizeof text ? (size_t)size : sizeof text - 1);
}

static unsigned count(const struct rg_doctor *doctor, enum rg_check_level level)
{
    unsigned n = 0;
    for (unsigned i = 0; i < doctor->n_checks; i++)
        n += doctor->checks[i].level == level;
    return n;
}

static void print_text(const struct rg_doctor *doctor)
{
    for (unsigned i = 0; i < doctor->n_checks; i++) {
        const struct rg_check *check = &doctor->checks[i];
        printf("%-8s %-13s %s\n", level_names[check->level], check->name, check->found);
        if (check->fix[0])
            printf("%22s-> %s\n", "", check->fix);
    }
    const unsigned problems = count(doctor, RG_CHECK_PROBLEM), warnings = count(doctor, RG_CHECK_WARNING);
    printf("\n%u checks: %u problem%s, %u warning%s\n", doctor->n_checks, problems, problems == 1 ? "" : "s",
           warnings, warnings == 1 ? "" : "s");
}

static bool print_json(const struct rg_doctor *doctor)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < doctor->n_checks; i++) {
        const struct rg_check *check = &doctor->checks[i];
        json_t *one = json_pack("{s:s, s:s, s:s}", "check", check->name, "level", level_names[check->level],
                                "saw", check->found);
        if (check->fix[0])
            json_object_set_new(one, "mend", json_string(check->fix));
        rg_cli_json_add(&list, one);
    }
    return rg_cli_print_json(json_pack("{s:o, s:i, s:i}", "checks", list, "problems",
                                       (int)count(doctor, RG_CHECK_PROBLEM), "warnings",
                                       (int)count(doctor, RG_CHECK_WARNING)));
}

static bool check_settings(const struct rg_cli_settings *settings, bool with_server)
{
    struct stat root;
    if (settings->root && (stat(settings->root, &root) != 0 || !S_ISDIR(root.st_mode)))
        rg_error("--root: there is no folder %s", settings->root);
    else if (with_server && settings->server.n == 0)
        rg_error("the list of servers is empty; name one with -s HOST");
    else
        return true;
    return false;
}

int rg_cli_doctor(const struct rg_cli_settings *settings, int argc, char **argv)
{
    /* A recorded tree has no way to a server. */
    const bool with_server =
        !settings->root && rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, server));
    if (!rg_cli_no_words("doctor", argc, argv) || !check_settings(settings, with_server))
        return RG_EXIT_FAILURE;
    static struct rg_doctor doctor;
    doctor.root = settings->root ? settings->root : "";
    rg_doctor_verbs(&doctor);
    rg_doctor_modules(&doctor);
    rg_doctor_rights(&doctor);
    rg_doctor_libraries(&doctor);
    rg_doctor_network(&doctor);
    rg_doctor_topology(&doctor);
    for (size_t i = 0; with_server && i < settings->server.n; i++)
        rg_doctor_server(&doctor, settings->server.items[i], settings->timeout_ns);
    int status = count(&doctor, RG_CHECK_PROBLEM) ? EXIT_PROBLEMS : 0;
    if (doctor.out_of_memory) {
        rg_error("out of memory");
        status = RG_EXIT_FAILURE;
    } else if (settings->json) {
        status = print_json(&doctor) ? status : RG_EXIT_FAILURE;
    } else {
        print_text(&doctor);
    }
    free(doctor.checks);
    return status;
}
