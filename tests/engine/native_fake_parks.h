/* The fake native's bound on waits for what only the host reaches (fake.parks). Its lock is held. */
#ifndef TESTS_ENGINE_NATIVE_FAKE_PARKS_H
#define TESTS_ENGINE_NATIVE_FAKE_PARKS_H

#include "engine/native_fake.h"

/* *kept: what the channel keeps. False: there is no room, and nothing happened. */
static inline bool parks_take(uint32_t *kept)
{
    uint32_t own = *kept != 0;
    *kept -= own;
    fake.kept -= own;
    bool there = !fake.parks || fake.parked + fake.kept < fake.parks;
    fake.parked += there;
    return there;
}

static inline enum comm_result parks_keep(uint32_t *kept, uint32_t count)
{
    fake.kept -= *kept;
    bool there = !fake.parks || fake.parked + fake.kept + count <= fake.parks;
    *kept = there && !fake.parks_not ? count : 0;
    fake.kept += *kept;
    return fake.parks_not && count ? COMM_ERR_UNSUPPORTED : there ? COMM_OK : COMM_ERR_FULL;
}

#endif
