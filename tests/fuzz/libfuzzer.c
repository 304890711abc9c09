/* One target (FUZZ_TARGET) under libFuzzer. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    FUZZ_TARGET(bytes, count);
    return 0;
}
