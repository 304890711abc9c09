/* For any text that rank 0 may publish in a file or a launcher's store: it is refused. Or every field is within its range, and formatting
 * and parsing it gives the same fields. */
#include "fuzz/fuzz.h"

#include "net/boot/meeting.h"

#include <string.h>

int fuzz_meeting(const unsigned char *bytes, size_t count)
{
    struct meeting m, again;
    char text[MEETING_BYTES];

    if (!meeting_parse((const char *)bytes, count, &m))
        return 0;
    HOLD(m.ranks >= 1 && m.ranks <= 65535 && m.port >= 1 && m.port <= 65535 && (m.keyed == 0 || m.keyed == 1));
    HOLD(m.host[0] && memchr(m.host, 0, sizeof m.host));
    size_t length = meeting_format(&m, text);
    HOLD(length < sizeof text && strlen(text) == length);
    HOLD(meeting_parse(text, length, &again) && !memcmp(&m, &again, sizeof m));
    return 1;
}
