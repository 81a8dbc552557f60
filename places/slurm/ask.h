/*
 * ask.h - what a job asks of the pool: the options of srun, sbatch and salloc, and how their texts get to the controller.
 *
 * The plugin checks each option where it is given and puts its text into the job's control environment, which slurmctld shows to
 * PrologSlurmctld with SPANK_ in front of each name. There it is read again, and checked again: whoever submits a job can put any
 * text there.
 */
#ifndef RG_PLACES_SLURM_ASK_H
#define RG_PLACES_SLURM_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_SLURM_FILTERS_SIZE 2048 /* with commas between them */

enum rg_slurm_option { RG_SLURM_GPUS, RG_SLURM_MEMORY, RG_SLURM_FILTER, RG_SLURM_SPREAD, RG_SLURM_OPTIONS };

struct rg_slurm_option_row {
    const char *name;     /* of srun's option, without its dashes */
    const char *argument; /* NULL: it takes none */
    const char *help;
    const char *variable; /* of the control environment, without SPANK_ */
};

extern const struct rg_slurm_option_row rg_slurm_options[RG_SLURM_OPTIONS];

/** What is asked for; zeroed: nothing. */
struct rg_slurm_ask {
    bool given[RG_SLURM_OPTIONS];
    unsigned gpus;
    uint64_t memory;   /* bytes of each GPU; 0: not said */
    uint32_t fraction; /* millionths of each GPU's memory; 0: not said */
    char filters[RG_SLURM_FILTERS_SIZE];
    bool spread;
};

/** Takes an option's text (NULL where it has none); a filter is added to those before. False: `why` is a phrase. */
bool rg_slurm_ask_take(struct rg_slurm_ask *ask, enum rg_slurm_option option, const char *text, char *why,
                       size_t why_size);
/** Whether the options that were given go together. False: `why` is a phrase. */
bool rg_slurm_ask_check(const struct rg_slurm_ask *ask, char *why, size_t why_size);
/** Takes the options from SPANK_… of this process's environment, and checks them. False: `why` is a phrase. */
bool rg_slurm_ask_read(struct rg_slurm_ask *ask, char *why, size_t why_size);

#endif
