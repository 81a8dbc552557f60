/* job_map.c - see job_map.h. The form of the files: dcgm-exporter's README, "How to include HPC jobs in metric labels". */
#include "server/daemon/pool/job_map.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/hash_table.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = RG_AGENT_JOB + 32, NAME_SIZE = 24 };

/* As the management library numbers them; where no place is known, as the driver does. */
static uint32_t number_of(const struct rg_driver *driver, uint32_t device)
{
    const char *pci = driver->devices[device].pci;
    uint32_t number = 0;
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        const int order = strcasecmp(driver->devices[i].pci, pci);
        number += order < 0 || (order == 0 && i < device);
    }
    return number;
}

bool rg_job_map_open(struct rg_job_map *map, const char *path, const struct rg_driver *driver)
{
    char name[NAME_SIZE];
    *map = (struct rg_job_map){.folder = -1, .n_devices = driver->n_devices};
    if (!path)
        return true;
    map->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (map->folder < 0 || faccessat(map->folder, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        rg_error("--job-mapping-dir %s: %s; it has to be a folder that this user can write to", path,
                 strerror(errno));
        return false;
    }
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        map->numbers[i] = number_of(driver, i);
        snprintf(name, sizeof name, "%u", map->numbers[i]);
        (void)unlinkat(map->folder, name, 0);
    }
    return true;
}

/* Everybody may read it. */
static void name_job(const struct rg_session_entry *entry, const struct rg_pool_process *pool,
                     char out[LINE_SIZE])
{
    const char *job = entry->pool_lease ? rg_pool_job(pool, entry->pool_lease) : "";
    if (*job)
        snprintf(out, LINE_SIZE, "%s\n", job);
    else if (entry->pool_lease && rg_pool_is_proved(pool, entry->pool_lease))
        snprintf(out, LINE_SIZE, "lease-%016" PRIx64 "\n", entry->pool_lease);
    else
        snprintf(out, LINE_SIZE, "session-%" PRIu64 "\n", entry->info.id);
}

static bool has_device(const struct rg_session_info *info, uint32_t device)
{
    for (uint32_t i = 0; i < info->n_devices; i++)
        if (info->devices[i] == device)
            return true;
    return false;
}

/* Whether a text of lines has this one, which ends as a line does. */
static bool has_line(const char *text, const char *line)
{
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
        if (at == text || at[-1] == '\n')
            return true;
    return false;
}

/* The lines of a device, each job once; NULL: no memory. */
static char *lines_of(const struct rg_sessions *sessions, const struct rg_pool_process *pool, uint32_t device)
{
    char *out = malloc((size_t)sessions->n * LINE_SIZE + 1), line[LINE_SIZE];
    size_t used = 0;
    if (!out)
        return NULL;
    *out = '\0';
    for (uint32_t i = 0; i < sessions->n; i++) {
        if (!has_device(&sessions->entries[i]->info, device))
            continue;
        name_job(sessions->entries[i], pool, line);
        if (has_line(out, line))
            continue;
        memcpy(out + used, line, strlen(line) + 1);
        used += strlen(line);
    }
    return out;
}

/* Whoever reads sees all of it or what was before. */
static bool write_file(const struct rg_job_map *map, uint32_t device, const char *text)
{
    char name[NAME_SIZE], temporary[NAME_SIZE];
    snprintf(name, sizeof name, "%u", map->numbers[device]);
    snprintf(temporary, sizeof temporary, ".%u.new", map->numbers[device]); /* no number, so not read */
    if (!*text)
        return unlinkat(map->folder, name, 0) == 0 || errno == ENOENT;
    /* of a server that was killed, or another name of somebody's file */
    (void)unlinkat(map->folder, temporary, 0);
    RG_CLEANUP_FD int file = openat(map->folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0 && rg_file_write(file, text, strlen(text)) &&
        renameat(map->folder, temporary, map->folder, name) == 0)
        return true;
    const int error = errno;
    (void)unlinkat(map->folder, temporary, 0);
    errno = error;
    return false;
}

void rg_job_map_update(struct rg_job_map *map, const struct rg_sessions *sessions,
                       const struct rg_pool_process *pool)
{
    for (uint32_t i = 0; i < map->n_devices && map->folder >= 0; i++) {
        RG_CLEANUP_FREE char *text = lines_of(sessions, pool, i);
        const uint64_t hash = text && *text ? rg_hash_bytes(RG_HASH_EMPTY, text, strlen(text)) | 1 : 0;
        if (!text || hash == map->hashes[i])
            continue;
        if (write_file(map, i, text)) {
            map->hashes[i] = hash;
            map->failing = false;
        } else if (!map->failing) {
            rg_error("--job-mapping-dir: the file of GPU %u cannot be written: %s", map->numbers[i],
                     strerror(errno));
            map->failing = true;
        }
    }
}

void rg_job_map_close(struct rg_job_map *map)
{
    for (uint32_t i = 0; i < map->n_devices && map->folder >= 0; i++)
        if (map->hashes[i])
            (void)write_file(map, i, "");
    if (map->folder >= 0)
        close(map->folder);
    *map = (struct rg_job_map){.folder = -1};
}
