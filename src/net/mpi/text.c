/* What MPI says of itself and of its errors, as text. */
#include "net/mpi/mpi_module.h"

#include "base/log.h"
#include "net/mpi/family.h"

#include <stdio.h>

void mpi_library_text(char *text, size_t bytes)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    /* The versions look like "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2\n...". The result has only the name and the
     * number, which a user knows. */
    if (MPI_Get_library_version(whole, &length) != MPI_SUCCESS || length <= 0) {
        snprintf(text, bytes, "%s", MODULE_LIBRARY);
        return;
    }
    size_t at = 0;
    for (const char *c = whole; *c && *c != ',' && *c != '\n' && at + 1 < bytes; c++) {
        bool blank = *c == ' ' || *c == '\t';
        if (blank && at && text[at - 1] == ' ')
            continue;
        text[at++] = blank ? ' ' : *c;
    }
    text[at] = 0;
}

void mpi_explain(struct native *native, int32_t code, char *text, size_t bytes)
{
    char whole[MPI_MAX_ERROR_STRING] = "";
    struct mpi_caller caller;
    int length = 0;

    (void)native;
    mpi_call_begin(&caller);
    if (code == MPI_OVER)
        snprintf(whole, sizeof whole, "MPI_Finalize was called while the communicator was open");
    else if (code == MPI_OTHER_THREAD)
        snprintf(whole, sizeof whole, "MPI was started below MPI_THREAD_SERIALIZED, and this is not the thread that opened the world");
    else if (code == MPI_NO_MEMORY)
        snprintf(whole, sizeof whole, "no memory for a call of MPI");
    else if (!mpi_is_over())
        MPI_Error_string(code, whole, &length);
    mpi_call_end(&caller);
    snprintf(text, bytes, "%s", whole);
}

/* A creating call that fails has no text of its own. */
void mpi_tell(const struct mpi_world *w, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING], line[MPI_MAX_ERROR_STRING + 128];

    mpi_explain(NULL, code, text, sizeof text);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    snprintf(line, sizeof line, "mpi: %s: %s", what, text);
    if (mpi_log && w->log)
        mpi_log(w->log, LOG_ERROR, line);
}
