/*
 * ended.c - why sessions have ended, for clients that were out of reach meanwhile and come back later. Of the last ones, and told to who
 * began them alone. Main thread.
 */
#include "server/daemon/sessions/list.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void rg_ended_remember(struct rg_sessions *sessions, const struct rg_session_entry *entry, int end)
{
    struct rg_session_ended *ended = &sessions->ended[sessions->n_ended++ % RG_SESSIONS_ENDED];
    *ended = (struct rg_session_ended){.id = entry->info.id, .who = entry->who};
    if (entry->kill_ns)
        snprintf(ended->why, sizeof ended->why, "%s", rg_session_end_why(entry->end));
    else if (WIFSIGNALED(end))
        snprintf(ended->why, sizeof ended->why, "its worker was killed by signal %d (%s)%s", WTERMSIG(end),
                 strsignal(WTERMSIG(end)),
                 WTERMSIG(end) == SIGKILL ? "; perhaps the server has run out of memory" : "");
    else if (WEXITSTATUS(end) != 0)
        snprintf(ended->why, sizeof ended->why, "its worker failed with status %d", WEXITSTATUS(end));
    else
        snprintf(ended->why, sizeof ended->why, "nothing was heard of the program for too long");
}

void rg_ended_explain(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who, char *out,
                      size_t size)
{
    const struct rg_session_ended *found = NULL;
    for (size_t i = 0; i < RG_SESSIONS_ENDED && who; i++)
        if (id && sessions->ended[i].id == id && rg_who_is_same(&sessions->ended[i].who, who))
            found = &sessions->ended[i];
    snprintf(out, size, "the session has ended on the server%s%s", found ? ": " : "",
             found ? found->why : "");
}
