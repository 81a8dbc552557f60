/*
 * smi.c - remote-gpu smi: a table of the GPUs of servers, for those who are used to nvidia-smi.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/inventory.h"
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"

#include <stdio.h>

/* Columns of the tables, without the borders and the blanks beside them. */
static const int gpu_widths[] = {3, 30, 12, 19, 5, 9};
static const int session_widths[] = {3, 7, 22, 7, 20, 30};
#define GPU_COLUMNS     6
#define SESSION_COLUMNS 6

static void print_rule(const int *widths, int n, char fill)
{
    for (int i = 0; i < n; i++) {
        putchar('+');
        for (int j = 0; j < widths[i] + 2; j++)
            putchar(fill);
    }
    puts("+");
}

/* One cell, cut at a character's boundary or filled with blanks. */
static void print_cell(const char *text, int width)
{
    int columns = rg_cli_text_columns(text);
    if (columns <= width) {
        printf("| %s%*s ", text, width - columns, "");
        return;
    }
    int size = 0;
    for (int shown = 0; shown < width; size++)
        shown += (text[size + 1] & 0xc0) != 0x80;
    printf("| %.*s ", size, text);
}

static void print_row(const int *widths, int n, const char *const *cells)
{
    for (int i = 0; i < n; i++)
        print_cell(cells[i], widths[i]);
    puts("|");
}

/* How sessions use a GPU now. */
static const char *mode_of(const struct rg_inventory *inventory, uint32_t ordinal)
{
    for (uint32_t i = 0; i < inventory->n_sessions; i++)
        for (uint32_t j = 0; j < inventory->sessions[i].n_devices; j++)
            if (inventory->sessions[i].devices[j] == ordinal) {
                if (inventory->sessions[i].exclusive)
                    return "exclusive";
                if (inventory->sessions[i].sharing == RG_SHARING_MPS)
                    return "by MPS";
            }
    return "shared";
}

static void print_gpus(const struct rg_inventory *inventory, unsigned first)
{
    print_rule(gpu_widths, GPU_COLUMNS, '-');
    print_row(gpu_widths, GPU_COLUMNS,
              (const char *const[]){"GPU", "Name", "Bus", "Memory used / total", "Util", "Mode"});
    print_rule(gpu_widths, GPU_COLUMNS, '=');
    for (uint32_t i = 0; i < inventory->n_devices; i++) {
        const struct rg_device_info *device = &inventory->devices[i];
        char index[12], memory[64], total[24], used[24] = "n/a";
        snprintf(index, sizeof index, "%u", first + device->ordinal);
        rg_cli_bytes_text(device->memory_total, total, sizeof total);
        if (device->memory_free_known && device->memory_free <= device->memory_total)
            rg_cli_bytes_text(device->memory_total - device->memory_free, used, sizeof used);
        snprintf(memory, sizeof memory, "%s / %s", used, total);
        const char *bus = device->pci[0] ? device->pci : "n/a";
        print_row(gpu_widths, GPU_COLUMNS,
                  (const char *const[]){index, device->name, bus, memory, "n/a",
                                        mode_of(inventory, device->ordinal)});
    }
    print_rule(gpu_widths, GPU_COLUMNS, '-');
}

/* "1.0 GiB / 8.0 GiB" */
static void memory_text(const struct rg_share_info *share, char *out, size_t size)
{
    char used[24], limit[24];
    rg_cli_bytes_text(share->memory_used, used, sizeof used);
    rg_cli_bytes_text(share->memory_limit, limit, sizeof limit);
    snprintf(out, size, "%s%s%s", used, share->memory_limit ? " / " : "", share->memory_limit ? limit : "");
}

static void print_sessions(const struct rg_inventory *inventory, unsigned first)
{
    if (inventory->n_sessions == 0) {
        puts("No sessions.");
        return;
    }
    print_rule(session_widths, SESSION_COLUMNS, '-');
    print_row(session_widths, SESSION_COLUMNS,
              (const char *const[]){"GPU", "Session", "Client", "Process", "Memory used / limit", "Command"});
    print_rule(session_widths, SESSION_COLUMNS, '=');
    for (uint32_t i = 0; i < inventory->n_sessions; i++) {
        const struct rg_session_info *session = &inventory->sessions[i];
        char id[24], client[2 * RG_CONTROL_TEXT + 2], process[12];
        snprintf(id, sizeof id, "%llu", (unsigned long long)session->id);
        snprintf(client, sizeof client, "%s@%s",
                 session->identity_name[0] ? session->identity_name : session->identity.user,
                 session->identity.host);
        snprintf(process, sizeof process, "%u", session->identity.pid);
        for (uint32_t j = 0; j == 0 || j < session->n_devices; j++) {
            char gpu[12] = "-", memory[64] = "n/a"; /* it has not chosen one */
            if (j < session->n_devices)
                snprintf(gpu, sizeof gpu, "%u", first + session->devices[j]);
            if (j < session->n_shares)
                memory_text(&session->shares[j], memory, sizeof memory);
            print_row(session_widths, SESSION_COLUMNS,
                      (const char *const[]){gpu, id, client, process, memory, session->identity.command});
        }
    }
    print_rule(session_widths, SESSION_COLUMNS, '-');
}

static void print_server(const struct rg_answer_of *answer)
{
    const struct rg_inventory *inventory = &answer->message.inventory;
    printf("%s   %s   driver: %s   CUDA: %u.%u\n", answer->server, inventory->software,
           inventory->driver.kind, inventory->driver.version / 1000, inventory->driver.version % 1000 / 10);
    print_gpus(inventory, answer->first);
    print_sessions(inventory, answer->first);
}

int rg_cli_smi(const struct rg_cli_settings *settings, int argc, char **argv)
{
    struct rg_cli_settings whole = *settings;
    if (!rg_cli_pool_members(settings, &whole.server))
        return RG_EXIT_FAILURE;
    const int status = rg_inventory_show(&whole, "smi", argc, argv, NULL, print_server);
    rg_text_list_clear(&whole.server);
    return status;
}
