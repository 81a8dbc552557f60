/* transport_choice.h - over which transports sessions may go, as the user has asked (`run --transport`). */
#ifndef RG_CLIENT_CORE_TRANSPORT_CHOICE_H
#define RG_CLIENT_CORE_TRANSPORT_CHOICE_H

#include "transport/upgrade/upgrade.h"

/** REMOTE_GPU_TRANSPORT; what is none of its words is told once, and means auto. Any thread. */
enum rg_transport_choice rg_transport_choice_wanted(void);

#endif
