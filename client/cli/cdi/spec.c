/* spec.c - see spec.h. */
#include "client/cli/cdi/spec.h"

#include "client/cli/base/output.h"
#include "common/base/cleanup.h"
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS  "0123456789"

/* A letter first, a letter or digit last, and in between what `others` has besides. */
static bool is_name(const char *text, size_t size, const char *others)
{
    for (size_t i = 0; i < size; i++) {
        const bool letter = strchr(LETTERS, text[i]) != NULL, digit = strchr(DIGITS, text[i]) != NULL;
        if (!letter && (i == 0 || (!digit && (i + 1 == size || !strchr(others, text[i])))))
            return false;
    }
    return size > 0;
}

bool rg_cdi_kind_is_valid(const char *kind, char *why, size_t why_size)
{
    const size_t vendor = strcspn(kind, "/");
    if (kind[vendor] != '/')
        rg_explain(why, why_size, "'%s' is not VENDOR/CLASS, like remote-gpu.io/gpu", kind);
    else if (!is_name(kind, vendor, "-_."))
        rg_explain(
            why, why_size,
            "'%.*s' is no vendor: a letter comes first, then letters, digits, '-', '_' and '.', and at "
            "the end a letter or digit",
            (int)vendor, kind);
    else if (!is_name(kind + vendor + 1, strlen(kind + vendor + 1), "-_"))
        rg_explain(
            why, why_size,
            "'%s' is no class: a letter comes first, then letters, digits, '-' and '_', and at the end a "
            "letter or digit",
            kind + vendor + 1);
    else
        return true;
    return false;
}

void rg_cdi_init(struct rg_cdi_spec *spec)
{
    *spec = (struct rg_cdi_spec){json_array(), json_array(), json_array()};
}

void rg_cdi_fini(struct rg_cdi_spec *spec)
{
    json_decref(spec->env);
    json_decref(spec->mounts);
    json_decref(spec->nodes);
    *spec = (struct rg_cdi_spec){0};
}

static json_t *variable(const char *name, const char *value)
{
    return json_pack("s++", name, "=", value);
}

void rg_cdi_add_variable(struct rg_cdi_spec *spec, const char *name, const char *value)
{
    rg_cli_json_add(&spec->env, variable(name, value));
}

void rg_cdi_add_assignment(struct rg_cdi_spec *spec, const char *assignment)
{
    rg_cli_json_add(&spec->env, json_string(assignment));
}

void rg_cdi_add_mount(struct rg_cdi_spec *spec, const char *host, const char *container)
{
    json_t *mount = json_pack("{s:s, s:s, s:[ssss]}", "hostPath", host, "containerPath", container, "options",
                              "ro", "nosuid", "nodev", "rbind");
    for (size_t i = 0; mount && i < json_array_size(spec->mounts); i++)
        if (json_equal(json_array_get(spec->mounts, i), mount)) {
            json_decref(mount);
            return;
        }
    rg_cli_json_add(&spec->mounts, mount);
}

void rg_cdi_add_node(struct rg_cdi_spec *spec, const char *path)
{
    rg_cli_json_add(&spec->nodes, json_pack("{s:s}", "path", path));
}

/* A device must have edits of its own, which for "all" is a variable that is as good as none. */
static json_t *device(const char *name, const char *counter, const char *value)
{
    json_t *one = variable(counter, value);
    return one ? json_pack("{s:s, s:{s:[o]}}", "name", name, "containerEdits", "env", one) : NULL;
}

/* Takes the devices. */
static json_t *whole_of(const struct rg_cdi_spec *spec, const char *kind, json_t *devices)
{
    json_t *nodes = json_array_size(spec->nodes) ? spec->nodes : NULL;
    return json_pack("{s:s, s:s, s:{s:O, s:O, s:O*}, s:o}", "cdiVersion", RG_CDI_VERSION, "kind", kind,
                     "containerEdits", "env", spec->env, "mounts", spec->mounts, "deviceNodes", nodes,
                     "devices", devices);
}

json_t *rg_cdi_finish(const struct rg_cdi_spec *spec, const char *kind, const char *counter, unsigned count)
{
    if (!spec->env || !spec->mounts || !spec->nodes)
        return NULL;
    json_t *devices = json_array();
    for (unsigned i = 1; i <= count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        rg_cli_json_add(&devices, device(name, counter, name));
    }
    rg_cli_json_add(&devices, device("all", counter, ""));
    return whole_of(spec, kind, devices);
}

json_t *rg_cdi_finish_as(const struct rg_cdi_spec *spec, const char *kind, const char *name,
                         const char *variable_name, const char *value)
{
    if (!spec->env || !spec->mounts || !spec->nodes)
        return NULL;
    json_t *devices = json_array();
    rg_cli_json_add(&devices, device(name, variable_name, value));
    return whole_of(spec, kind, devices);
}

/* --- the file ------------------------------------------------------------------------------------------------ */

bool rg_cdi_write(const char *path, mode_t mode, const json_t *whole, char *why, size_t why_size)
{
    RG_CLEANUP_FREE char *text = json_dumps(whole, JSON_INDENT(2));
    char beside[PATH_MAX];
    if (!text || snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside) {
        rg_explain(why, why_size, "cannot write %s: %s", path,
                   text ? "its name is too long" : "out of memory");
        return false;
    }
    const int fd = mkostemp(beside, O_CLOEXEC);
    bool good = fd >= 0 && rg_file_write(fd, text, strlen(text)) && rg_file_write(fd, "\n", 1) &&
                fchmod(fd, mode) == 0;
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && rename(beside, path) != 0) {
        good = false;
        error = errno;
    }
    if (good)
        return true;
    if (fd >= 0)
        (void)unlink(beside);
    rg_explain(why, why_size, "cannot write %s: %s", path, strerror(error));
    return false;
}
