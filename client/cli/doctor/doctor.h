/*
 * doctor.h - the checks of remote-gpu doctor, and what they share.
 *
 * A check looks at one thing and says how it is (ok, warning, problem), what it found, and where something is
 * to be done, the command that does it. What is read of this machine's files goes through tree.h, below a
 * root that can be a recorded tree; what asks the machine itself (loading a library, a connection) is left
 * out there. One thread.
 */
#ifndef RG_CLIENT_CLI_DOCTOR_DOCTOR_H
#define RG_CLIENT_CLI_DOCTOR_DOCTOR_H

#include "client/cli/base/cli.h"

#include <stdbool.h>
#include <stddef.h>

enum rg_check_level {
    RG_CHECK_OK,
    RG_CHECK_WARNING, /* it works, worse than it could; or it will not work for everybody */
    RG_CHECK_PROBLEM, /* something that is there cannot be used */
};

enum { RG_DOCTOR_DEVICES = 16, RG_DOCTOR_TEXT = 1024 };

struct rg_check {
    enum rg_check_level level;
    const char *name;
    char found[RG_DOCTOR_TEXT], fix[RG_DOCTOR_TEXT]; /* fix "": nothing to do */
};

/** An RDMA device as sysfs shows it. */
struct rg_doctor_device {
    char name[64], driver[64], pci[32]; /* "mlx5_0", "mlx5_core", "0000:3b:00.0"; "": not known */
    char interface[32];                 /* network interface of its first port, or "" */
    bool active;                        /* a port is */
};

struct rg_doctor {
    const char *root; /* "": this machine */
    struct rg_doctor_device devices[RG_DOCTOR_DEVICES];
    unsigned n_devices;
    struct rg_check *checks;
    unsigned n_checks;
    bool out_of_memory;
};

/** Adds the result of a check. `fix` may be NULL. */
void rg_doctor_say(struct rg_doctor *doctor, enum rg_check_level level, const char *name, const char *fix,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

void rg_doctor_verbs(struct rg_doctor *doctor); /* first: it finds the devices */
void rg_doctor_modules(struct rg_doctor *doctor);
void rg_doctor_rights(struct rg_doctor *doctor);
void rg_doctor_libraries(struct rg_doctor *doctor);
void rg_doctor_network(struct rg_doctor *doctor);
void rg_doctor_topology(struct rg_doctor *doctor);
void rg_doctor_server(struct rg_doctor *doctor, const char *server, uint64_t timeout_ns);

#endif
