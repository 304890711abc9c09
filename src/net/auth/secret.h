/* secret: derives a key from a job's secret, and allocates the memory for keys. */
#ifndef NET_AUTH_SECRET_H
#define NET_AUTH_SECRET_H

#include "net/auth/crypto.h"

/* Zeroed memory for keys in pages of its own. Core dumps exclude it, a forked child sees it empty, and it is not swapped if the limit on
 * locked memory permits. NULL: no memory. secret_give wipes the memory; it accepts NULL. */
void *secret_take(size_t bytes);
void secret_give(void *memory, size_t bytes);
/* Derives the key from any bytes that only this job knows. */
bool secret_key(const void *secret, size_t bytes, unsigned char key[CRYPTO_KEY]);

#endif
