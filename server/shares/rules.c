/* rules.c - rules as they were read, and what holds for somebody. See rules.h; what may be in a file: rules_check.c. */
#include "server/shares/rules.h"

#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "server/shares/rules_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rg_share_rules {
    json_t *root;
};

/* Beside "members", of this process: no key of a file is called so. */
#define MEMBERS_BY_NAME "\001members"

/* Beside the list of members of each project or group, an object with their names, so that looking one up does not take the list. */
static bool index_members(const json_t *entries)
{
    const char *name;
    json_t *entry, *member;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)entries, name, entry)
    {
        json_t *by_name = json_object();
        if (json_object_set_new(entry, MEMBERS_BY_NAME, by_name) != 0)
            return false;
        json_array_foreach(json_object_get(entry, "members"), i, member)
        {
            if (json_object_set_new(by_name, json_string_value(member), json_true()) != 0)
                return false;
        }
    }
    return true;
}

enum rg_status rg_share_rules_parse(const char *text, size_t size, struct rg_share_rules **out, char *why,
                                    size_t why_size)
{
    json_error_t error;
    struct rg_share_rules *rules = calloc(1, sizeof *rules);
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    enum rg_status status = RG_ERR_INVALID;
    if (!root) {
        rg_explain(why, why_size, "line %d: %s", error.line, error.text);
    } else if (rules && rg_share_rules_check(root, why, why_size)) {
        if (index_members(json_object_get(root, "projects")) &&
            index_members(json_object_get(root, "groups"))) {
            rules->root = root;
            *out = rules;
            return RG_OK;
        }
        status = RG_ERR_NO_MEMORY;
    }
    if (!rules || status == RG_ERR_NO_MEMORY) {
        rg_explain(why, why_size, "out of memory");
        status = root ? RG_ERR_NO_MEMORY : status;
    }
    json_decref(root);
    free(rules);
    return status;
}

enum rg_status rg_share_rules_read(const char *path, struct rg_share_rules **out, char *why, size_t why_size)
{
    char reason[512] = "";
    FILE *file = fopen(path, "re");
    RG_CLEANUP_FREE char *text = malloc(RG_SHARE_RULES_MAX + 1);
    if (!file || !text) {
        rg_explain(why, why_size, "the rules file %s cannot be read: %s", path, strerror(errno));
        if (file)
            fclose(file);
        return text ? RG_ERR_NOT_FOUND : RG_ERR_NO_MEMORY;
    }
    const size_t size = fread(text, 1, RG_SHARE_RULES_MAX + 1, file);
    const bool failed = ferror(file);
    fclose(file);
    if (failed || size > RG_SHARE_RULES_MAX) {
        rg_explain(why, why_size, "the rules file %s cannot be read, or is larger than %u bytes", path,
                   RG_SHARE_RULES_MAX);
        return RG_ERR_INVALID;
    }
    const enum rg_status status = rg_share_rules_parse(text, size, out, reason, sizeof reason);
    if (status != RG_OK)
        rg_explain(why, why_size, "the rules file %s is wrong: %s", path, reason);
    return status;
}

void rg_share_rules_free(struct rg_share_rules *rules)
{
    if (rules)
        json_decref(rules->root);
    free(rules);
}

/* --- what holds for somebody ------------------------------------------------------------------------------ */

/* The name by which the file calls a user; "": none. */
static void user_key(const struct rg_share_user *user, char *out, size_t size)
{
    out[0] = 0;
    if (user->kind == RG_SHARE_UID)
        snprintf(out, size, "uid:%u", user->uid);
    else if (user->kind == RG_SHARE_NAME && strncmp(user->name, "uid:", 4) != 0)
        snprintf(out, size, "%s", user->name);
}

static const json_t *entry_of(const struct rg_share_rules *rules, const char *section, const char *name)
{
    return rules && *name ? json_object_get(json_object_get(rules->root, section), name) : NULL;
}

bool rg_share_rules_has_member(const json_t *entry, const char *name)
{
    return *name && json_object_get(json_object_get(entry, MEMBERS_BY_NAME), name);
}

enum rg_status rg_share_rules_limits(const struct rg_share_rules *rules, const struct rg_share_user *user,
                                     const char *project, struct rg_share_limits *out, char *why,
                                     size_t why_size)
{
    char key[RG_CONTROL_TEXT];
    user_key(user, key, sizeof key);
    const json_t *of_project = entry_of(rules, "projects", project);
    const bool projects = rules && json_object_get(rules->root, "projects");
    *out = (struct rg_share_limits){0};
    if (projects && *project && !rg_share_rules_has_member(of_project, key)) {
        rg_explain(why, why_size,
                   "you are no member of a project '%s' on this server; leave out --project, or ask the "
                   "server's operator",
                   project);
        return RG_ERR_REFUSED;
    }
    if (rules)
        rg_share_rules_overlay(out, json_object_get(rules->root, "default"));
    rg_share_rules_overlay(out, of_project);
    rg_share_rules_overlay(out, entry_of(rules, "users", key));
    return RG_OK;
}

const json_t *rg_share_rules_quota(const struct rg_share_rules *rules, const struct rg_share_user *user,
                                   const char *project)
{
    char key[RG_CONTROL_TEXT] = "";
    const json_t *entry = rules ? json_object_get(rules->root, "default") : NULL;
    if (user)
        user_key(user, key, sizeof key);
    if (user)
        entry = entry_of(rules, "users", key);
    else if (project)
        entry = entry_of(rules, "projects", project);
    return json_object_get(entry, "quota");
}

const json_t *rg_share_rules_groups(const struct rg_share_rules *rules)
{
    return rules ? json_object_get(rules->root, "groups") : NULL;
}

const json_t *rg_share_rules_used_up(const struct rg_share_rules *rules)
{
    return rules ? json_object_get(rules->root, "when-used-up") : NULL;
}
