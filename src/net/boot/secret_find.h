/* secret_find: finds the job's secret. The secret is never logged and never part of an error text. */
#ifndef NET_BOOT_SECRET_FIND_H
#define NET_BOOT_SECRET_FIND_H

#include "net/auth/secret.h"
#include "wire/boot.h"

enum { SECRET_LEAST = 16, SECRET_TEXT_LEAST = 32, SECRET_MOST = 4096 };

/*
 * Makes the key from the program's secret, or else from the file that COMM_SECRET_FILE names, or else from COMM_SECRET. *there is false if
 * there is no secret. CONFIG: the secret is too short, both variables are set, or others may read the file. UNSUPPORTED: this build has no
 * crypto library.
 */
enum comm_result secret_find(const struct boot_config *config, unsigned char key[CRYPTO_KEY], bool *there);
/* Whether the environment has one, good or not. */
bool secret_is_set(const struct comm_env *env);

#endif
