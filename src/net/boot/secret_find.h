/* secret_find: where the job's secret comes from. It is never logged, nor part of an error's text. */
#ifndef NET_BOOT_SECRET_FIND_H
#define NET_BOOT_SECRET_FIND_H

#include "net/auth/secret.h"
#include "wire/boot.h"

enum { SECRET_LEAST = 16, SECRET_TEXT_LEAST = 32, SECRET_MOST = 4096 };

/*
 * The program's secret, or else the file that COMM_SECRET_FILE names, or else COMM_SECRET: as a key. *there false: there is none. CONFIG:
 * too short to be one, both variables are set, a file that others may read; UNSUPPORTED: no library that could use it.
 */
enum comm_result secret_find(const struct boot_config *config, unsigned char key[CRYPTO_KEY], bool *there);

#endif
