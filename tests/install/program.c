/* Somebody else's program: it knows the installed headers and the library, and nothing of this tree. */
#include <commstream/commstream.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    uint32_t version = comm_version();
    const char *name = comm_result_name(COMM_ERR_PEER);
    printf("commstream %u.%u.%u, %s\n", version >> 16, version >> 8 & 255, version & 255, name);
    return strcmp(name, "COMM_ERR_PEER") != 0;
}
