/* Between the files of the mock driver for staging (mock_everywhere.c). */
#ifndef MOCK_EVERYWHERE_INSIDE_H
#define MOCK_EVERYWHERE_INSIDE_H

#include "mock_everywhere.h"

#include "cuda/calls.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);
CUDA_CALLS(EXPORT)
#define BEGIN                                                                                                                              \
    if (mock_fails())                                                                                                                      \
    return CUDA_UNKNOWN

bool mock_fails(void); /* counts the call; true: it must fail */
bool mock_is_late(void);

#endif
