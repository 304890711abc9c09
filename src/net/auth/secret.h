/* secret: the key that is made of a job's secret, and the memory that keys are kept in. */
#ifndef NET_AUTH_SECRET_H
#define NET_AUTH_SECRET_H

#include "net/auth/crypto.h"

/*
 * Memory for keys, zeros, in pages of its own that no core dump has, that a forked child finds empty, and that are not paged out where the
 * limit on locked memory allows it. NULL: no memory. Given back it is wiped; NULL is nothing.
 */
void *secret_take(size_t bytes);
void secret_give(void *memory, size_t bytes);
/* Of any bytes that only this job knows. */
bool secret_key(const void *secret, size_t bytes, unsigned char key[CRYPTO_KEY]);

#endif
