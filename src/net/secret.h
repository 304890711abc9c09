/* secret: where the job's secret comes from, and what is made of it. It is never logged, nor part of an error's text. */
#ifndef NET_SECRET_H
#define NET_SECRET_H

#include "net/crypto.h"
#include "wire/boot.h"

enum { SECRET_LEAST = 16, SECRET_TEXT_LEAST = 32, SECRET_MOST = 4096 };

/*
 * The program's secret, or else the file that COMM_SECRET_FILE names, or else COMM_SECRET: as a key. *there false: there is none. CONFIG:
 * too short to be one, both variables are set, a file that others may read; UNSUPPORTED: no library that could use it.
 */
enum comm_result secret_find(const struct boot_config *config, unsigned char key[CRYPTO_KEY], bool *there);
/*
 * Memory for keys, zeros, in pages of its own that no core dump has, that a forked child finds empty, and that are not paged out where the
 * limit on locked memory allows it. NULL: no memory. Given back it is wiped; NULL is nothing.
 */
void *secret_take(size_t bytes);
void secret_give(void *memory, size_t bytes);
/* Of any bytes that only this job knows. */
bool secret_key(const void *secret, size_t bytes, unsigned char key[CRYPTO_KEY]);

#endif
