/* behaviour.h - SOFTGPU_BEHAVE, which the software device and the server that loads it both go by. */
#ifndef RG_COMMON_CUDA_BEHAVIOUR_H
#define RG_COMMON_CUDA_BEHAVIOUR_H

#include <stdbool.h>
#include <string.h>

/** Whether the variable's value (or NULL) asks for what NVIDIA's driver does: "nvidia", or "nvidia:KEY=VALUE…". */
static inline bool rg_behaviour_is_nvidia(const char *text)
{
    static const char name[] = "nvidia";
    return text && strncmp(text, name, sizeof name - 1) == 0 &&
           (text[sizeof name - 1] == '\0' || text[sizeof name - 1] == ':');
}

#endif
