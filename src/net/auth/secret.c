/* Memory for keys, and the derivation of the key from a secret. */
#define _GNU_SOURCE
#include "net/auth/secret.h"

#include <sys/mman.h>

/* Old kernels may lack these madvise flags. Failures are ignored: dumps and children then contain the keys. */
void *secret_take(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, bytes, MADV_DONTDUMP);
    (void)madvise(memory, bytes, MADV_WIPEONFORK);
    (void)mlock(memory, bytes);
    return memory;
}

void secret_give(void *memory, size_t bytes)
{
    if (!memory)
        return;
    crypto_wipe(memory, bytes);
    munmap(memory, bytes); /* this also unlocks it */
}

bool secret_key(const void *secret, size_t bytes, unsigned char key[CRYPTO_KEY])
{
    static const char label[] = "commstream job secret 1";

    return crypto_hmac((const unsigned char *)label, sizeof label - 1, secret, bytes, key);
}
